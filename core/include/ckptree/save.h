// SPDX-License-Identifier: Apache-2.0

// Saving: a step is put together, committed, and followed by its handle.
//
//   ckptree::StepBuilder step = store.Begin(iteration);
//   step.Put("params/w", {ckptree::DType::kFloat32, {768, 768}, weights});
//   step.PutInt("epoch", 3).SetMetric("loss", loss);
//   ckptree::SaveHandle save = std::move(step).Commit();
//   ...                                          // Training goes on.
//   absl::Status status = save.WaitCommitted(absl::Minutes(5));

#ifndef CKPTREE_SAVE_H_
#define CKPTREE_SAVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/entry_kind.h"
#include "ckptree/export.h"
#include "ckptree/options.h"
#include "ckptree/path.h"
#include "ckptree/tensor.h"

namespace ckptree {

namespace internal {
class Engine;
class Save;
struct RankPeer;
struct StepOriginPeer;
}  // namespace internal

// What a named top-level subtree holds, for those who read it.
enum class ItemType {
  kTree,   // Arrays and values: the default.
  kJson,   // One JSON value.
  kProto,  // One serialised message.
  kFiles,  // Files by their names.
};

// One save on its way.
//
// Thread-safe. Copies are handles of the same save. Dropping the last handle
// neither waits nor cancels: the store finishes its saves. A failure that
// nobody asked for is then returned by the next Store::Begin(), Store::Flush()
// or Store::Close(), once. In a forked child each wait is kFailedPrecondition
// at once: the save goes on in the parent alone.
class CKPTREE_EXPORT SaveHandle {
 public:
  // A handle of no save: every wait returns kFailedPrecondition.
  SaveHandle();

  // Waits until the arrays may be changed again, also those that were lent
  // (Ownership::kBorrow). OK says only that: the step is not durable yet.
  // kDeadlineExceeded after `timeout`, and the save goes on; kCancelled; or the
  // error that ended the save.
  absl::Status WaitStaged(absl::Duration timeout = absl::InfiniteDuration());
  // The same, and tells no error, which is left for another call to tell. False
  // after `timeout`.
  bool WaitStagedOrDone(absl::Duration timeout) const;

  // Waits until the step is durable and visible to readers. kDeadlineExceeded
  // while Done() is false: `timeout` is over, and the save goes on. Once Done()
  // is true every later call returns the same:
  // * kUnknown: a write failed in such a way that the step may or may not be
  //   there; close and open the store to learn which.
  // * With StoreOptions::durable == Durable::kRemote the step may be there and
  //   listed: it is durable in the directory, and follows to the object store.
  //   kDeadlineExceeded after StoreOptions::remote_timeout, or why it cannot be
  //   shipped.
  // * With any other error the step is not there, and the store is as it was
  //   before this save. Of a RankGroup kDeadlineExceeded names the ranks that
  //   did not come.
  absl::Status WaitCommitted(absl::Duration timeout = absl::InfiniteDuration());

  // True once the arrays may be changed again, however the save ends. Never
  // blocks. Does not count as asking for a failure.
  bool Staged() const;
  // True once the save was committed, failed or was cancelled. Never blocks.
  bool Done() const;

  // Calls `callback` once with the result of WaitCommitted(): from a thread of
  // the store, or at once on this thread where the save is over. The callback
  // must not wait for saves of this store; it may begin and submit new ones.
  // What it throws goes no further; the store logs it where it can. Null:
  // nothing is called.
  void OnCommitted(std::function<void(const absl::Status&)> callback);
  // The same without the result: a failure still waits for somebody to ask.
  void OnDone(std::function<void()> callback);

  // Asks the save to stop, and returns at once. The save may still be
  // committed: its last write cannot be taken back. WaitCommitted() says which.
  void Cancel();

  // How far the save is.
  ckptree::Progress Progress() const;
  // The step's number; 0 for a handle of no save.
  std::int64_t step() const;
  // The store's own number of the committed save; 0 before.
  std::uint64_t version() const;
  // Why the policy of the branch was not applied by this save, although its
  // step is committed. Nothing was removed then. OK where it was applied.
  absl::Status PolicyProblem() const;

 private:
  friend class CheckpointManager;
  friend class StepBuilder;
  friend struct internal::RankPeer;
  // Until the arrays that were not lent are free, or the save is over.
  void WaitCopied();
  explicit SaveHandle(std::shared_ptr<internal::Save> save);
  std::shared_ptr<internal::Save> save_;
};

struct SaveOptions {
  // Replace the step of this number. Readers see the old step until the new one
  // is committed, in one moment. kFailedPrecondition where the old one is
  // pinned or tagged. Without this, a step that exists is kAlreadyExists.
  bool overwrite = false;
  // With `overwrite`: also a tagged one, whose tags go in the same commit.
  // kInvalidArgument without it.
  bool tagged = false;
  // Save the step although the policy of the branch would remove it at once.
  // Without this, such a step is kFailedPrecondition: it can only be one below
  // the newest step of its branch.
  bool ignore_policy = false;
  // Delete all later steps of the branch in the commit of this save: for a run
  // that goes on from an older step. kFailedPrecondition, and nothing changes,
  // where one of them is pinned or tagged.
  bool delete_later = false;
  // The time of the step, for policies and listings, of the years 1678 to 2261;
  // nothing: now.
  std::optional<absl::Time> time = {};
  // The branch to save to; empty: the main branch. kNotFound where there is
  // none of that name.
  std::string branch = {};
};

// Collects what a step holds. Nothing of an array is read before Commit().
//
// Every call that adds something returns the builder, and none of them fails:
// the first mistake is kept and returned by the handle. What one call shows (a
// text that is no path, a shape that is not one, JSON that does not parse, a
// limit) status() returns at once; what only the whole tree shows (a path given
// twice, a leaf below a leaf, a tie to nothing, boxes that leave a hole) comes
// out of the handle alone. A step with a mistake is not saved.
//
// Calls can be chained: store.Begin(1).Put("w", w).PutInt("epoch", 3).Commit().
//
// A path may be given as text ("params/dense/kernel") or as a Path.
//
// Confined to one thread at a time. A builder that was committed, submitted or
// moved from can only be destroyed or assigned to; any other use ends the
// program with a message. The store must outlive the builder.
class CKPTREE_EXPORT StepBuilder {
 public:
  StepBuilder(StepBuilder&&) noexcept;
  StepBuilder& operator=(StepBuilder&&) noexcept;
  StepBuilder(const StepBuilder&) = delete;
  StepBuilder& operator=(const StepBuilder&) = delete;
  // Without Commit() or Submit() nothing is saved.
  ~StepBuilder();

