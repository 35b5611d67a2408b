// SPDX-License-Identifier: Apache-2.0

// The public face of a save: StepBuilder and SaveHandle.

#include "ckptree/save.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/step_builder.h"
#include "core/process/guarded_call.h"
#include "core/save/box_cover.h"
#include "core/save/rounded_pairs.h"
#include "core/save/save.h"
#include "core/save/step_content.h"

namespace ckptree {

using internal::Save;

// ---- SaveHandle ----

SaveHandle::SaveHandle() = default;
SaveHandle::SaveHandle(std::shared_ptr<Save> save)
    : save_(Save::ForHandle(std::move(save))) {}

namespace {

std::optional<schema::ItemKind> KindOf(ItemType type) {
  switch (type) {
    case ItemType::kTree:
      return schema::ItemKind::kTree;
    case ItemType::kJson:
      return schema::ItemKind::kJson;
    case ItemType::kProto:
      return schema::ItemKind::kProto;
    case ItemType::kFiles:
      return schema::ItemKind::kFiles;
  }
  return std::nullopt;
}

// What Commit() copies by itself, which takes some 100 us at most.
constexpr std::uint64_t kFewBytes = 1 << 20;

absl::Status NoSave() {
  return absl::FailedPreconditionError("this handle is of no save");
}

// In a forked child a save has neither threads nor an end.
bool IsOver(const std::shared_ptr<Save>& save) {
  return save == nullptr || !save->mark.Holds();
}

absl::Status Over(const std::shared_ptr<Save>& save) {
  return save == nullptr ? NoSave() : save->mark.Check();
}

}  // namespace

absl::Status SaveHandle::WaitStaged(absl::Duration timeout) {
  return IsOver(save_) ? Over(save_) : save_->WaitStaged(timeout);
}

bool SaveHandle::WaitStagedOrDone(absl::Duration timeout) const {
  return IsOver(save_) || save_->WaitStagedOrDone(timeout);
}

void SaveHandle::WaitCopied() {
  if (!IsOver(save_)) save_->WaitCopied();
}

absl::Status SaveHandle::WaitCommitted(absl::Duration timeout) {
  return IsOver(save_) ? Over(save_) : save_->WaitCommitted(timeout);
}

bool SaveHandle::Staged() const { return IsOver(save_) || save_->Staged(); }

bool SaveHandle::Done() const { return IsOver(save_) || save_->Done(); }

void SaveHandle::OnCommitted(
    std::function<void(const absl::Status&)> callback) {
  if (callback == nullptr) return;
  if (IsOver(save_)) {
    internal::GuardedCall("OnCommitted", [&] {
      callback(Over(save_));
    }).IgnoreError();
  } else {
    save_->OnCommitted(std::move(callback));
  }
}

void SaveHandle::OnDone(std::function<void()> callback) {
  if (callback == nullptr) return;
  if (IsOver(save_)) {
    internal::GuardedCall("OnDone", callback).IgnoreError();
  } else {
    save_->OnDone(std::move(callback));
  }
}

void SaveHandle::Cancel() {
  if (!IsOver(save_)) save_->Cancel();
}

ckptree::Progress SaveHandle::Progress() const {
  return IsOver(save_) ? ckptree::Progress() : save_->Progress();
}

std::int64_t SaveHandle::step() const {
  return save_ == nullptr ? 0 : save_->step;
}

std::uint64_t SaveHandle::version() const {
  return IsOver(save_) ? 0 : save_->version();
}

absl::Status SaveHandle::PolicyProblem() const {
  if (save_ == nullptr) return absl::OkStatus();
  return IsOver(save_) ? Over(save_) : save_->PolicyProblem();
}

// ---- StepBuilder ----

StepBuilder::StepBuilder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepBuilder::StepBuilder(StepBuilder&&) noexcept = default;

StepBuilder& StepBuilder::operator=(StepBuilder&&) noexcept = default;
StepBuilder::~StepBuilder() = default;

StepBuilder::Impl& StepBuilder::impl() const {
  base::Require(impl_ != nullptr,
                "ckptree::StepBuilder was used after Commit(), Submit() or a "
                "move; begin another step");
  return *impl_;
}

StepBuilder& StepBuilder::Put(PathRef path, Tensor tensor,
                              Ownership ownership) {
  impl().AddAt(path, [&](const Path& at) {
    return impl_->content.AddTensor(at, std::move(tensor), ownership);
  });
  return *this;
}

StepBuilder& StepBuilder::PutBool(PathRef path, bool value) {
  impl().AddValue(path, EntryKind::kBool, std::string(1, value ? 1 : 0));
  return *this;
}

StepBuilder& StepBuilder::PutInt(PathRef path, std::int64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  impl().AddValue(path, EntryKind::kInt, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutFloat(PathRef path, double value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  impl().AddValue(path, EntryKind::kFloat, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutComplex(PathRef path, double real,
                                     double imaginary) {
  std::string bytes(2 * sizeof(double), '\0');
  std::memcpy(bytes.data(), &real, sizeof(double));
  std::memcpy(bytes.data() + sizeof(double), &imaginary, sizeof(double));
  impl().AddValue(path, EntryKind::kComplex, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutString(PathRef path, std::string utf8) {
  impl().AddValue(path, EntryKind::kStr, std::move(utf8));
  return *this;
}

StepBuilder& StepBuilder::PutBytes(PathRef path, std::string bytes) {
  impl().AddValue(path, EntryKind::kBytes, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutJson(PathRef path, std::string json) {
  impl().AddValue(path, EntryKind::kJson, std::move(json));
  return *this;
}

StepBuilder& StepBuilder::PutProto(PathRef path, std::string message_name,
                                   std::string serialised) {
  impl().AddValue(path, EntryKind::kProto, std::move(serialised),
                  std::move(message_name));
  return *this;
}

StepBuilder& StepBuilder::PutFile(PathRef path, std::string content) {
  impl().AddValue(path, EntryKind::kFile, std::move(content));
  return *this;
}

StepBuilder& StepBuilder::PutNode(PathRef path, EntryKind kind,
                                  std::string tag) {
  impl().AddAt(path, [&](const Path& at) -> absl::Status {
    if (IsLeaf(kind) || kind == EntryKind::kTie || Name(kind) == "unknown") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: PutNode() adds nodes, and \"%s\" (%d) is not the kind of a node",
          at.Text(), Name(kind), static_cast<int>(kind)));
    }
    return impl_->content.AddNode(at, kind, std::move(tag));
  });
  return *this;
}

StepBuilder& StepBuilder::Tie(PathRef path, PathRef target) {
  impl().AddAt(path, [&](const Path& at) -> absl::Status {
    std::optional<Path> parsed;
    CKPTREE_ASSIGN_OR_RETURN(const Path* const to, target.Get(&parsed));
    return impl_->content.AddTie(at, *to);
  });
  return *this;
}

StepBuilder& StepBuilder::SetPerRank(PathRef subtree) {
  impl().AddAt(subtree, [&](const Path& at) {
    impl_->content.SetPerRank(at);
    return absl::OkStatus();
  });
  return *this;
}

StepBuilder& StepBuilder::SetItemType(std::string_view name, ItemType type) {
  impl().Add([&]() -> absl::Status {
    const std::optional<schema::ItemKind> kind = KindOf(type);
    if (!kind.has_value()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %d is not an ItemType", name, static_cast<int>(type)));
    }
    return impl_->content.SetItem(name, *kind);
  });
  return *this;
}

StepBuilder& StepBuilder::SetMetric(std::string_view name, double value) {
  impl().Add([&] { return impl_->content.SetMetric(name, value); });
  return *this;
}

StepBuilder& StepBuilder::SetCustomMetadata(std::string json) {
  impl().Add([&] { return impl_->content.SetCustomMetadata(std::move(json)); });
  return *this;
}

StepBuilder& StepBuilder::SetNote(std::string_view text) {
  impl().Add([&] { return impl_->content.SetNote(text); });
  return *this;
}

StepBuilder& StepBuilder::SetLineage(std::string_view name, std::string text) {
  impl().Add([&] { return impl_->content.SetLineage(name, std::move(text)); });
  return *this;
}

StepBuilder& StepBuilder::Fail(const absl::Status& why) {
  impl().Add([&] {
    return why.ok() ? absl::InvalidArgumentError("Fail() was given no error")
                    : why;
  });
  return *this;
}

absl::Status StepBuilder::status() const {
  impl().untold = nullptr;
  return impl_->status;
}

SaveHandle StepBuilder::Commit() {
  SaveHandle handle = Submit();
  handle.WaitCopied();
  return handle;
}

SaveHandle StepBuilder::Submit() {
  this->impl();  // Ends the program where there is none.
  const std::unique_ptr<Impl> impl = std::move(impl_);
  // That of an earlier save, which the handle may tell.
  const bool untold = std::exchange(impl->untold, nullptr) != nullptr;
  const std::shared_ptr<internal::SaveSink> sink = std::move(impl->sink);
  std::shared_ptr<Save> save = impl->save;
  absl::Status status = impl->status;
  if (status.ok() && impl->plan.has_value()) {
    status = absl::FailedPreconditionError(
        "it is a rank's part of the step: FinishPart() builds it");
  }
  if (status.ok()) {
    status = internal::GuardedStatus("putting the step together",
                                     [&] { return impl->Prepare(); });
  }
  // There is no save where Begin() failed.
  if (save == nullptr) {
    save =
        std::make_shared<Save>(internal::BranchId(), impl->step, SaveOptions());
  }
  SaveHandle handle(save);
  internal::SaveSink* const to =
      sink != nullptr ? sink.get() : impl->engine->writer();
  if (status.ok()) {
    status = internal::GuardedStatus("Submit", [&]() -> absl::Status {
      if (to->Submit(save)) return absl::OkStatus();
      return absl::FailedPreconditionError(
          absl::StrFormat("store %s was closed", impl->engine->directory()));
    });
  }
  if (status.ok()) return handle;
  // Nobody has the handle yet, and so no callback is set.
  const std::string whose =
      sink == nullptr ? "" : absl::StrFormat("rank %d: ", impl->content.rank());
  save->Finish(
          absl::Status(status.code(), absl::StrCat("step ", impl->step,
                                                   " was not saved: ", whose,
                                                   status.message())),
          0)
      .IgnoreError();
  // A failure that Begin() passed on, and status() told, is not one more, but
  // among ranks the others are to hear of it.
  if (sink != nullptr) {
    sink->Fail(save, status);
  } else if ((untold || !impl->passed_on) &&
             impl->engine->CheckWritable().ok()) {
    impl->engine->writer()->Fail(save, status);
  }
  return handle;
}

absl::Status StepBuilder::Impl::Prepare() {
  // A rank reads the store. The boxes of all ranks together make an array.
  const bool of_rank = content.of_rank();
  CKPTREE_RETURN_IF_ERROR(of_rank ? engine->CheckUsable()
                                  : engine->CheckWritable());
  const bool as_stored = content.as_stored();
  CKPTREE_ASSIGN_OR_RETURN(internal::StepContent finished,
                           std::move(content).Finish());
  if (!as_stored && !of_rank) {
    CKPTREE_RETURN_IF_ERROR(internal::CheckCovered(finished));
  }
  if (engine->coding().may_code()) {
    internal::PairRoundedCopies(engine->options().chunk_bytes, &finished);
  }
  save->bytes_total = finished.bytes;
  save->leaves_total = finished.leaves.size();
  save->metrics = finished.metrics;
  Save* const raw = save.get();  // The save owns what calls this.
  save->content = std::make_shared<internal::StagedContent>(
      std::move(finished), engine->options().chunk_bytes, &engine->pool(),
      [raw] { raw->SetStaged(); }, [raw] { raw->SetCopied(); });
  CKPTREE_RETURN_IF_ERROR(save->content->StageInline());
  return internal::GuardedStatus("staging", [&] {
    save->content->StageFew(kFewBytes);
    return absl::OkStatus();
  });
}

}  // namespace ckptree
