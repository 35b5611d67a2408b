// Database for a reader: opening beside a writer or without one, following it.
//
// Following is opening anew whatever HEAD says is new. RocksDB's own follower, a
// "secondary", stays at an older list of files, and says nothing, where the
// writer removed a file that it had not opened yet; where it got none at all it
// aborts at the next MANIFEST (7.8.3, db/version_edit_handler.cc: OnColumnFamilyAdd
// asserts that there is an older version). An open that misses a file fails.
//
// An open reads MANIFEST before it lists the logs. One that goes in between takes
// along what that MANIFEST said was still in it; where `records` were in a file
// before, the chain of commits shows nothing. So the logs must be the same before
// and after: a log goes only after the files that replace it are in MANIFEST, and
// one more that came and went meanwhile left a newer one.
//
// HEAD is read before anything that is held against it. What it acknowledges is
// in the log by then, so a store that does not show it is damaged - unless it
// changed hands in between, which the second look at the lock and HEAD tells.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kv/commit_chain.h"
#include "kv/database.h"
#include "kv/database_impl.h"
#include "kv/file_system.h"
#include "kv/head.h"
#include "kv/instance.h"
#include "kv/options.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "rocksdb/db.h"

namespace ckptree::kv {
namespace {

// Each failed attempt means that the writer came, went, removed a file or began
// a new log right then.
constexpr int kAttempts = 32;

}  // namespace

absl::StatusOr<std::optional<LockHolder>> Database::Impl::ProbeWriter() const {
  // The holder would be the caller.
  if (options.locked) return std::nullopt;
  return StoreLock::Probe(directory);
}

absl::StatusOr<std::vector<std::string>> Database::Impl::Logs() const {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<std::string> names,
                           ListDirectory(reader_options, DbDirectory()));
  std::erase_if(names, [](const std::string& name) {
    return !name.ends_with(".log");
  });
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status Database::Impl::OpenForReading(OpenReport* found) {
  absl::Status last = absl::UnavailableError(
      absl::StrFormat("%s keeps changing hands", directory));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    *found = OpenReport();
    CKPTREE_ASSIGN_OR_RETURN(const StoreDirectory looked, LookAtStore());
    found->notes = looked.warnings;
    found->highest_version = looked.highest_staged_version;
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> before,
                             ProbeWriter());
    const absl::Status head_read = ReadHead(found);
    if (options.forensic) {
      CKPTREE_ASSIGN_OR_RETURN(
          std::shared_ptr<Instance> forensic,
          Instance::Open(Role::kForensic, DbDirectory(), reader_options,
                         nullptr, nullptr));
      const absl::StatusOr<ChainTip> newest = ReadTip(*forensic);
      if (newest.ok()) found->ordinal = newest->ordinal;
      Replace(std::move(forensic), /*is_following=*/false);
      return absl::OkStatus();
    }
    CKPTREE_RETURN_IF_ERROR(head_read);

    const bool beside = before.has_value();
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> logs, Logs());
    absl::StatusOr<std::shared_ptr<Instance>> opened = Instance::Open(
        beside ? Role::kFollower : Role::kReadOnly, DbDirectory(),
        reader_options, nullptr, nullptr);
    absl::Status status = opened.status();
    if (status.ok()) status = CheckChain(**opened, beside, found);

    // The second look.
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> after,
                             ProbeWriter());
    OpenReport again;
    CKPTREE_RETURN_IF_ERROR(ReadHead(&again));
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> logs_again, Logs());
    const bool same = after.has_value() == beside && logs_again == logs &&
                      (beside || (again.head == found->head &&
                                  again.head_missing == found->head_missing));
    if (status.ok() && same) {
      // A copy is read as what it is; only a writer must know.
      seen_write_count = found->head_missing ? 0 : found->head.write_count;
      // MANIFEST was read before the log: a commit later than HEAD may refer to
      // segments adopted in between. The next open shows them, though HEAD may
      // not have been written yet.
      seen_all = !beside || (!found->head_missing &&
                             found->ordinal == found->head.ordinal);
      Replace(*std::move(opened), beside);
      return absl::OkStatus();
    }
    // Without a writer at either look, nothing but the store can be wrong.
    if (!status.ok() && same && !beside) return status;
    if (!status.ok()) last = std::move(status);
  }
  return last;
}

absl::Status Database::Refresh() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.mark.Check());
  if (impl.mode != Mode::kRead || impl.options.forensic) {
    return impl.Reading().status();
  }
  // Held over I/O: opening from two threads at once gains nothing.
  const absl::MutexLock lock(&impl.refresh_mutex);
  CKPTREE_RETURN_IF_ERROR(impl.Reading().status());
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> holder,
                           impl.ProbeWriter());
  if (holder.has_value() == following() && impl.seen_all) {
    OpenReport now;
    CKPTREE_RETURN_IF_ERROR(impl.ReadHead(&now));
    const std::uint64_t count = now.head_missing ? 0 : now.head.write_count;
    if (count == impl.seen_write_count) return absl::OkStatus();
  }
  OpenReport ignored;
  return impl.OpenForReading(&ignored);
}

}  // namespace ckptree::kv