  // Adds an array, or one box of it (Tensor::start). The first part of a path
  // names an item, and is a plain text key: no index, no field. The memory must
  // stay valid until the handle says that the save is staged; see Ownership for
  // when it may change.
  StepBuilder& Put(PathRef path, Tensor tensor,
                   Ownership ownership = Ownership::kCopy);

  // Add a small value. A text must be UTF-8, JSON must parse.
  StepBuilder& PutBool(PathRef path, bool value);
  StepBuilder& PutInt(PathRef path, std::int64_t value);
  StepBuilder& PutFloat(PathRef path, double value);
  StepBuilder& PutComplex(PathRef path, double real, double imaginary);
  StepBuilder& PutString(PathRef path, std::string utf8);
  StepBuilder& PutBytes(PathRef path, std::string bytes);
  StepBuilder& PutJson(PathRef path, std::string json);
  // A serialised message and its full name ("package.Message"), of at most
  // 4 KiB. The bytes are not parsed.
  StepBuilder& PutProto(PathRef path, std::string message_name,
                        std::string serialised);
  // The content of a file that was read into memory.
  StepBuilder& PutFile(PathRef path, std::string content);

  // Adds a node of the tree. Only nodes that do not follow from the paths below
  // them have to be added: empty ones, None, tuples, named tuples and objects.
  // `kind` is one of EntryKind's nodes. `tag` is kept and returned: for a named
  // tuple its name and fields, "Name(a,b)", else what the caller likes, of at
  // most 4 KiB.
  StepBuilder& PutNode(PathRef path, EntryKind kind, std::string tag = "");
  // `path` shares the value of the leaf `target`, which must be in this step;
  // it may be put later.
  StepBuilder& Tie(PathRef path, PathRef target);

  // Of a step that several processes save (ckptree/ranks.h): what is at or
  // below `subtree`, and was put whole, is this rank's own. All else that is
  // put whole every rank has to put alike, and one of them saves it.
  StepBuilder& SetPerRank(PathRef subtree);

  // What the top-level subtree `name` holds; kTree where nothing is said. A
  // name that the step does not have in the end is an item with nothing in it.
  StepBuilder& SetItemType(std::string_view name, ItemType type);
  // Adds a number by which steps are compared and chosen, at most 16 for each
  // step. Their names of at most 128 bytes, with 15 more for each, and the note
  // have 1856 bytes together at most. NaN is stored, and is never the best
  // value. Of a name that is given twice the last value counts.
  StepBuilder& SetMetric(std::string_view name, double value);
  // JSON of the caller's own, at most 8 MiB; Step::Metadata() returns it.
  StepBuilder& SetCustomMetadata(std::string json);
  // A line of text that listings show, at most 512 bytes; see SetMetric().
  StepBuilder& SetNote(std::string_view text);
  // Adds an entry to what the step says of its origin, at most 1 MiB of UTF-8.
  // The engine sets "host", "pid", "command" and "directory"; an entry of such
  // a name replaces the engine's.
  StepBuilder& SetLineage(std::string_view name, std::string text);

  // The step is not to be saved: the handle says why, and so do those of other
  // ranks that save it too. For a caller that cannot put all of its part; a
  // mistake of before stays the one that is told. kInvalidArgument where `why`
  // is OK.
  StepBuilder& Fail(const absl::Status& why);

  // The first mistake that one call showed, or why Begin() failed.
  absl::Status status() const;

  // Starts the save. Returns when the arrays that were not lent have been
  // copied: they may be changed at once, and the bytes are compared, written
  // and committed in the background. Where the copies do not fit in
  // StoreOptions::staging_bytes, this call waits for the disk. It also waits
  // while StoreOptions::max_saves_in_flight saves are in flight. Saves of a
  // store are committed in the order in which they were committed to, by this
  // call or Submit(). Errors come from the handle. Must not be called by a
  // callback of the store.
  [[nodiscard]] SaveHandle Commit();
  // The same without waiting for copies: no array may be changed before
  // SaveHandle::WaitStaged() returned.
  [[nodiscard]] SaveHandle Submit();

 private:
  friend class CheckpointManager;
  friend class Store;
  friend struct internal::RankPeer;
  friend struct internal::StepOriginPeer;
  struct CKPTREE_LOCAL Impl;
  explicit StepBuilder(std::unique_ptr<Impl> impl);
  // Ends the program where the builder was committed or moved from.
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree

#endif  // CKPTREE_SAVE_H_
