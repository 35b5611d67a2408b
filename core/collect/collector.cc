// SPDX-License-Identifier: Apache-2.0

#include "core/collect/collector.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/collect/collect_commit.h"
#include "core/collect/segment_files.h"
#include "core/collect/small_sweep.h"
#include "core/collect/tree_sweep.h"
#include "core/process/applying.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/version/base_loader.h"
#include "core/version/store_features.h"
#include "kv/lease.h"
#include "kv/near_rows.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// The background looks through the files again once this much of files that
// live on is dead, or after so many saves.
constexpr std::uint64_t kLookAgainBytes = 64 << 20;
constexpr std::uint64_t kLookAgainVersions = 64;
// Of one commit: so many versions, and no more of them once it has so many
// bytes.
constexpr std::size_t kMostTogether = 256;
constexpr std::size_t kFullBatchBytes = 1 << 20;
// Where the store codes, so many versions after its own a block is coded when
// it is written again: those that a policy still thins are not worth the time.
constexpr std::uint64_t kColdVersions = 16;
// Of commits of others that come in between, in one pass.
constexpr int kMostConflicts = 100;

}  // namespace

struct Collector::Pass {
  explicit Pass(const kv::Database& of) : database(of) {}

  const kv::Database& database;
  CollectOptions options;
  bool background = false;
  CollectReport report;
  std::map<std::uint64_t, std::string> leased;  // Version: why it is kept.
  CollectProgress progress;

  // What there is no room for is left to a later pass, and told.
  absl::Status WhereThereIsRoom(absl::Status status) {
    // For want of memory the handle may be dead.
    if (!absl::IsResourceExhausted(status) || !database.health().ok()) {
      return status;
    }
    report.no_room.emplace_back(status.message());
    return absl::OkStatus();
  }

  absl::Status Tell() {
    progress.bytes_freed = report.bytes_freed;
    progress.bytes_written = report.bytes_written;
    if (!options.on_progress) return absl::OkStatus();
    return GuardedCall("on_progress", [&] { options.on_progress(progress); });
  }
};

Collector::Collector(CollectorContext context) : context_(std::move(context)) {
  if (context_.background) {
    work_ = true;  // What an earlier process left.
    thread_ = std::thread([this] { Loop(); });
  }
}

Collector::~Collector() { Stop(); }

void Collector::Notify() {
  const absl::MutexLock lock(&mu_);
  work_ = true;
}

void Collector::Stop() {
  stopping_.store(true);
  Notify();
  if (thread_.joinable()) thread_.join();
  const absl::MutexLock lock(&pass_mu_);  // A pass of another thread.
}

void Collector::Loop() {
  const EngineThread here(context_.database);
  while (true) {
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &Collector::MayRun));
      work_ = false;
    }
    // The open has said why nothing can be collected.
    if (stopping_.load() || !context_.keeper->refusal().ok()) return;
    Pass pass(*context_.database);
    pass.options.bytes_per_second = context_.bytes_per_second;
    pass.background = true;
    const absl::MutexLock lock(&pass_mu_);
    const absl::Status status = GuardedStatus("collecting", [&] {
      pass_mu_.AssertHeld();
      return RunPass(&pass);
    });
    for (const std::string& what : pass.report.no_room) {
      context_.logger->Log(LogSeverity::kWarning, "collect", what);
    }
    if (absl::IsCancelled(status)) Notify();  // It goes on where it was.
    if (status.ok() || absl::IsCancelled(status)) continue;
    context_.logger->Log(LogSeverity::kWarning, "collect", status);
  }
}

