// SPDX-License-Identifier: Apache-2.0

// Steps of one store, saved into another: backups, and runs that move.
//
//   auto from = ckptree::Store::Open("/runs/lm", {.read_only = true});
//   auto to = ckptree::Store::Open("/backup/lm", {.create_if_missing = true});
//   auto report = ckptree::Copy(*from, &*to);

#ifndef CKPTREE_COPY_H_
#define CKPTREE_COPY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/export.h"
#include "ckptree/selector.h"
#include "ckptree/store.h"

namespace ckptree {

// What became of one step.
struct CopiedStep {
  enum class Result {
    kCopied,   // It is in the other store now.
    kThere,    // It was there already, with the same values.
    kPlanned,  // CopyOptions::dry_run: it would be copied.
    kGone,     // It was removed before it could be read, and is not there.
    kRefused,  // The other store does not take it; its own policy, or a pin.
    kDamaged,  // It cannot be read whole, and nothing of it was saved.
    // Some of it is in an object store that does not answer; nothing of it was
    // saved, and another call goes on once it does.
    kUnreachable,
  };
  std::string branch = {};  // Empty: the main branch.
  std::int64_t step = 0;
  Result result = Result::kCopied;
  std::string why = {};         // Of kRefused, kDamaged and kUnreachable.
  std::uint64_t leaves = 0;     // As the step says of itself.
  std::uint64_t bytes = 0;      // Of all its values.
  std::uint64_t new_bytes = 0;  // That the other store did not have before.
};

// "copied", "there", "planned", "gone", "refused", "damaged", "unreachable".
CKPTREE_EXPORT std::string_view Name(CopiedStep::Result result);

struct CKPTREE_EXPORT CopyReport {
  std::vector<CopiedStep> steps = {};  // In the order of their saves.
  // Tags, branches and the like that could not be carried over, a line each.
  std::vector<std::string> problems = {};
  // The address of the object store of steps that are kUnreachable.
  std::string silent_remote = {};
  VerifyReport verified = {};  // What was read back.

  std::uint64_t CountOf(CopiedStep::Result result) const;
  // All that was asked for is there, and was read back where it was copied.
  bool complete() const;
};

struct CopyOptions {
  // Which steps; nothing: all, and the metadata of the run. Branches come with
  // their steps.
  std::optional<std::vector<StepSelector>> steps = {};
  // Replace a step of the same number that has other values, and let a tag
  // name another step than it did. Without this the first is kAlreadyExists,
  // and nothing is copied; the second is one of CopyReport::problems.
  bool overwrite = false;
  // With `overwrite`: kAlreadyExists, and nothing is copied, where steps would
  // be replaced and none is the same in both: `to` is of another store then.
  bool of_same_store = false;
  // Change nothing. `to` may be null then: an empty store.
  bool dry_run = false;
  // Read back also the steps that were there already.
  bool verify_all = false;
  // Arrays of a step that are kept in memory until it is saved; larger steps
  // are read twice.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  // Checked between leaves; true stops with kCancelled. Steps that were copied
  // stay, and a step is never there in part: another call goes on.
  std::function<bool()> cancelled = {};
  // In bytes of values, while steps are copied and, anew, while they are read
  // back.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
  // As soon as it is known what became of a step; in the end once more of each
  // that was copied, or was there, and that the policy of `to` removed since.
  std::function<void(const CopiedStep&)> on_step = {};
};

// Saves into `to` the steps of `from` that are not there yet, oldest save
// first, each in one commit: tree, values, metrics, note, custom metadata,
// lineage, the times of its save, tags and pins; and without `steps` all
// branches. A branch goes on from the same step there; where that is not there,
// or is another one, from none, as here where it was removed or saved anew. One
// of that name that was forked elsewhere stays, and is a problem, but that with
// `overwrite` one without steps becomes the one here. What two steps share they
// share in `to` as well. Every value is compared with its digest when it is
// read, and what was copied is read back in the end. A step is "there" when
// its values and metrics are the same, whatever its number says. Policies stay
// behind: each store has its own. Nothing is removed from `to`, neither steps
// nor tags that `from` does not have any more.
//
// `from` may have a live trainer, and is not changed. What it saves after the
// call began is not copied.
//
// kNotFound: a selector that means no step. kAlreadyExists: see `overwrite`.
// kCancelled. Any other error: `to` cannot be written.
CKPTREE_EXPORT absl::StatusOr<CopyReport> Copy(const Store& from, Store* to,
                                               const CopyOptions& options = {});

}  // namespace ckptree

#endif  // CKPTREE_COPY_H_
