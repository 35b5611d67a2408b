// SPDX-License-Identifier: Apache-2.0

#include "kv/conditional_put.h"

#include <sys/random.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kv/object_store.h"
#include "kv/objects/wait.h"

namespace ckptree::kv {
namespace {

// A name that nobody else has: each one is a lie of the server, or of what
// stands before it.
constexpr int kMostDenials = 5;

// kUnknown: absent.
absl::StatusOr<PutOutcome> LookAt(ObjectStore& store, const std::string& name,
                                  std::string_view bytes,
                                  const std::string& write_id,
                                  const Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<ObjectInfo> found,
                           store.Head(name, call));
  if (!found.has_value()) return PutOutcome::kUnknown;
  if (found->write_id.has_value()) {
    return *found->write_id == write_id ? PutOutcome::kCreated
                                        : PutOutcome::kExists;
  }
  // The bytes hold the id.
  if (found->size != bytes.size()) return PutOutcome::kExists;
  std::string there(bytes.size(), '\0');
  CKPTREE_ASSIGN_OR_RETURN(
      const std::size_t read,
      store.GetRange(name, 0, std::as_writable_bytes(std::span(there)), call));
  return read == bytes.size() && there == bytes ? PutOutcome::kCreated
                                                : PutOutcome::kExists;
}

// Why a creation was not settled: who cancelled it hears that, and what kept it
// from being settled; else that alone.
absl::Status Ended(const absl::Status& over, const absl::Status& kept) {
  if (kept.ok() || absl::IsCancelled(kept)) return over;
  if (!absl::IsCancelled(over)) return kept;
  return absl::CancelledError(
      absl::StrCat(over.message(), ": ", kept.message()));
}

// `denials`: how often it was said to be there, and then not to be there;
// nobody waits for more than kMostDenials of them.
absl::StatusOr<PutAnswer> Settle(ObjectStore& store, const std::string& name,
                                 std::string_view bytes,
                                 const std::string& write_id, const Call& call,
                                 int* denials) {
  CKPTREE_ASSIGN_OR_RETURN(PutAnswer answer,
                           store.PutIfAbsent(name, bytes, write_id, call));
  for (int tries = 1; answer.outcome != PutOutcome::kCreated; ++tries) {
    absl::StatusOr<PutOutcome> seen =
        LookAt(store, name, bytes, write_id, call);
    if (seen.ok() && *seen != PutOutcome::kUnknown) {
      return PutAnswer{*seen, absl::OkStatus()};
    }
    // Somebody has had enough of the requests, so of what repeats them.
    if (absl::IsCancelled(seen.status())) {
      return PutAnswer{PutOutcome::kUnknown,
                       Ended(seen.status(), answer.reason)};
    }
    if (!seen.ok()) answer.reason = seen.status();
    if (denials != nullptr && seen.ok() &&
        answer.outcome == PutOutcome::kExists && ++*denials >= kMostDenials) {
      return answer;
    }
    // With the token that the requests have, which may not be in `call`.
    const Call ending = store.Ending(call);
    WaitOrEnd(ending, PauseBefore(tries, absl::ZeroDuration()));
    const absl::Status over =
        CheckCall(ending, absl::StrCat("creating ", name));
    if (!over.ok()) {
      return PutAnswer{PutOutcome::kUnknown, Ended(over, answer.reason)};
    }
    if (!seen.ok()) continue;  // It is looked at again first.
    absl::StatusOr<PutAnswer> again =
        store.PutIfAbsent(name, bytes, write_id, call);
    answer = again.ok()
                 ? *std::move(again)
                 : PutAnswer{PutOutcome::kUnknown, std::move(again).status()};
  }
  return answer;
}

absl::Status NotProven(ObjectStore& store, const std::string& what) {
  const std::string& address = store.address();
  const bool by_http =
      address.starts_with("s3://") || address.starts_with("gs://");
  return absl::FailedPreconditionError(absl::StrCat(
      address, " does not create an object only where it is absent",
      by_http ? ", which is what If-None-Match: * of a PUT asks for" : "", " (",
      what,
      "): two writers would overwrite each other, so nothing is written there. "
      "What is there can be read by this address; to write, give an object "
      "store that has it, such as Amazon's S3, Ceph or a folder"));
}

}  // namespace

std::string NewWriteId() {
  std::array<char, 16> bits;
  std::size_t have = 0;
  while (have < bits.size()) {
    const ssize_t got = getrandom(bits.data() + have, bits.size() - have, 0);
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  return absl::BytesToHexString(std::string(bits.data(), bits.size()));
}

absl::StatusOr<PutAnswer> PutSettled(ObjectStore& store,
                                     const std::string& name,
                                     std::string_view bytes,
                                     const std::string& write_id,
                                     const Call& call) {
  return Settle(store, name, bytes, write_id, call, nullptr);
}

absl::Status ProveConditionalPut(ObjectStore& store, const std::string& prefix,
                                 const Call& call) {
  const std::string id = NewWriteId();
  const std::string name =
      absl::StrCat(prefix, prefix.empty() ? "" : "/", "proof-", id);
  int denials = 0;
  const absl::StatusOr<PutAnswer> asked =
      Settle(store, name, id, id, call, &denials);
  if (absl::IsUnimplemented(asked.status())) {
    return NotProven(store, std::string(asked.status().message()));
  }
  CKPTREE_RETURN_IF_ERROR(asked.status());
  if (denials >= kMostDenials) {
    return NotProven(store, "it says of what is absent that it is there");
  }
  const PutAnswer& first = *asked;
  if (first.outcome == PutOutcome::kUnknown) return first.reason;
  const std::string other = NewWriteId();
  CKPTREE_ASSIGN_OR_RETURN(const PutAnswer second,
                           PutSettled(store, name, other, other, call));
  if (second.outcome == PutOutcome::kUnknown) return second.reason;
  // It stays where it cannot be deleted; it is in nobody's way.
  store.Delete(std::span(&name, 1), call).IgnoreError();
  if (first.outcome != PutOutcome::kCreated ||
      second.outcome != PutOutcome::kExists) {
    return NotProven(store, second.outcome == PutOutcome::kCreated
                                ? "asked twice, it replaced the first"
                                : "asked twice, it created neither");
  }
  return absl::OkStatus();
}

}  // namespace ckptree::kv
