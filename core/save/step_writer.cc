// SPDX-License-Identifier: Apache-2.0

#include "core/save/step_writer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "core/process/applying.h"
#include "core/process/commit_status.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/save/lineage.h"
#include "core/version/base_loader.h"
#include "core/version/catalog.h"
#include "core/version/store_features.h"
#include "kv/monotonic.h"
#include "kv/wall_clock.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

// Below this a save is refused before it writes: its metadata and the commit
// log could not grow.
constexpr std::uint64_t kMinFreeBytes = 4 << 20;

constexpr absl::Duration kReportEvery = absl::Milliseconds(100);

absl::Status Annotate(const absl::Status& status, std::int64_t step) {
  if (status.ok()) return status;
  try {
    return absl::Status(
        status.code(),
        absl::StrCat("step ", step,
                     IsOutcomeUnknown(status) ? "" : " was not saved", ": ",
                     status.message()));
  } catch (const std::bad_alloc&) {
    return status;
  }
}

std::string AttemptName(std::uint64_t version) {
  // kv reads the version back from the name: it is never used again.
  return absl::StrCat("v", version, "-",
                      absl::Hex(absl::GetCurrentTimeNanos(), absl::kZeroPad16));
}

}  // namespace

StepWriter::StepWriter(WriterContext context)
    : context_(std::move(context)),
      lineage_(ProcessLineage()),
      last_version_(context_.highest_version),
      stager_(context_.database, context_.arena, context_.pool,
              context_.staging_idle, context_.logger) {
  writer_ = std::thread([this] { WriteLoop(); });
}

StepWriter::~StepWriter() {
  Refuse();
  Stop();
}

void StepWriter::Refuse() {
  absl::MutexLock lock(&mu_);
  refusing_ = true;
}

void StepWriter::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    Hurry();
  }
  stager_.Stop();
  if (writer_.joinable()) writer_.join();
}

// ---- steps 3 to 6 ----

void StepWriter::WriteLoop() {
  const EngineThread here(context_.database);
  while (true) {
    std::shared_ptr<Save> first;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &StepWriter::CanWrite));
      if (queue_.empty()) return;  // Stopping.
      first = queue_.front();
    }
    Save& save = *first;
    std::uint64_t version = 0;
    absl::Status status =
        Annotate(GuardedStatus("saving", [&] { return Run(&save, &version); }),
                 save.step);
    if (status.ok() && context_.on_committed) {
      status = GuardedStatus("waiting for the other copy",
                             [&] { return context_.on_committed(version); });
    }
    // The memory goes back before anyone is told.
    if (const auto content = save.staged_content()) content->Abandon();
    {
      absl::MutexLock lock(&mu_);
      --stats_.saves_in_flight;
      ++(status.ok() ? stats_.saves_committed : stats_.saves_failed);
      stats_.bytes_hashed += save.counters.compared.load();
      stats_.bytes_written += save.counters.written.load();
      stats_.bytes_unchanged += save.counters.unchanged.load();
      stats_.bytes_coded += save.counters.coded.load();
      stats_.bytes_coded_to += save.counters.coded_to.load();
    }
    // Who cancels does not need to be told.
    const bool asked = absl::IsCancelled(status) && save.cancelled();
    if (!status.ok() && !asked) {
      GuardedCall("Add", [&] { failed_.Add(first); }).IgnoreError();
    }
    if (const absl::Status thrown = save.Finish(status, version);
        !thrown.ok()) {
      context_.logger->Log(LogSeverity::kError, "save", thrown);
    }
    retired_.clear();
    ReportProgress(save, /*force=*/true);
    if (!status.ok() && !absl::IsCancelled(status) && save.FailedUnseen()) {
      context_.logger->Log(LogSeverity::kError, "save", status);
    }
    stager_.Ended();
    absl::MutexLock lock(&mu_);
    queue_.pop_front();
    ++ended_;
  }
}

