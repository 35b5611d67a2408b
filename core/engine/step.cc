// SPDX-License-Identifier: Apache-2.0

// The public face of a save: StepBuilder and SaveHandle.

#include "ckptree/step.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/step_builder.h"
#include "core/save/save.h"
#include "core/save/step_content.h"

namespace ckptree {

using internal::Save;
using schema::EntryKind;

// ---- SaveHandle ----

SaveHandle::SaveHandle() = default;
SaveHandle::SaveHandle(std::shared_ptr<Save> save) : save_(std::move(save)) {}

namespace {

EntryKind KindOf(NodeType type) {
  switch (type) {
    case NodeType::kNone:
      return EntryKind::kNone;
    case NodeType::kDict:
      return EntryKind::kDict;
    case NodeType::kList:
      return EntryKind::kList;
    case NodeType::kTuple:
      return EntryKind::kTuple;
    case NodeType::kNamedTuple:
      return EntryKind::kNamedTuple;
    case NodeType::kObject:
      return EntryKind::kObject;
    case NodeType::kCustom:
      return EntryKind::kCustom;
  }
  return EntryKind::kNone;
}

schema::ItemKind KindOf(ItemType type) {
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
  return schema::ItemKind::kTree;
}

absl::Status NoSave() {
  return absl::FailedPreconditionError("this handle is of no save");
}

}  // namespace

absl::Status SaveHandle::WaitStaged(absl::Duration timeout) {
  return save_ == nullptr ? NoSave() : save_->WaitStaged(timeout);
}

void SaveHandle::WaitCopied() {
  if (save_ != nullptr) save_->WaitCopied();
}

absl::Status SaveHandle::WaitCommitted(absl::Duration timeout) {
  return save_ == nullptr ? NoSave() : save_->WaitCommitted(timeout);
}

bool SaveHandle::Staged() const { return save_ == nullptr || save_->Staged(); }

bool SaveHandle::Done() const { return save_ == nullptr || save_->Done(); }

void SaveHandle::OnCommitted(
    std::function<void(const absl::Status&)> callback) {
  if (save_ == nullptr) {
    callback(NoSave());
  } else {
    save_->OnCommitted(std::move(callback));
  }
}

void SaveHandle::OnDone(std::function<void()> callback) {
  if (save_ == nullptr) {
    callback();
  } else {
    save_->OnDone(std::move(callback));
  }
}

void SaveHandle::Cancel() {
  if (save_ != nullptr) save_->Cancel();
}

ckptree::Progress SaveHandle::Progress() const {
  return save_ == nullptr ? ckptree::Progress() : save_->Progress();
}

std::int64_t SaveHandle::step() const {
  return save_ == nullptr ? 0 : save_->step;
}

std::uint64_t SaveHandle::version() const {
  return save_ == nullptr ? 0 : save_->version();
}

absl::Status SaveHandle::PolicyProblem() const {
  return save_ == nullptr ? absl::OkStatus() : save_->PolicyProblem();
}

// ---- StepBuilder ----

StepBuilder::StepBuilder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepBuilder::StepBuilder(StepBuilder&&) noexcept = default;

StepBuilder& StepBuilder::operator=(StepBuilder&& other) noexcept {
  if (impl_ != nullptr) impl_->Discard();
  impl_ = std::move(other.impl_);
  return *this;
}

StepBuilder::~StepBuilder() {
  if (impl_ != nullptr) impl_->Discard();
}

void StepBuilder::Impl::Discard() {
  if (save != nullptr && !engine->forked()) engine->writer()->Drop(save);
  save.reset();
}

StepBuilder& StepBuilder::Put(const Path& path, Tensor tensor,
                              Ownership ownership) {
  impl_->Add([&] {
    return impl_->content.AddTensor(path, std::move(tensor), ownership);
  });
  return *this;
}

StepBuilder& StepBuilder::PutBool(const Path& path, bool value) {
  impl_->AddValue(path, EntryKind::kBool, std::string(1, value ? 1 : 0));
  return *this;
}

StepBuilder& StepBuilder::PutInt(const Path& path, std::int64_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  impl_->AddValue(path, EntryKind::kInt, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutFloat(const Path& path, double value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  impl_->AddValue(path, EntryKind::kFloat, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutComplex(const Path& path, double real,
                                     double imaginary) {
  std::string bytes(2 * sizeof(double), '\0');
  std::memcpy(bytes.data(), &real, sizeof(double));
  std::memcpy(bytes.data() + sizeof(double), &imaginary, sizeof(double));
  impl_->AddValue(path, EntryKind::kComplex, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutString(const Path& path, std::string utf8) {
  impl_->AddValue(path, EntryKind::kStr, std::move(utf8));
  return *this;
}

StepBuilder& StepBuilder::PutBytes(const Path& path, std::string bytes) {
  impl_->AddValue(path, EntryKind::kBytes, std::move(bytes));
  return *this;
}

StepBuilder& StepBuilder::PutJson(const Path& path, std::string json) {
  impl_->AddValue(path, EntryKind::kJson, std::move(json));
  return *this;
}

StepBuilder& StepBuilder::PutProto(const Path& path, std::string message_name,
                                   std::string serialised) {
  impl_->AddValue(path, EntryKind::kProto, std::move(serialised),
                  std::move(message_name));
  return *this;
}

StepBuilder& StepBuilder::PutFile(const Path& path, std::string content) {
  impl_->AddValue(path, EntryKind::kFile, std::move(content));
  return *this;
}

StepBuilder& StepBuilder::PutNode(const Path& path, NodeType type,
                                  std::string tag) {
  impl_->Add([&] {
    return impl_->content.AddNode(path, KindOf(type), std::move(tag));
  });
  return *this;
}

StepBuilder& StepBuilder::Tie(const Path& path, const Path& target) {
  impl_->Add([&] { return impl_->content.AddTie(path, target); });
  return *this;
}

StepBuilder& StepBuilder::Put(std::string_view path, Tensor tensor,
                              Ownership ownership) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : Put(*parsed, std::move(tensor), ownership);
}

StepBuilder& StepBuilder::PutBool(std::string_view path, bool value) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutBool(*parsed, value);
}

StepBuilder& StepBuilder::PutInt(std::string_view path, std::int64_t value) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutInt(*parsed, value);
}

StepBuilder& StepBuilder::PutFloat(std::string_view path, double value) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutFloat(*parsed, value);
}

StepBuilder& StepBuilder::PutString(std::string_view path, std::string utf8) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutString(*parsed, std::move(utf8));
}

StepBuilder& StepBuilder::PutBytes(std::string_view path, std::string bytes) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutBytes(*parsed, std::move(bytes));
}

StepBuilder& StepBuilder::PutJson(std::string_view path, std::string json) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutJson(*parsed, std::move(json));
}

