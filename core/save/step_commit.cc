// SPDX-License-Identifier: Apache-2.0

// What the commit of a save writes: step 6 of the protocol in step_writer.h.

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "core/save/step_writer.h"
#include "core/version/base_loader.h"
#include "core/version/step_removal.h"
#include "schema/keys.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

// Tree pages beyond this go ahead of the commit batch.
constexpr std::size_t kTreeBatchBytes = 8 << 20;

// Rows of steps that the policy removes, beyond this, wait for the next save.
constexpr std::size_t kRemovedBytes = 3 << 20;

// Of one removed step: its row, what goes, what must still be so.
constexpr std::size_t kRowBytes = 16 << 10;

}  // namespace

bool StepWriter::IsTreeOfBase(const PartResult& part) const {
  const auto base = tip_.table.find(part.record.part);
  return base != tip_.table.end() && base->second.tree == part.tree->digest;
}

absl::Status StepWriter::AddTree(const PartResult& part,
                                 kv::CommitRequest* request) {
  if (IsTreeOfBase(part)) return absl::OkStatus();
  using schema::Space;
  const std::string root_key = schema::TreeKey(part.tree->digest);
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> known,
                           context_.database->Get(Space::kRecords, root_key));
  if (known.has_value()) return absl::OkStatus();
  std::size_t bytes = 0;
  for (const auto& [digest, page] : part.tree->pages) bytes += page.size();
  kv::WriteBatch ahead;
  for (const auto& [digest, page] : part.tree->pages) {
    kv::WriteBatch& batch = bytes > kTreeBatchBytes ? ahead : request->batch;
    batch.Put(Space::kRecords, schema::TreePageKey(digest), page);
    if (ahead.bytes() > kTreeBatchBytes) {
      request->before.push_back(std::exchange(ahead, {}));
    }
  }
  if (!ahead.empty()) request->before.push_back(std::move(ahead));
  request->batch.Put(Space::kRecords, root_key, part.tree->root);
  return absl::OkStatus();
}