absl::Status StepWriter::Run(Save* save, std::uint64_t* version) {
  CKPTREE_RETURN_IF_ERROR(CheckHealth(*context_.database));
  if (save->cancelled()) return absl::CancelledError("it was cancelled");
  CKPTREE_RETURN_IF_ERROR(kv::CheckClock());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t free,
                           context_.database->FreeBytes());
  if (free < kMinFreeBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the disk is full: %d bytes are free, at least %d are needed", free,
        kMinFreeBytes));
  }
  const absl::Cleanup release = [this] {
    context_.keeper->ReleaseTrees();
    context_.keeper->ReleaseBase();
    in_flight_.store(0);
  };
  CKPTREE_RETURN_IF_ERROR(LoadTip(*save, save->gather == nullptr));

  Attempt attempt;
  attempt.version = ++last_version_;
  in_flight_.store(attempt.version);
  attempt.name = AttemptName(attempt.version);
  save->SetPhase(Progress::Phase::kWriting);
  const absl::Time start = kv::MonotonicNow();
  absl::Status status = GuardedStatus("writing", [&] {
    return save->gather == nullptr ? Write(save, &attempt)
                                   : GatherParts(save, &attempt);
  });
  const absl::Time written = kv::MonotonicNow();
  if (status.ok()) {
    save->SetPhase(Progress::Phase::kCommitting);
    ReportProgress(*save, /*force=*/true);
    status = GuardedStatus("adopting", [&] { return Adopt(&attempt); });
  }
  bool returned = true;
  if (status.ok()) {
    returned = false;
    status = GuardedStatus("committing", [&] {
      absl::Status committed = Commit(save, &attempt);
      returned = true;
      return committed;
    });
  }
  if (!returned) {
    // Whether its rows are there is not known: neither are its blocks dropped,
    // nor is the next save compared with what was thought to be the tip.
    tip_loaded_ = false;
    if (attempt.committing) {
      status = OutcomeUnknown(std::string(status.message()), "the step");
    }
  }
  *version = attempt.version;
  // What is left behind takes nothing back.
  GuardedStatus("cleaning up", [&] {
    CleanUp(attempt, status.ok() || (!returned && attempt.committing));
    return absl::OkStatus();
  }).IgnoreError();
  {
    absl::MutexLock lock(&mu_);
    stats_.seconds_comparing_and_writing +=
        absl::ToDoubleSeconds(written - start);
    stats_.seconds_committing +=
        absl::ToDoubleSeconds(kv::MonotonicNow() - written);
  }
  return status;
}

absl::StatusOr<schema::BranchRecord> StepWriter::BranchOf(
    const Save& save, std::string* bytes) const {
  CKPTREE_ASSIGN_OR_RETURN(
      std::optional<schema::BranchRecord> branch,
      ReadBranch(*context_.database, save.branch_id, bytes));
  if (branch.has_value()) return *std::move(branch);
  return absl::NotFoundError(
      absl::StrFormat("its branch '%s' was dropped", save.branch_name));
}

