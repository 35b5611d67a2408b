// SPDX-License-Identifier: Apache-2.0

// How a command changes a store: by its own hand, or, where a trainer has the
// store, by asking that one.

#ifndef CKPTREE_TOOLS_LINE_CHANGES_H_
#define CKPTREE_TOOLS_LINE_CHANGES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/store.h"
#include "core/engine/ask.h"
#include "schema/store_request.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// Steps are those that the command saw: one that was saved anew since then is
// an error. Where the trainer ends in the middle, what it did not do is done
// here, once.
//
// kUnavailable: nothing was changed. kDeadlineExceeded: it is not known whether
// it was. Confined to one thread.
class Changes {
 public:
  explicit Changes(Session* session) : session_(*session) {}

  // Opens the store of `session`: for writing where nobody has it, else to
  // read.
  absl::Status Open();
  // To look at.
  Store* store() { return *session_.OpenStore(); }
  // True: a trainer is asked. May become false with any change.
  bool asks() const { return !own_; }
  // Who answered last: "pid 12 on host h"; empty: nobody was asked.
  const std::string& by() const { return by_; }

  absl::Status Tag(const std::string& name, const StepInfo& step, bool move);
  absl::Status Untag(const std::string& name);
  absl::Status Pin(const std::vector<StepInfo>& steps, bool pinned);
  absl::Status Delete(const std::vector<StepInfo>& steps, bool tagged);
  absl::Status Fork(const StepInfo& step, const std::string& name);
  absl::Status DropBranch(const BranchInfo& branch, bool tagged);
  absl::Status SetPolicy(const Preservation& policy, const std::string& branch);
  absl::StatusOr<std::vector<std::int64_t>> ApplyPolicy(
      const std::string& branch);
  // `patient`: waits for the answer of a trainer that has begun, however long.
  absl::StatusOr<CollectReport> Collect(const CollectOptions& options,
                                        bool patient);

  absl::Status Close();

 private:
  // What a change is, to whoever makes it.
  struct Change {
    schema::StoreRequest request;
    std::function<absl::Status(Store*)> act;
    // Whether the store is as `act` would make it.
    std::function<absl::StatusOr<bool>(Store*)> is_done;
    bool patient = false;
  };

  absl::StatusOr<schema::StoreAnswer> Make(const Change& change);
  absl::StatusOr<schema::StoreAnswer> Ask(const Change& change);
  // After the trainer ended, having taken the request.
  absl::Status Finish(const Change& change, const internal::Asked& asked);
  // True: the store is now open for writing. False: someone else has it.
  absl::StatusOr<bool> TakeOver();
  absl::StatusOr<absl::Duration> Timeout() const;

  Session& session_;
  bool own_ = false;
  // What is listed, by this process.
  bool changed_ = false;
  std::string by_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_CHANGES_H_