absl::StatusOr<kv::CommitRequest> StepWriter::BuildCommit(
    const Save& save, Attempt* attempt,
    const std::shared_ptr<schema::StepRecord>& record) {
  using schema::Space;
  const StepContent& content = save.content->content();
  kv::CommitRequest request;
  request.kind = kv::CommitKind::kSave;
  request.version = attempt->version;
  kv::WriteBatch& batch = request.batch;

  // First: by its number all else would be asked of another branch. Once: what
  // the commit is refused by is the row that was looked at.
  std::string branch_row;
  CKPTREE_ASSIGN_OR_RETURN(schema::BranchRecord branch,
                           BranchOf(save, &branch_row));
  record->version = attempt->version;
  const bool compared =
      std::any_of(attempt->parts.begin(), attempt->parts.end(),
                  [](const PartResult& part) { return !part.whole; });
  record->base = tip_.table.empty() || !compared ? 0 : tip_.version;
  record->branch = save.branch;
  record->step = save.step;
  record->begun_ns = save.begun_ns;
  record->staged_ns = save.staged_ns();
  record->committed_ns = absl::GetCurrentTimeNanos();
  record->metrics = content.metrics;
  record->saved_by = std::string(Version());
  record->note = content.note;
  schema::StepMeta meta;
  meta.items = content.items;
  meta.custom_metadata = content.custom_metadata;
  meta.lineage = lineage_;
  for (const auto& line : content.lineage) {
    std::erase_if(meta.lineage, [&line](const auto& ours) {
      return ours.first == line.first;
    });
    meta.lineage.push_back(line);
  }
  if (save.origin.has_value()) {
    record->begun_ns = save.origin->begun_ns;
    record->staged_ns = save.origin->staged_ns;
    record->committed_ns = save.origin->committed_ns;
    meta.lineage = save.origin->lineage;
  }

  schema::DeadList dead;
  dead.branch = save.branch;
  dead.prev = tip_.version;
  // From here on no sweep removes a tree that is found there; those of the base
  // stay with it.
  std::set<base::Digest> trees;
  for (const PartResult& part : attempt->parts) {
    if (IsTreeOfBase(part)) continue;
    trees.insert(part.tree->digest);
    for (const auto& [digest, page] : part.tree->pages) trees.insert(digest);
  }
  if (!trees.empty()) context_.keeper->HoldTrees(std::move(trees));
  std::vector<base::Digest> digests;
  for (PartResult& part : attempt->parts) {
    CKPTREE_RETURN_IF_ERROR(AddTree(part, &request));
    for (const BuiltSegment& segment : part.segments) {
      batch.Put(Space::kRecords, segment.row_key, segment.row_value);
    }
    // It may be a MiB: not copied.
    for (auto& [key, value] : part.small) {
      const auto fields = schema::DecodeSmallKey(key);
      if (fields.has_value() && fields->kind == schema::BlockKind::kChunk) {
        batch.PutBlock(std::move(key), std::move(value));
      } else {
        batch.Put(Space::kSmall, std::move(key), std::move(value));
      }
    }
    part.small.clear();
    if (!part.dead.empty()) {
      dead.parts.push_back({part.record.part, part.dead});
    }
    record->parts.push_back(part.record);
    record->leaf_count += part.leaf_count;
    record->changed_leaves += part.changed_leaves;
    record->logical_bytes += part.logical_bytes;
    record->new_bytes += part.new_bytes;
    record->nan_count += part.nan_count;
    record->inf_count += part.inf_count;
    record->nonfinite_leaves += part.nonfinite_leaves;
    record->unknown_leaves += part.unknown_leaves;
    digests.push_back(part.digest);
    if (part.origin.has_value()) meta.origins.push_back(*part.origin);
  }
  record->leaf_count += attempt->split.leaves;
  record->changed_leaves += attempt->split.changed;
  record->nonfinite_leaves += attempt->split.nonfinite;
  record->unknown_leaves += attempt->split.unknown;
  record->digest = StepDigest(digests);
  CKPTREE_RETURN_IF_ERROR(AddLostParts(*attempt, &dead));
  schema::PlaceParts(record.get(), &meta);
  CKPTREE_RETURN_IF_ERROR(schema::Validate(*record));
  CKPTREE_RETURN_IF_ERROR(schema::Validate(meta));

  // Overwriting: the old version loses its row, not its place in the chain.
  const std::string step_key = schema::StepKey(save.branch, save.step);
  kv::Precondition row{Space::kRecords, step_key, std::nullopt};
  if (const StepRecordPtr old =
          context_.catalog->Find(save.branch, save.step)) {
    CKPTREE_RETURN_IF_ERROR(
        MayOverwrite(*context_.catalog, *old, save.overwrite, save.tagged));
    attempt->replaced = old->version;
    CKPTREE_ASSIGN_OR_RETURN(row.expected,
                             context_.database->Get(Space::kRecords, step_key));
    if (row.expected.has_value()) {
      batch.Put(Space::kRecords, schema::RemovedKey(old->version),
                *row.expected);
    }
    request.preconditions.push_back(
        {Space::kRecords, schema::PinKey(old->version), std::nullopt});
    for (const std::string& tag : context_.catalog->TagsOf(old->version)) {
      batch.Delete(Space::kRecords, schema::TagKey(tag));
    }
  }
  CKPTREE_RETURN_IF_ERROR(AskPolicy(save, record, dead, attempt));
  batch.Put(Space::kRecords, step_key, schema::EncodeStepRecord(*record));
  batch.Put(Space::kRecords, schema::StepMetaKey(attempt->version),
            schema::EncodeStepMeta(meta));
  batch.Put(Space::kRecords, schema::DeadKey(attempt->version),
            schema::EncodeDeadList(dead));
  // Refused unless the base still is the tip.
  std::string branch_key = schema::BranchKey(save.branch);
  if (branch.tip != tip_.version) {
    return absl::AbortedError("another save was committed to its branch");
  }
  branch.tip = attempt->version;
  batch.Put(Space::kRecords, branch_key, schema::EncodeBranchRecord(branch));
  request.preconditions.push_back(
      {Space::kRecords, std::move(branch_key), std::move(branch_row)});
  request.preconditions.push_back(std::move(row));
  RemoveByPolicy(attempt, &request);
  CKPTREE_RETURN_IF_ERROR(RemoveLater(save, attempt, &request));
  if (static_cast<std::int64_t>(batch.bytes()) > schema::kMaxBatchBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "its commit has %d bytes, at most %d are possible%s", batch.bytes(),
        schema::kMaxBatchBytes,
        save.delete_later ? "; delete the later steps before the save" : ""));
  }
  return request;
}

