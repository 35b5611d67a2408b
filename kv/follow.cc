// Database for a reader: opening beside a writer or without one, following it.
//
// HEAD is read before anything that is held against it. What it acknowledges is
// in the log by then, so a store that does not show it is damaged - unless it
// changed hands in between, which the second look at the lock and HEAD tells.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kv/commit_chain.h"
#include "kv/database.h"
#include "kv/database_impl.h"
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

// Each failed attempt means that the writer came, went or removed a file right
// then.
constexpr int kAttempts = 8;

// Catching up may read the commit of a segment it does not know yet; when a
// round shows nothing new, all is there.
constexpr int kRounds = 4;

absl::Status OneRound(Instance& follower) {
  return ToStatus(follower.db()->TryCatchUpWithPrimary(), "catching up");
}

}  // namespace

absl::StatusOr<std::optional<LockHolder>> Database::Impl::ProbeWriter() const {
  // The holder would be the caller.
  if (options.locked) return std::nullopt;
  return StoreLock::Probe(directory);
}

absl::Status Database::Impl::CatchUp(Instance& follower) {
  OpenReport now;
  CKPTREE_RETURN_IF_ERROR(ReadHead(&now));
  absl::Status contained;
  std::uint64_t previous = 0;
  for (int round = 0; round < kRounds; ++round) {
    CKPTREE_RETURN_IF_ERROR(OneRound(follower));
    CKPTREE_ASSIGN_OR_RETURN(const ChainTip newest, ReadTip(follower));
    contained = now.head_missing
                    ? absl::OkStatus()
                    : ContainsHead(follower, now.head, newest);
    if (contained.ok() && newest.ordinal == previous) break;
    previous = newest.ordinal;
  }
  CKPTREE_RETURN_IF_ERROR(contained);
  seen_write_count = now.head_missing ? 0 : now.head.write_count;
  return absl::OkStatus();
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
    absl::StatusOr<std::shared_ptr<Instance>> opened = Instance::Open(
        beside ? Role::kFollower : Role::kReadOnly, DbDirectory(),
        reader_options, nullptr, nullptr);
    absl::Status status = opened.status();
    if (status.ok() && beside) status = CatchUp(**opened);
    if (status.ok()) status = CheckChain(**opened, beside, found);

    // The second look.
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> after,
                             ProbeWriter());
    OpenReport again;
    CKPTREE_RETURN_IF_ERROR(ReadHead(&again));
    const bool same = after.has_value() == beside &&
                      (beside || (again.head == found->head &&
                                  again.head_missing == found->head_missing));
    if (status.ok() && same) {
      // A copy is read as what it is; only a writer must know.
      seen_write_count = found->head_missing ? 0 : found->head.write_count;
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
  // Held over I/O: catching up from two threads at once gains nothing.
  const absl::MutexLock lock(&impl.refresh_mutex);
  CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<Instance> instance,
                           impl.Reading());
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<LockHolder> holder,
                           impl.ProbeWriter());
  if (holder.has_value() && following()) {
    if (impl.CatchUp(*instance).ok()) {
      impl.ForgetFiles();
      return absl::OkStatus();
    }
    // Its files went away under it, or the store is damaged: a new open tells.
  } else if (!holder.has_value() && !following()) {
    OpenReport now;
    CKPTREE_RETURN_IF_ERROR(impl.ReadHead(&now));
    const std::uint64_t count = now.head_missing ? 0 : now.head.write_count;
    if (count == impl.seen_write_count) return absl::OkStatus();
  }
  OpenReport ignored;
  return impl.OpenForReading(&ignored);
}

}  // namespace ckptree::kv