// The base of the next save is the tip of its branch, whether or not that step
// still has a row.
absl::Status StepWriter::LoadTip(const Save& save, bool whole) {
  const std::uint32_t branch = save.branch;
  // Collection may have moved it.
  const std::uint64_t held = context_.keeper->HoldBase(branch);
  tip_loaded_ = tip_loaded_ && tip_branch_ == branch &&
                (held == tip_.version || !context_.keeper->refusal().ok());
  if (branch != kMainBranch) CKPTREE_RETURN_IF_ERROR(BranchOf(save).status());
  if (tip_loaded_ && (!whole || tip_.parts.size() == tip_.table.size())) {
    return absl::OkStatus();
  }
  tip_loaded_ = false;
  tip_ = {};
  tip_branch_ = branch;
  absl::Status status;
  context_.arena->execute([&] {
    absl::StatusOr<BaseState> tip =
        whole ? LoadBase(*context_.database, branch)
              : LoadBaseTable(*context_.database, branch);
    status = tip.status();
    if (!status.ok()) return;
    status = CheckBlocksAreThere(*context_.database, *tip);
    tip_ = *std::move(tip);
  });
  if (absl::IsDataLoss(status) && branch != kMainBranch) {
    CKPTREE_RETURN_IF_ERROR(BranchOf(save).status());
  }
  if (absl::IsDataLoss(status)) {
    // A damaged base must not stop training: the next save is full.
    context_.logger->Log(
        LogSeverity::kWarning, "save",
        absl::StrFormat("the last save of the branch is damaged (%s): this one "
                        "is written whole",
                        status.message()));
    CKPTREE_ASSIGN_OR_RETURN(tip_.version, ReadTip(*context_.database, branch));
    tip_.parts.clear();
    tip_.table.clear();
    status = absl::OkStatus();
  }
  tip_loaded_ = status.ok();
  return status;
}

// Steps 3 and 4.
absl::Status StepWriter::Write(Save* save, Attempt* attempt) {
  const kv::Database& database = *context_.database;
  PartTask task;
  task.kv_options = context_.kv_options;
  task.staging = database.staging_directory() + "/" + attempt->name;
  task.attempt = attempt->name;
  task.make_staging = [this, attempt]() -> absl::Status {
    absl::MutexLock lock(&attempt->mu);
    if (attempt->staged) return absl::OkStatus();
    attempt->staged = true;
    return context_.database->MakeStaging(attempt->name);
  };
  task.on_built = context_.on_built;
  task.uuid = context_.uuid;
  task.incarnation = database.report().incarnation;
  task.version = attempt->version;
  task.step = save->step;
  task.part = 0;
  task.segments = segments_;
  task.statistics = context_.statistics;
  task.coding = context_.coding->Next();
  task.counters = &save->counters;
  task.database = &database;
  const std::thread::id self = std::this_thread::get_id();
  task.check = [this, save, self]() -> absl::Status {
    if (std::this_thread::get_id() == self) ReportProgress(*save, false);
    return save->cancelled() ? absl::CancelledError("it was cancelled")
                             : absl::OkStatus();
  };
  // The caller waits for the copy, and nobody for what this would do
  // with the same processors in the meantime.
  save->WaitCopyEnded();
  // While nobody waits for the save, one processor is left to whoever computes
  // beside it. Where the pool was full, Commit() may wait for what is read.
  if (save->Copied()) {
    save->limit.Set(std::max(1, context_.arena->max_concurrency() - 1));
  }
  task.limit = &save->limit;
  const auto base = tip_.parts.find(task.part);
  absl::StatusOr<PartResult> part = absl::UnknownError("");
  context_.arena->execute([&] {
    part = WritePart(task, save->content.get(),
                     base == tip_.parts.end() ? nullptr : base->second.get());
  });
  if (absl::IsResourceExhausted(part.status())) {
    const std::uint64_t needed =
        save->bytes_total -
        std::min(save->bytes_total, save->counters.unchanged.load());
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s (up to %d bytes are needed, %d are free)", part.status().message(),
        needed, database.FreeBytes().value_or(0)));
  }
  CKPTREE_RETURN_IF_ERROR(part.status());
  context_.coding->Note(task.coding.code, part->times);
  attempt->parts.push_back(*std::move(part));
  return absl::OkStatus();
}

// Step 5.
absl::Status StepWriter::Adopt(Attempt* attempt) {
  std::vector<kv::StagedSegment> segments;
  bool coded = false;
  for (const PartResult& part : attempt->parts) {
    for (const BuiltSegment& segment : part.segments) {
      segments.push_back(segment.staged);
      coded = coded || segment.coded;
    }
  }
  if (segments.empty()) return absl::OkStatus();
  if (coded) {
    CKPTREE_RETURN_IF_ERROR(AddFeature(context_.database, kCodedFeature));
  }
  return context_.database->Adopt(segments);
}

