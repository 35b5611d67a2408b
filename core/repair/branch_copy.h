// SPDX-License-Identifier: Apache-2.0

// The branches of one store, made in another as its steps are saved there.

#ifndef CKPTREE_CORE_REPAIR_BRANCH_COPY_H_
#define CKPTREE_CORE_REPAIR_BRANCH_COPY_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/engine/engine.h"

namespace ckptree::internal {

// Confined to one thread.
class BranchCopier {
 public:
  // REQUIRES: the versions of `to` are above all that `from` ever had.
  BranchCopier(Engine& from, Engine* to) : from_(from), to_(*to) {}

  // Branches of `from` that have steps but lost their rows get names, in
  // memory; what is lost with such a row.
  std::vector<std::string> NameBranches();

  // Makes the branch, and those it comes from, where it is not there yet: from
  // its origin where that was saved into `to` by now, else from nothing.
  absl::Status Copy(std::string_view name);

  // Branches that have no step of their own, and nothing to go on from any
  // more.
  const std::vector<std::string>& losses() const { return losses_; }

  // Policy and metadata of the branch, which is in both.
  absl::Status CopySettings(std::string_view name);

 private:
  Engine& from_;
  Engine& to_;
  std::set<std::string, std::less<>> begun_;
  std::vector<std::string> losses_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REPAIR_BRANCH_COPY_H_
