// SPDX-License-Identifier: Apache-2.0

// What an open store says of its rows: the catalog, and what cannot be read.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/engine.h"

namespace ckptree::internal {

std::vector<std::string> Engine::warnings() const {
  catalog_.List();
  return WarningsSoFar();
}

std::vector<std::string> Engine::WarningsSoFar() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> warnings = warnings_;
  warnings.insert(warnings.end(), bad_rows_.begin(), bad_rows_.end());
  return warnings;
}

std::vector<std::string> Engine::LoadCatalog() {
  if (lists_later_) {
    return catalog_.LoadLater(
        database_.get(), arena_.get(),
        [this](const std::vector<std::string>& rows) { NoteBadRows(rows); });
  }
  std::vector<std::string> problems;
  arena_->execute([&] { problems = catalog_.Load(*database_); });
  return problems;
}

void Engine::NoteBadRows(const std::vector<std::string>& rows) {
  std::vector<std::string> added;
  {
    absl::MutexLock lock(&mu_);
    for (const std::string& row : rows) {
      if (std::find(bad_rows_.begin(), bad_rows_.end(), row) ==
          bad_rows_.end()) {
        bad_rows_.push_back(row);
        added.push_back(row);
      }
    }
  }
  for (const std::string& row : added) {
    logger_.Log(LogSeverity::kWarning, "open", row);
  }
}

void Engine::ReloadCatalog() {
  const std::uint64_t view = database_->view();
  std::vector<std::string> problems = LoadCatalog();
  absl::MutexLock lock(&mu_);
  loaded_view_ = view;
  problems.swap(bad_rows_);
  for (const std::string& row : bad_rows_) {
    if (std::find(problems.begin(), problems.end(), row) != problems.end()) {
      continue;  // Said before.
    }
    logger_.Log(LogSeverity::kWarning, "refresh", row);
  }
}

}  // namespace ckptree::internal