// Whatever is wrong with the policy, the step is saved. What the policy would
// remove with the next save is not acknowledged.
absl::Status StepWriter::AskPolicy(const Save& save,
                                   const StepRecordPtr& record,
                                   const schema::DeadList& dead,
                                   Attempt* attempt) const {
  const auto head = [&]() -> absl::StatusOr<PriceHead> {
    PriceHead newest = {attempt->version, dead, {}};
    for (const PartResult& part : attempt->parts) {
      if (part.next == nullptr) {
        // Another process built it: at most its values are new.
        newest.bytes[attempt->version] += part.logical_bytes;
        continue;
      }
      for (const schema::Block& block : BlocksOfPart(*part.next)) {
        newest.bytes[block.version] += block.bytes;
      }
    }
    return newest;
  };
  absl::StatusOr<Retention::Verdict> verdict = context_.retention->Decide(
      record, save.ignore_policy, save.delete_later, head);
  if (!verdict.ok()) {
    attempt->policy_problem = verdict.status();
    return absl::OkStatus();
  }
  attempt->verdict = *std::move(verdict);
  if (attempt->verdict.keeps_new) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "there are later steps, up to %d, and beside them the policy '%s' does "
      "not keep it: to go on from an older step delete those after it "
      "(delete_after), or save to a fork of it (fork)",
      context_.catalog->Steps(save.branch).back()->step,
      context_.retention->Of(save.branch).text));
}

// As many as there is room for: the others wait for the next save, and so does
// what cannot be removed.
void StepWriter::RemoveByPolicy(Attempt* attempt,
                                kv::CommitRequest* request) const {
  std::vector<StepRecordPtr>& removed = attempt->verdict.removed;
  const std::size_t most =
      std::min<std::size_t>(request->batch.bytes() + kRemovedBytes,
                            std::size_t{schema::kMaxBatchBytes} - kRowBytes);
  for (std::size_t i = 0; i < removed.size(); ++i) {
    absl::Status status;
    if (request->batch.bytes() < most) {
      status = RemoveStep(*context_.database, *context_.catalog, *removed[i],
                          request);
      if (status.ok()) continue;
    }
    attempt->policy_problem = status;
    removed.resize(i);
  }
}

// All of them, or the step is not saved.
absl::Status StepWriter::RemoveLater(const Save& save, Attempt* attempt,
                                     kv::CommitRequest* request) const {
  if (!save.delete_later) return absl::OkStatus();
  for (const StepRecordPtr& later : context_.catalog->Steps(save.branch)) {
    if (later->step <= save.step) continue;
    if (const std::vector<std::string> tags =
            context_.catalog->TagsOf(later->version);
        !tags.empty()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "step %s, which would be deleted, is tagged '%s'; untag it first",
          context_.catalog->NameOf(*later), tags.front()));
    }
    CKPTREE_RETURN_IF_ERROR(
        RemoveStep(*context_.database, *context_.catalog, *later, request));
    attempt->verdict.removed.push_back(later);
  }
  return absl::OkStatus();
}

void StepWriter::TellPolicy(Save* save, const schema::StepRecord& record,
                            const Attempt& attempt) {
  const std::string name = context_.catalog->NameOf(record);
  if (const absl::Status& why = attempt.policy_problem; !why.ok()) {
    const absl::Status problem(
        why.code(), absl::StrFormat("step %s was saved and the policy was not "
                                    "applied: %s",
                                    name, why.message()));
    context_.logger->Log(LogSeverity::kError, "policy", problem);
    save->SetPolicyProblem(problem);
  }
}

absl::StatusOr<std::shared_ptr<const CompactPart>> StepWriter::TipPart(
    const schema::PartRecord& part) const {
  if (const auto it = tip_.parts.find(part.part); it != tip_.parts.end()) {
    return it->second;
  }
  absl::StatusOr<std::shared_ptr<const CompactPart>> read = nullptr;
  context_.arena->execute(
      [&] { read = LoadCompactPart(*context_.database, part); });
  return read;
}

// Parts that the save does not have any more leave all their blocks, and so do
// those that it compared with nothing. After a damaged base nothing is known of
// them: that dead list stays empty, and collection keeps what it cannot prove
// dead.
absl::Status StepWriter::AddLostParts(const Attempt& attempt,
                                      schema::DeadList* dead) const {
  for (const auto& [number, part] : tip_.table) {
    const bool kept = std::any_of(attempt.parts.begin(), attempt.parts.end(),
                                  [n = number](const PartResult& p) {
                                    return p.record.part == n && !p.whole;
                                  });
    if (kept) continue;
    const absl::StatusOr<std::shared_ptr<const CompactPart>> lost =
        TipPart(part);
    if (absl::IsDataLoss(lost.status())) continue;
    CKPTREE_RETURN_IF_ERROR(lost.status());
    std::vector<schema::BlockRun> runs = schema::RunsOf(BlocksOfPart(**lost));
    if (!runs.empty()) dead->parts.push_back({number, std::move(runs)});
  }
  std::sort(dead->parts.begin(), dead->parts.end(),
            [](const schema::DeadPart& a, const schema::DeadPart& b) {
              return a.part < b.part;
            });
  return absl::OkStatus();
}

}  // namespace ckptree::internal
