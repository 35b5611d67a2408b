// SPDX-License-Identifier: Apache-2.0

// What an open store says of its rows: the catalog, and what cannot be read.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/collect/chain_rows.h"
#include "core/engine/engine.h"
#include "core/process/arena.h"
#include "core/version/segment_tables.h"

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

std::vector<std::string> Engine::LoadCatalog(
    absl::StatusOr<ChainLinks>* links) {
  std::vector<std::string> problems;
  arena_->execute([&] {
    TaskGroup beside;
    beside.run([&] { *links = ReadChainLinks(*database_); });
    problems = catalog_.Load(*database_);
    beside.wait();
  });
  return problems;
}

absl::Status Engine::LoadChain(absl::StatusOr<ChainLinks> links) {
  // Of a row that is not among the steps only the rows can tell.
  if (!catalog_.damage().empty()) return keeper_.Load(ReadChain(*database_));
  return keeper_.Load(
      ReadChain(*database_, std::move(links), catalog_.AllSteps()));
}

absl::Status Engine::MendSegments() {
  absl::StatusOr<int> made;
  arena_->execute([&] {
    made = MendSegmentTables(database_.get(), database_->report().unproven);
  });
  if (made.ok() && *made > 0) {
    logger_.Log(LogSeverity::kInfo, "open",
                absl::StrFormat("made the tables of %d segments anew", *made));
  }
  absl::Status mended = database_->MendLeafCopies();
  mended.Update(made.status());
  return mended;
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
