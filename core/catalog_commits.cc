// The commits that change which steps there are and what they are called.

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/engine.h"
#include "kv/status_macros.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/utf8.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// Rows of `records` that must stay as they are until the commit.
absl::StatusOr<kv::Precondition> Unchanged(const kv::Database& database,
                                           std::string key) {
  CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> row,
                           database.Get(Space::kRecords, key));
  return kv::Precondition{Space::kRecords, std::move(key), std::move(row)};
}

absl::Status CheckTagName(std::string_view name) {
  if (name.empty() ||
      static_cast<std::int64_t>(name.size()) > schema::kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a tag's name has 1 to %d bytes", schema::kMaxNameBytes));
  }
  if (!schema::IsUtf8(name)) {
    return absl::InvalidArgumentError("a tag's name is UTF-8");
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x21 || byte == 0x7f || c == '@' || c == ':' || c == '~') {
      return absl::InvalidArgumentError(
          "a tag's name has no spaces, control characters, '@', ':' or '~'");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Engine::Commit(kv::CommitRequest request) {
  const kv::CommitResult result = database_->Commit(std::move(request));
  switch (result.outcome) {
    case kv::Outcome::kCommitted:
      return absl::OkStatus();
    case kv::Outcome::kConflict:
      return absl::AbortedError(
          absl::StrFormat("the store changed meanwhile (%s); try again",
                          result.status.message()));
    case kv::Outcome::kUnknown:
      return absl::UnknownError(absl::StrFormat(
          "a write failed in mid-commit (%s): the change may or may not be "
          "there; close the store and open it to learn which",
          result.status.message()));
    case kv::Outcome::kFenced:
    case kv::Outcome::kFailed:
      break;
  }
  return result.status;
}

absl::Status Engine::Delete(std::int64_t step) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&commit_mu_);
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record,
                           catalog_.Resolve(AtStep(step)));
  if (catalog_.IsPinned(record->version)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("step %d is pinned; unpin it first", step));
  }
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kDelete;
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Precondition row,
      Unchanged(*database_, schema::StepKey(kMainLine, step)));
  if (!row.expected.has_value()) {
    return absl::NotFoundError(absl::StrFormat("no step %d", step));
  }
  // The row moves: the next save is compared with this version if it is the
  // tip, and the collector needs to know what it was.
  request.batch.Put(Space::kRecords, schema::RemovedKey(record->version),
                    *row.expected);
  request.batch.Delete(Space::kRecords, row.key);
  for (const std::string& tag : catalog_.TagsOf(record->version)) {
    request.batch.Delete(Space::kRecords, schema::TagKey(tag));
  }
  request.preconditions.push_back(std::move(row));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  catalog_.EraseStep(step);
  keeper_.Removed(record->version);
  collector_->Notify();
  return absl::OkStatus();
}

absl::Status Engine::Tag(std::string_view name, std::int64_t step, bool move) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  CKPTREE_RETURN_IF_ERROR(CheckTagName(name));
  absl::MutexLock commit_lock(&commit_mu_);
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record,
                           catalog_.Resolve(AtStep(step)));
  if (const auto old = catalog_.FindTag(name); old.has_value()) {
    if (old->version == record->version) return absl::OkStatus();
    if (!move) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "tag '%s' names step %d; ask to move it", name, old->step));
    }
  }
  schema::TagRecord tag;
  tag.line = kMainLine;
  tag.step = step;
  tag.version = record->version;
  tag.created_ns = absl::GetCurrentTimeNanos();
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kTag;
  request.batch.Put(Space::kRecords, schema::TagKey(name),
                    schema::EncodeTagRecord(tag));
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Precondition row,
      Unchanged(*database_, schema::StepKey(kMainLine, step)));
  request.preconditions.push_back(std::move(row));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  catalog_.PutTag(std::string(name), tag);
  return absl::OkStatus();
}

absl::Status Engine::Untag(std::string_view name) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&commit_mu_);
  if (!catalog_.FindTag(name).has_value()) {
    return absl::NotFoundError(absl::StrFormat("no tag '%s'", name));
  }
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kTag;
  request.batch.Delete(Space::kRecords, schema::TagKey(name));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  catalog_.EraseTag(name);
  return absl::OkStatus();
}

absl::Status Engine::Pin(std::int64_t step, bool pinned) {
  CKPTREE_RETURN_IF_ERROR(CheckWritable());
  absl::MutexLock commit_lock(&commit_mu_);
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record,
                           catalog_.Resolve(AtStep(step)));
  if (catalog_.IsPinned(record->version) == pinned) return absl::OkStatus();
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kPin;
  std::string key = schema::PinKey(record->version);
  if (pinned) {
    schema::PinRecord pin;
    pin.line = kMainLine;
    pin.step = step;
    pin.created_ns = absl::GetCurrentTimeNanos();
    request.batch.Put(Space::kRecords, std::move(key),
                      schema::EncodePinRecord(pin));
  } else {
    request.batch.Delete(Space::kRecords, std::move(key));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Precondition row,
      Unchanged(*database_, schema::StepKey(kMainLine, step)));
  request.preconditions.push_back(std::move(row));
  CKPTREE_RETURN_IF_ERROR(Commit(std::move(request)));
  if (pinned) {
    catalog_.PutPin(record->version);
  } else {
    catalog_.ErasePin(record->version);
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
