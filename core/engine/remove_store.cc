// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/local_path.h"
#include "ckptree/remove.h"
#include "core/engine/engine.h"
#include "core/process/close_at_exit.h"
#include "core/version/catalog.h"
#include "kv/file_system.h"
#include "kv/store_creation.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"

namespace ckptree {
namespace {

using internal::Catalog;
using internal::Engine;
using internal::EngineOptions;
using internal::StepRecordPtr;

absl::Status CheckMayGo(const std::string& directory, const Catalog& catalog,
                        std::size_t most_steps) {
  CKPTREE_RETURN_IF_ERROR(catalog.CheckListed());
  if (const std::string damage = catalog.damage(); !damage.empty()) {
    return absl::DataLossError(damage);
  }
  const std::vector<StepRecordPtr> steps = catalog.AllSteps();
  if (steps.size() > most_steps) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has %d step%s, one of them %s", directory, steps.size(),
        steps.size() == 1 ? "" : "s", catalog.NameOf(*steps.back())));
  }
  const std::set<std::uint64_t> named = catalog.NamedVersions();
  for (const StepRecordPtr& step : steps) {
    if (!named.contains(step->version)) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "step %s of %s is pinned or tagged", catalog.NameOf(*step), directory));
  }
  return absl::OkStatus();
}

absl::Status LookInto(const std::string& directory, std::size_t most_steps) {
  StoreOptions reading;
  reading.read_only = true;
  reading.create_if_missing = false;
  reading.log = [](LogSeverity, std::string_view, std::string_view) {};
  CKPTREE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Engine> engine,
      Engine::Open(directory, {.store = reading,
                               .use = EngineOptions::Use::kReadLocked,
                               .leaves_nothing = true}));
  CKPTREE_RETURN_IF_ERROR(CheckMayGo(directory, engine->catalog(), most_steps));
  return engine->Close();
}

}  // namespace

absl::Status RemoveStore(const std::string& directory, std::size_t most_steps) {
  CKPTREE_RETURN_IF_ERROR(internal::CheckMayOpen());
  CKPTREE_ASSIGN_OR_RETURN(const std::string local, LocalPath(directory));
  const std::string path = kv::AbsolutePath(local);
  CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found, kv::LookAt(path));
  if (!found.exists ||
      (!found.journal && !found.db && !found.head && !found.creating)) {
    return absl::NotFoundError(absl::StrFormat("no store in %s", path));
  }
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is a link: name the directory that it leads to", path));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::unique_ptr<kv::StoreLock> lock,
                           kv::StoreLock::Acquire(path, /*wait_ms=*/0));
  const kv::Options options;
  // What was never made to its end holds nothing. It may have been, by now.
  if (!kv::MayCreate(options, path).ok()) {
    CKPTREE_RETURN_IF_ERROR(LookInto(path, most_steps));
  }
  // What is in the folders of a store goes with them.
  CKPTREE_RETURN_IF_ERROR(kv::CheckInside(options, path));
  CKPTREE_RETURN_IF_ERROR(lock->Check());
  CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory now, kv::LookAt(path));
  if (now.foreign.empty()) {
    std::random_device random;
    const std::string removed =
        absl::StrFormat("%s.removed-%08x", path, random());
    if (kv::RenameFile(options, path, removed).ok()) {
      // Also where it is not durable: then it is there again, and whole.
      kv::SyncDirectory(options, std::filesystem::path(path).parent_path())
          .IgnoreError();
      return kv::RemoveTree(options, removed);
    }
  }
  // Files of others, a mount, or the folder above it is not the caller's.
  CKPTREE_RETURN_IF_ERROR(kv::RemoveParts(options, path));
  std::filesystem::remove(path, error);  // Where it is empty, and may go.
  return absl::OkStatus();
}

}  // namespace ckptree