// Step 6.
absl::Status StepWriter::Commit(Save* save, Attempt* attempt) {
  const absl::MutexLock commit_lock(context_.commit_mu);
  auto record = std::make_shared<schema::StepRecord>();
  CKPTREE_ASSIGN_OR_RETURN(kv::CommitRequest request,
                           BuildCommit(*save, attempt, record));
  if (!save->EnterCommit()) return absl::CancelledError("it was cancelled");
  attempt->committing = true;
  const kv::CommitResult result = context_.database->Commit(std::move(request));
  if (result.outcome == kv::Outcome::kConflict) {
    return absl::AlreadyExistsError(
        absl::StrFormat("the step was saved or changed by somebody else (%s)",
                        result.status.message()));
  }
  CKPTREE_RETURN_IF_ERROR(CommitStatus(result, "the step"));
  const Applying applying(*context_.database);
  for (auto& [number, part] : tip_.parts) retired_.push_back(std::move(part));
  const std::uint64_t base = tip_.version;
  tip_ = {attempt->version, {}, {}};
  {
    absl::MutexLock lock(&mu_);
    for (const PartResult& part : attempt->parts) {
      stats_.chunks_written += part.chunks_written;
      stats_.leaf_records_written += part.records_written;
      stats_.segments_written += part.segments.size();
    }
  }
  for (PartResult& part : attempt->parts) {
    retired_.push_back(std::move(part.leftovers));
    tip_.table[part.record.part] = part.record;
    // What another process built is read back where it is needed.
    if (part.next != nullptr) tip_.parts[part.record.part] = part.next;
  }
  ChainLink link;
  link.prev = base;
  link.branch = save->branch;
  link.step = save->step;
  link.ordinal = result.ordinal;
  for (const PartResult& part : attempt->parts) {
    link.trees.push_back(part.record.tree);
  }
  const Retention::Verdict& verdict = attempt->verdict;
  context_.keeper->Saved(attempt->version, std::move(link), attempt->replaced);
  // Nobody sees the list without the removed steps and without the new step.
  context_.catalog->Apply(verdict.removed, record);
  for (const StepRecordPtr& gone : verdict.removed) {
    context_.keeper->Removed(gone->version);
  }
  TellPolicy(save, *record, *attempt);
  const bool removed =
      attempt->replaced.has_value() || !verdict.removed.empty();
  if (removed && context_.on_removed) context_.on_removed();
  return absl::OkStatus();
}

// Removes what an attempt left outside the database, and, where it was adopted
// and not committed, the segments that nothing refers to.
void StepWriter::CleanUp(const Attempt& attempt, bool committed) {
  if (!attempt.staged) return;
  absl::Status status;
  if (!committed && context_.database->health().ok()) {
    const schema::KeyRange range = schema::BlocksOfVersion(attempt.version);
    status.Update(context_.database->Secure());
    for (const schema::Space space :
         {schema::Space::kLeaves, schema::Space::kChunks}) {
      if (!status.ok()) break;
      status.Update(context_.database->Drop(space, {{range.begin, range.end}}));
    }
  }
  status.Update(context_.database->RemoveStaging(attempt.name));
  if (!status.ok()) {
    context_.logger->Log(
        LogSeverity::kWarning, "save",
        absl::StrFormat("staging/%s is left behind until the next open: %s",
                        attempt.name, status.message()));
  }
}

void StepWriter::ReportProgress(const Save& save, bool force) {
  if (!context_.on_progress) return;
  const absl::Time now = kv::MonotonicNow();
  if (!force && now - last_report_ < kReportEvery) return;
  last_report_ = now;
  const absl::Status thrown = GuardedCall(
      "on_progress", [&] { context_.on_progress(save.Progress()); });
  if (!thrown.ok()) {
    context_.logger->Log(LogSeverity::kError, "progress", thrown);
  }
}

}  // namespace ckptree::internal
