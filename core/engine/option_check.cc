// SPDX-License-Identifier: Apache-2.0

#include "core/engine/option_check.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ckptree/policy.h"
#include "core/policy/retention.h"
#include "kv/wall_clock.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

// What is compared there is dropped here within half of it.
constexpr absl::Duration kLeastGrace = absl::Minutes(1);

absl::Status CheckLocalKeep(const Preservation& policy, absl::Duration grace) {
  CKPTREE_RETURN_IF_ERROR(Check(policy));
  const std::string function = MissingFunction(policy);
  if (!function.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "local_keep asks function '%s', which is not there", function));
  }
  if (grace < kLeastGrace) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "local_keep needs a remote_grace of %s at least: what leaves the disk "
        "must stay there for as long as it takes to compare it",
        absl::FormatDuration(kLeastGrace)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const StoreOptions& options) {
  if (options.chunk_bytes < (64 << 10) ||
      options.chunk_bytes > static_cast<std::size_t>(schema::kMaxChunkBytes)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("chunk_bytes is %d: 64 KiB to 16 MiB are possible",
                        options.chunk_bytes));
  }
  if (options.threads < 0 || options.threads > 1024) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "threads is %d: 0 (one per processor) to 1024", options.threads));
  }
  if (options.lock_wait < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "lock_wait is %s: 0 or more", absl::FormatDuration(options.lock_wait)));
  }
  if (options.staging_idle < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("staging_idle is %s: 0 or more",
                        absl::FormatDuration(options.staging_idle)));
  }
  if (options.coding.has_value() && *options.coding != Coding::kNone &&
      *options.coding != Coding::kPlanes && *options.coding != Coding::kAuto) {
    return absl::InvalidArgumentError(
        absl::StrFormat("coding has the number %d, which is no Coding",
                        static_cast<int>(*options.coding)));
  }
  if (options.max_saves_in_flight < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "max_saves_in_flight is %d: 1 or more", options.max_saves_in_flight));
  }
  if ((options.permissions & ~0666) != 0 ||
      (options.permissions & 0600) != 0600) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "permissions are %#o: 0600 to 0666, whatever their owner may do",
        options.permissions));
  }
  if ((options.host_allocator.allocate == nullptr) !=
      (options.host_allocator.free == nullptr)) {
    return absl::InvalidArgumentError(
        "host_allocator has one function of two: set both of allocate and "
        "free, or none");
  }
  CKPTREE_RETURN_IF_ERROR(kv::CheckClock());
  if (options.read_only && options.create_if_missing) {
    return absl::InvalidArgumentError(
        "a store opened read only cannot be created: drop one of "
        "create_if_missing and read_only");
  }
  const bool of_remote = !options.remote.empty();
  if (of_remote && options.read_only) {
    return absl::InvalidArgumentError(
        "a remote is what a store that is opened for writing ships to: drop "
        "one of remote and read_only");
  }
  const StoreOptions usual;
  if (!of_remote && (options.durable != usual.durable || options.take_over ||
                     options.remote_timeout != usual.remote_timeout ||
                     options.remote_grace != usual.remote_grace ||
                     options.local_keep.has_value())) {
    return absl::InvalidArgumentError(
        "durable, take_over, remote_timeout, remote_grace and local_keep are "
        "of a remote, and there is none: set remote, or leave them out");
  }
  if (!options.local_keep.has_value()) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(
      CheckLocalKeep(*options.local_keep, options.remote_grace));
  return CheckHealthIsKnown("local_keep", *options.local_keep,
                            options.statistics);
}

StoreOptions WithoutRemote(StoreOptions options) {
  StoreOptions usual;
  options.remote = std::move(usual.remote);
  options.durable = usual.durable;
  options.take_over = usual.take_over;
  options.remote_timeout = usual.remote_timeout;
  options.remote_grace = usual.remote_grace;
  options.local_keep = std::move(usual.local_keep);
  return options;
}

}  // namespace ckptree::internal