absl::StatusOr<CollectReport> Collector::Collect(
    const CollectOptions& options) {
  Pass pass(*context_.database);
  pass.options = options;
  CountWaiting(1);
  const absl::MutexLock lock(&pass_mu_);
  CountWaiting(-1);
  {
    // What was in the way may be mended by now.
    const absl::MutexLock forget(&mu_);
    failed_.clear();
  }
  CKPTREE_ASSIGN_OR_RETURN(pass.report.file_bytes_before,
                           context_.database->SettledFileBytes());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t dead_before, DeadBytes());
  CKPTREE_RETURN_IF_ERROR(RunPass(&pass));
  CKPTREE_ASSIGN_OR_RETURN(pass.report.file_bytes_after,
                           context_.database->SettledFileBytes());
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t dead_after, DeadBytes());
  pass.report.bytes_left = std::min(
      pass.report.bytes_freed, dead_after - std::min(dead_after, dead_before));
  const Chain chain = context_.keeper->chain();
  const std::map<std::uint64_t, std::string> held = context_.keeper->Held();
  const std::map<std::uint64_t, std::string> all_failed = failed();
  for (const std::uint64_t version : chain.removed()) {
    KeptVersion kept;
    kept.step = chain.versions().at(version).step;
    kept.version = version;
    const std::map<std::uint64_t, std::string>* const all[] = {
        &all_failed, &pass.leased, &held};
    for (const auto* reasons : all) {
      const auto it = reasons->find(version);
      if (it != reasons->end()) kept.why = it->second;
    }
    if (kept.why.empty()) kept.why = chain.WhyKept(version);
    pass.report.kept.push_back(std::move(kept));
  }
  return std::move(pass.report);
}

absl::StatusOr<std::uint64_t> Collector::DeadBytes() const {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::vector<SegmentFile> files,
      ListSegmentFiles(*context_.database, context_.version_in_flight));
  std::uint64_t bytes = 0;
  for (const SegmentFile& file : files) {
    if (file.share <= 0) continue;
    bytes += static_cast<std::uint64_t>(static_cast<double>(file.dead_bytes) /
                                        file.share);
  }
  return bytes;
}

void Collector::CountWaiting(int more) {
  const absl::MutexLock lock(&mu_);
  waiting_ += more;
}

void Collector::RunPaused(absl::FunctionRef<void()> work) {
  CountWaiting(1);
  const absl::MutexLock lock(&pass_mu_);
  CountWaiting(-1);
  work();
}

bool Collector::Stopping(const Pass& pass) const {
  if (stopping_.load()) return true;
  if (pass.options.cancelled && pass.options.cancelled()) return true;
  const absl::MutexLock lock(&mu_);
  return pass.background && waiting_ > 0;
}