StepBuilder& StepBuilder::PutNode(std::string_view path, NodeType type,
                                  std::string tag) {
  const Path* parsed = impl_->Parse(path);
  return parsed == nullptr ? *this : PutNode(*parsed, type, std::move(tag));
}

StepBuilder& StepBuilder::Tie(std::string_view path, std::string_view target) {
  const Path* parsed = impl_->Parse(path);
  if (parsed == nullptr) return *this;
  const Path from = *parsed;
  const Path* to = impl_->Parse(target);
  return to == nullptr ? *this : Tie(from, *to);
}

StepBuilder& StepBuilder::SetItemType(std::string_view name, ItemType type) {
  impl_->Add([&] { return impl_->content.SetItem(name, KindOf(type)); });
  return *this;
}

StepBuilder& StepBuilder::SetMetric(std::string_view name, double value) {
  impl_->Add([&] { return impl_->content.SetMetric(name, value); });
  return *this;
}

StepBuilder& StepBuilder::SetCustomMetadata(std::string json) {
  impl_->Add([&] { return impl_->content.SetCustomMetadata(std::move(json)); });
  return *this;
}

StepBuilder& StepBuilder::SetNote(std::string_view text) {
  impl_->Add([&] { return impl_->content.SetNote(text); });
  return *this;
}

StepBuilder& StepBuilder::SetLineage(std::string_view name, std::string text) {
  impl_->Add([&] { return impl_->content.SetLineage(name, std::move(text)); });
  return *this;
}

absl::Status StepBuilder::status() const {
  return impl_ == nullptr
             ? absl::FailedPreconditionError("this step was committed already")
             : impl_->status;
}

SaveHandle StepBuilder::Commit() && {
  SaveHandle handle = std::move(*this).Submit();
  handle.WaitCopied();
  return handle;
}

SaveHandle StepBuilder::Submit() && {
  const std::unique_ptr<Impl> impl = std::move(impl_);
  if (impl == nullptr) return SaveHandle();
  std::shared_ptr<Save> save = impl->save;
  absl::Status status = impl->status;
  if (status.ok()) status = impl->Prepare();
  if (status.ok() && !impl->engine->writer()->Submit(save)) {
    status = absl::FailedPreconditionError(
        absl::StrFormat("store %s was closed", impl->engine->directory()));
  }
  if (status.ok()) {
    impl->save.reset();
    return SaveHandle(std::move(save));
  }
  impl->Discard();
  // There is no ticket where Begin() failed.
  if (save == nullptr)
    save = std::make_shared<Save>(0, 0, impl->step, SaveOptions(), 0);
  // Nobody has the handle yet, and so no callback is set.
  save->Finish(absl::Status(status.code(),
                            absl::StrFormat("step %d was not saved: %s",
                                            impl->step, status.message())),
               0)
      .IgnoreError();
  // A failure that Begin() passed on is not one more.
  if (!impl->passed_on && impl->engine->CheckWritable().ok()) {
    impl->engine->writer()->Fail(save);
  }
  return SaveHandle(std::move(save));
}

absl::Status StepBuilder::Impl::Prepare() {
  CKPTREE_RETURN_IF_ERROR(engine->CheckWritable());
  const bool as_stored = content.as_stored();
  CKPTREE_ASSIGN_OR_RETURN(internal::StepContent finished,
                           std::move(content).Finish());
  if (!as_stored) CKPTREE_RETURN_IF_ERROR(internal::CheckCovered(finished));
  save->bytes_total = finished.bytes;
  save->leaves_total = finished.leaves.size();
  Save* const raw = save.get();  // The save owns what calls this.
  save->content = std::make_shared<internal::StagedContent>(
      std::move(finished), engine->options().chunk_bytes, &engine->pool(),
      [raw] { raw->SetStaged(); }, [raw] { raw->SetCopied(); });
  return save->content->StageInline();
}

}  // namespace ckptree
