// Saving: a step is put together, committed, and followed by its handle.

#ifndef CKPTREE_STEP_H_
#define CKPTREE_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/export.h"
#include "ckptree/options.h"
#include "ckptree/tensor.h"

namespace ckptree {

namespace internal {
class Save;
class Engine;
struct StepOriginPeer;
}  // namespace internal

enum class NodeType {
  kNone,
  kDict,
  kList,
  kTuple,
  kNamedTuple,
  kObject,
  kCustom
};

// How a named top-level subtree is to be understood.
enum class ItemType { kTree, kJson, kProto, kFiles };

// One save on its way.
//
// Thread-safe; copies are the same save. Dropping the last handle neither waits
// nor cancels: the store finishes its saves, and a failure nobody saw is
// returned by the next Begin(), Flush() or Close().
class CKPTREE_EXPORT SaveHandle {
 public:
  SaveHandle();  // Of no save: every wait is kFailedPrecondition.

  // Until the caller's memory is free again; says how the save stands then.
  // kDeadlineExceeded after `timeout` (the save goes on), kCancelled, or why it
  // failed.
  absl::Status WaitStaged(absl::Duration timeout);

  // Until the step is durable and visible. kUnknown: a write failed in such a
  // way that the step may or may not be there; close and open the store to
  // learn which.
  absl::Status WaitCommitted(absl::Duration timeout);

  // True once the caller's memory is free again, however the save ends; never
  // blocks, and a failure stays unseen.
  bool Staged() const;
  // True once committed, failed or cancelled; never blocks.
  bool Done() const;

  // Calls `callback` once with the result, from a thread of the store, or at
  // once where it is known. It must not wait for saves of this store.
  void OnCommitted(std::function<void(const absl::Status&)> callback);
  // The same without the result: a failure still counts as unseen.
  void OnDone(std::function<void()> callback);

  // Asks the save to stop. It still may be committed: once the commit is being
  // written, cancelling is too late. The handle's result says which.
  void Cancel();

  ckptree::Progress Progress() const;
  std::int64_t step() const;
  // Of the committed step; 0 before.
  std::uint64_t version() const;
  // Why the policy of the line was not applied by this save, though its step is
  // committed; OK where it was.
  absl::Status PolicyProblem() const;

 private:
  friend class CheckpointManager;
  friend class StepBuilder;
  // Until the arrays that were not lent are free, or the save is over.
  void WaitCopied();
  explicit SaveHandle(std::shared_ptr<internal::Save> save);
  std::shared_ptr<internal::Save> save_;
};

struct SaveOptions {
  // Take the row of an existing step; kFailedPrecondition where it is pinned.
  // Without it an existing step is kAlreadyExists.
  bool overwrite = false;
  // Save it whatever the policy of the line says. Without this, a step below
  // the newest of its line that the policy would not keep is
  // kFailedPrecondition.
  bool stays = false;
  // The later steps of the line are deleted in the commit of the save: a run
  // that goes on from an older step. kFailedPrecondition, with nothing changed,
  // where one of them is pinned or tagged.
  bool delete_later = false;
  // When it was, for policies and listings; nothing: now.
  std::optional<absl::Time> time = {};
  // The fork to save to; empty: the main line. kNotFound where there is none.
  std::string line = {};
};

// Collects what a step holds. Arrays are not read before Commit().
//
// Mistakes (a path twice, a shape that is no shape, a limit) are kept and come
// out of status() and the handle; nothing is saved then.
//
// A path is given as its text form ("params/dense/kernel", see ckptree/path.h)
// or as a Path. Confined to one thread.
class CKPTREE_EXPORT StepBuilder {
 public:
  StepBuilder(StepBuilder&&) noexcept;
  StepBuilder& operator=(StepBuilder&&) noexcept;
  StepBuilder(const StepBuilder&) = delete;
  StepBuilder& operator=(const StepBuilder&) = delete;
  ~StepBuilder();  // Without Commit(): nothing happens.

  StepBuilder& Put(const Path& path, Tensor tensor,
                   Ownership ownership = Ownership::kCopy);
  StepBuilder& PutBool(const Path& path, bool value);
  StepBuilder& PutInt(const Path& path, std::int64_t value);
  StepBuilder& PutFloat(const Path& path, double value);
  StepBuilder& PutComplex(const Path& path, double real, double imaginary);
  StepBuilder& PutString(const Path& path, std::string utf8);
  StepBuilder& PutBytes(const Path& path, std::string bytes);
  StepBuilder& PutJson(const Path& path, std::string json);
  StepBuilder& PutProto(const Path& path, std::string message_name,
                        std::string serialised);
  StepBuilder& PutFile(const Path& path, std::string content);
  // A node that is empty or no plain dict, list or object; `tag` as in
  // schema/tree.h.
  StepBuilder& PutNode(const Path& path, NodeType type, std::string tag = "");
  // `path` has the value of the leaf `target`, which must be in this step.
  StepBuilder& Tie(const Path& path, const Path& target);

  StepBuilder& Put(std::string_view path, Tensor tensor,
                   Ownership ownership = Ownership::kCopy);
  StepBuilder& PutBool(std::string_view path, bool value);
  StepBuilder& PutInt(std::string_view path, std::int64_t value);
  StepBuilder& PutFloat(std::string_view path, double value);
  StepBuilder& PutString(std::string_view path, std::string utf8);
  StepBuilder& PutBytes(std::string_view path, std::string bytes);
  StepBuilder& PutJson(std::string_view path, std::string json);
  StepBuilder& PutNode(std::string_view path, NodeType type,
                       std::string tag = "");
  StepBuilder& Tie(std::string_view path, std::string_view target);

  // What kind of item the top-level subtree `name` is; kTree when not said.
  StepBuilder& SetItemType(std::string_view name, ItemType type);
  // NaN is stored, and never is a best value.
  StepBuilder& SetMetric(std::string_view name, double value);
  StepBuilder& SetCustomMetadata(std::string json);
  StepBuilder& SetNote(std::string_view text);
  // One more line of where the step comes from, at most 1 MiB of UTF-8; in the
  // place of the engine's (host, pid, command, directory) where it has the
  // name.
  StepBuilder& SetLineage(std::string_view name, std::string text);

  // The first mistake so far.
  absl::Status status() const;

  // Starts the save and returns when the arrays that were not lent (kCopy) are
  // copied, or were read by the save because the staging pool is full: they may
  // be changed at once. Saves of a store are committed in the order of their
  // Begin(). Not to be called by a callback of the store.
  [[nodiscard]] SaveHandle Commit() &&;
  // The same without waiting: no array may be changed before
  // SaveHandle::WaitStaged().
  [[nodiscard]] SaveHandle Submit() &&;

 private:
  friend class Store;
  friend struct internal::StepOriginPeer;
  struct CKPTREE_LOCAL Impl;
  explicit StepBuilder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptree

#endif  // CKPTREE_STEP_H_