// Steps 1 and 2.
absl::Status Collector::CollectVersions(Pass* pass) {
  CKPTREE_RETURN_IF_ERROR(context_.keeper->refusal());
  // In this order: a reader that takes a lease later sees that its step is
  // gone.
  const std::vector<std::uint64_t> removed = context_.keeper->Removed();
  std::map<std::uint64_t, std::string> leased;
  if (!removed.empty() && context_.leased) {
    CKPTREE_ASSIGN_OR_RETURN(leased, context_.leased());
  }
  pass->progress.versions_total = removed.size();
  const std::map<std::uint64_t, std::string> all_failed = failed();
  bool again = true;
  std::set<std::uint64_t> left(removed.begin(), removed.end());
  int conflicts = 0;
  // A commit is a sync: where there are many versions it takes more and more of
  // them, so that few are not held for long and one that cannot be collected
  // is soon by itself.
  std::size_t most = 1;
  // Collecting a version can make the one where branches part collectable.
  while (again) {
    again = false;
    for (auto next = left.begin(); next != left.end();) {
      if (Stopping(*pass)) return absl::CancelledError("collection stopped");
      std::vector<std::uint64_t> asked;
      while (next != left.end() && asked.size() < most) {
        const std::uint64_t version = *next;
        auto lease = leased.find(version);
        if (lease == leased.end()) lease = leased.find(kv::kEveryVersion);
        if (lease != leased.end()) {
          pass->leased[version] = lease->second + " has it open";
        }
        if (lease != leased.end() || all_failed.contains(version)) {
          next = left.erase(next);
          continue;
        }
        asked.push_back(version);
        ++next;
      }
      const std::vector<ChainStep> steps = context_.keeper->Begin(asked);
      if (steps.empty()) continue;
      std::vector<std::vector<base::Digest>> trees;
      for (const ChainStep& step : steps) {
        trees.push_back(context_.keeper->Link(step.version).trees);
      }
      absl::StatusOr<std::size_t> collected = std::size_t{0};
      const absl::Status guarded = GuardedStatus("collecting", [&] {
        pass_mu_.AssertHeld();
        collected = CollectSteps(steps, pass);
        return collected.status();
      });
      if (!guarded.ok()) collected = guarded;
      const std::span<const ChainStep> done =
          std::span(steps).first(collected.ok() ? *collected : 0);
      {
        const Applying applying(*context_.database);
        context_.keeper->End(done);
      }
      for (std::size_t i = 0; i < done.size(); ++i) {
        for (const base::Digest& tree : trees[i]) {
          trees_died_ = trees_died_ || !context_.keeper->HasTree(tree);
        }
      }
      for (const ChainStep& step : done) left.erase(step.version);
      // Those that were not reached come next, and by themselves where one of
      // them cannot be read, or there is no room for so many.
      if (done.size() < steps.size()) {
        next = left.lower_bound(steps[done.size()].version);
      }
      // A branch was dropped, or a save came in between: as it is now.
      if (absl::IsAborted(collected.status()) && ++conflicts < kMostConflicts) {
        std::this_thread::yield();  // The other one tells of it just now.
        again = true;
        continue;
      }
      const bool together = steps.size() > 1;
      most = collected.ok() ? std::min(2 * most, kMostTogether) : 1;
      if (absl::IsDataLoss(collected.status()) && !together) {
        // What cannot be read is kept; the others go on.
        const std::uint64_t version = steps.front().version;
        next = left.erase(left.find(version));
        context_.logger->Log(LogSeverity::kWarning, "collect",
                             absl::StrFormat("version %d is kept: %s", version,
                                             collected.status().message()));
        const absl::MutexLock note(&mu_);
        failed_[version] = std::string(collected.status().message());
        continue;
      }
      const bool alone = absl::IsDataLoss(collected.status()) ||
                         absl::IsResourceExhausted(collected.status());
      if (together && alone) continue;
      CKPTREE_RETURN_IF_ERROR(collected.status());
      again = again || !done.empty();
      CKPTREE_RETURN_IF_ERROR(pass->Tell());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> Collector::CollectSteps(
    std::span<const ChainStep> steps, Pass* pass) {
  const kv::Database& database = *context_.database;
  CollectBatch batch(database);
  kv::NearRows removed(database);
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t far_bytes = 0;
  std::size_t planned = 0;
  while (planned < steps.size() && batch.bytes() < kFullBatchBytes) {
    if (planned > 0 && Stopping(*pass)) break;  // What is planned is done.
    const ChainStep& step = steps[planned++];
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string_view> row,
                             removed.Find(schema::RemovedKey(step.version)));
    CKPTREE_ASSIGN_OR_RETURN(const schema::StepRecord record,
                             row.has_value()
                                 ? schema::DecodeStepRecord(*row)
                                 : ReadVersion(database, step.version));
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::PartRecord> parts,
                             PartsOf(database, record));
    absl::StatusOr<CollectPlan> plan = absl::UnknownError("");
    context_.arena->execute([&] {
      plan = PlanCollect(
          step,
          [&](std::uint64_t version) { return batch.DeadListOf(version); },
          [&](std::uint64_t version) { return ReadBlocks(database, version); });
    });
    CKPTREE_RETURN_IF_ERROR(plan.status());
    CKPTREE_RETURN_IF_ERROR(batch.Add(*plan, parts));
    blocks += plan->blocks();
    const std::uint64_t far = FarBytesOf(database, *plan);
    bytes += plan->bytes() - far;
    far_bytes += far;
  }
  CKPTREE_ASSIGN_OR_RETURN(CollectCommit commit, batch.Finish());
  CKPTREE_RETURN_IF_ERROR(
      context_.database->Commit(std::move(commit.request)).status);
  const Applying applying(*context_.database);

  pass->report.versions += planned;
  pass->progress.versions_done += planned;
  pass->report.blocks_freed += blocks;
  pass->report.bytes_freed += bytes;
  pass->report.far_bytes_freed += far_bytes;
  unsecured_ = true;
  half_dead_bytes_ += commit.half_dead_bytes;
  for (auto& segment : commit.dead_segments) {
    dead_segments_.push_back(std::move(segment));
  }
  return planned;
}

// Step 4.
absl::Status Collector::SweepTrees(bool pages_too) {
  const std::set<base::Digest> living = context_.keeper->BeginSweep();
  const absl::Cleanup done = [this] { context_.keeper->EndSweep(); };
  CKPTREE_ASSIGN_OR_RETURN(kv::CommitRequest request,
                           DeadTrees(*context_.database, living, pages_too));
  if (!request.batch.empty()) {
    CKPTREE_RETURN_IF_ERROR(
        context_.database->Commit(std::move(request)).status);
  }
  trees_died_ = false;
  return absl::OkStatus();
}

absl::Status Collector::SweepSmall() {
  // In this order: a save that commits now is in flight, or in the chain.
  CKPTREE_ASSIGN_OR_RETURN(
      std::set<std::uint64_t> unlisted,
      VersionsBeside(*context_.database, context_.keeper->chain()));
  if (unlisted.empty()) return absl::OkStatus();  // As nearly always.
  const std::uint64_t in_flight = context_.version_in_flight();
  const Chain chain = context_.keeper->chain();
  std::erase_if(unlisted, [&](std::uint64_t version) {
    return chain.versions().contains(version) ||
           (in_flight != 0 && version >= in_flight);
  });
  if (unlisted.empty()) return absl::OkStatus();
  absl::StatusOr<kv::CommitRequest> request = absl::UnknownError("");
  context_.arena->execute(
      [&] { request = UnlistedSmall(*context_.database, chain, unlisted); });
  // Where a version cannot be read nobody knows what it refers to.
  if (absl::IsDataLoss(request.status())) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(request.status());
  return context_.database->Commit(*std::move(request)).status;
}

absl::Status Collector::Secure() {
  CKPTREE_RETURN_IF_ERROR(context_.database->Secure());
  unsecured_ = false;
  return absl::OkStatus();
}

// Step 3.
absl::Status Collector::DropFiles(Pass* pass) {
  if (dead_segments_.empty()) return absl::OkStatus();
  CKPTREE_RETURN_IF_ERROR(Secure());
  std::vector<kv::Database::Range> leaves, chunks;
  for (const auto& [space, range] : dead_segments_) {
    (space == Space::kLeaves ? leaves : chunks).push_back(range);
  }
  std::uint64_t* const files = &pass->report.files_dropped;
  kv::Database& database = *context_.database;
  CKPTREE_RETURN_IF_ERROR(database.Drop(Space::kLeaves, leaves, files));
  CKPTREE_RETURN_IF_ERROR(database.Drop(Space::kChunks, chunks, files));
  dead_segments_.clear();
  return absl::OkStatus();
}

absl::Status Collector::RunPass(Pass* pass) {
  const absl::Status collected = CollectVersions(pass);
  // What is dead already goes, though the pass was stopped: it costs nothing.
  if (!collected.ok() && !absl::IsCancelled(collected)) return collected;
  CKPTREE_RETURN_IF_ERROR(pass->WhereThereIsRoom(DropFiles(pass)));
  CKPTREE_RETURN_IF_ERROR(collected);
  if (!pass->background) {
    CKPTREE_RETURN_IF_ERROR(
        pass->WhereThereIsRoom(SweepTrees(/*pages_too=*/true)));
    CKPTREE_RETURN_IF_ERROR(SweepSmall());
    // Deleted blocks of small saves still stand in tables, and in the journal.
    // The journal first: it gives room back without taking much.
    CKPTREE_RETURN_IF_ERROR(
        pass->WhereThereIsRoom(context_.database->WriteRows()));
    const absl::Status compacted =
        pass->WhereThereIsRoom(context_.database->CompactSmall());
    // Damage of the index, of which nothing is lost: it is told, and the rest
    // is done.
    if (absl::IsDataLoss(compacted)) {
      pass->report.damaged.emplace_back(compacted.message());
    } else {
      CKPTREE_RETURN_IF_ERROR(compacted);
    }
    return pass->WhereThereIsRoom(RewriteFiles(pass));
  }
  if (trees_died_) {
    CKPTREE_RETURN_IF_ERROR(
        pass->WhereThereIsRoom(SweepTrees(/*pages_too=*/false)));
  }
  const std::uint64_t newest = context_.keeper->newest();
  if (half_dead_bytes_ < kLookAgainBytes &&
      newest < looked_at_version_ + kLookAgainVersions) {
    return absl::OkStatus();
  }
  CKPTREE_RETURN_IF_ERROR(RewriteFiles(pass));
  half_dead_bytes_ = 0;
  looked_at_version_ = newest;
  return absl::OkStatus();
}

// Step 5.
absl::Status Collector::RewriteFiles(Pass* pass) {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::vector<SegmentFile> files,
      ListSegmentFiles(*context_.database, context_.version_in_flight));
  RewriteLimits limits;
  limits.min_dead_fraction = pass->options.min_dead_fraction;
  limits.newest = context_.keeper->newest();
  RewriteHow how;
  how.bytes_per_second = pass->options.bytes_per_second;
  if (context_.code && limits.newest > kColdVersions) {
    how.code_up_to = limits.newest - kColdVersions;
  }
  if (pass->options.pack && limits.newest > 0) {
    how.code_up_to = limits.newest - 1;
  }
  std::vector<RewriteGroup> groups = ChooseRewrites(files, limits);
  const std::size_t chosen = groups.size();
  std::set<std::string> taken;
  for (const RewriteGroup& group : groups) {
    for (const SegmentFile& file : group.files) taken.insert(file.file.path);
  }
  if (pass->options.pack) {
    for (const SegmentFile& file : files) {
      if (taken.contains(file.file.path)) continue;
      if (Stopping(*pass)) return absl::CancelledError("collection stopped");
      if (!WorthPacking(*context_.database, file, how.code_up_to)) continue;
      groups.push_back({{file}});
    }
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const RewriteGroup& group = groups[g];
    if (Stopping(*pass)) return absl::CancelledError("collection stopped");
    if (unsecured_) CKPTREE_RETURN_IF_ERROR(Secure());
    const bool chunks = group.files.front().file.space == Space::kChunks;
    if (chunks && how.code_up_to > 0) {
      CKPTREE_RETURN_IF_ERROR(AddFeature(context_.database, kCodedFeature));
    }
    CKPTREE_ASSIGN_OR_RETURN(const RewriteResult result,
                             RewriteGroupOf(context_.database, group, how,
                                            [&] { return Stopping(*pass); }));
    if (!result.damaged.empty()) {
      for (const std::string& text : result.damaged) {
        context_.logger->Log(LogSeverity::kWarning, "collect", text);
        pass->report.damaged.push_back(text);
      }
      continue;
    }
    pass->report.files_rewritten += group.files.size();
    if (g >= chosen) pass->report.files_packed += group.files.size();
    pass->report.bytes_written += result.bytes_written;
    CKPTREE_RETURN_IF_ERROR(pass->Tell());
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
