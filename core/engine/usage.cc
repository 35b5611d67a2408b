// SPDX-License-Identifier: Apache-2.0

#include "core/engine/usage.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/collect/chain_rows.h"
#include "core/collect/collect_plan.h"
#include "core/collect/segment_files.h"
#include "core/process/arena.h"
#include "core/verify/verify_walk.h"
#include "core/version/base_loader.h"
#include "kv/lease.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

// A chain and dead lists that collection can be tried on.
class Overlay {
 public:
  Overlay(const kv::Database& database, Arena& arena, Chain chain,
          std::map<std::uint64_t, std::string> held)
      : database_(database),
        arena_(arena),
        chain_(std::move(chain)),
        held_(std::move(held)) {}

  const Chain& chain() const { return chain_; }

  void Remove(std::uint64_t version) { chain_.Remove(version); }
  void DropBranch(std::uint32_t branch) { chain_.DropBranch(branch); }

  // Collects all that may go; what that frees.
  absl::StatusOr<std::vector<CollectPlan>> Settle() {
    std::vector<CollectPlan> plans;
    bool again = true;
    while (again) {
      again = false;
      const std::vector<std::uint64_t> removed(chain_.removed().begin(),
                                               chain_.removed().end());
      for (const std::uint64_t version : removed) {
        if (IsHeld(version) || !chain_.MayGo(version)) continue;
        CKPTREE_ASSIGN_OR_RETURN(CollectPlan plan, Plan(version));
        if (plan.step.successor != 0)
          lists_[plan.step.successor] = plan.successor_list;
        chain_.Collect(plan.step);
        plans.push_back(std::move(plan));
        again = true;
      }
    }
    return plans;
  }

  absl::StatusOr<CollectPlan> Plan(std::uint64_t version) const {
    absl::StatusOr<CollectPlan> plan = absl::UnknownError("");
    arena_.execute([&] {
      plan = PlanCollect(
          chain_.StepOf(version),
          [this](std::uint64_t v) -> absl::StatusOr<schema::DeadList> {
            const auto it = lists_.find(v);
            if (it != lists_.end()) return it->second;
            return ReadDeadList(database_, v);
          },
          [this](std::uint64_t v) { return ReadBlocks(database_, v); });
    });
    return plan;
  }

  bool IsHeld(std::uint64_t version) const {
    return held_.contains(version) || held_.contains(kv::kEveryVersion);
  }

  // Removed versions that stay.
  std::vector<KeptVersion> Kept() const {
    std::vector<KeptVersion> kept;
    for (const std::uint64_t version : chain_.removed()) {
      KeptVersion entry;
      entry.step = chain_.versions().at(version).step;
      entry.version = version;
      auto it = held_.find(version);
      if (it == held_.end()) it = held_.find(kv::kEveryVersion);
      entry.why = it != held_.end() ? it->second : chain_.WhyKept(version);
      kept.push_back(std::move(entry));
    }
    return kept;
  }

 private:
  const kv::Database& database_;
  Arena& arena_;
  Chain chain_;
  const std::map<std::uint64_t, std::string> held_;
  std::map<std::uint64_t, schema::DeadList> lists_;  // Those that changed.
};

std::uint64_t FreedBytesOf(const std::vector<CollectPlan>& plans) {
  std::uint64_t bytes = 0;
  for (const CollectPlan& plan : plans) bytes += plan.bytes();
  return bytes;
}

// Of these, what this disk gets back.
std::uint64_t FreedHere(const kv::Database& database,
                        const std::vector<CollectPlan>& plans) {
  std::uint64_t bytes = 0;
  for (const CollectPlan& plan : plans) {
    bytes += plan.bytes() - FarBytesOf(database, plan);
  }
  return bytes;
}

absl::StatusOr<Overlay> MakeOverlay(Engine* engine) {
  const kv::Database& database = engine->database();
  CKPTREE_ASSIGN_OR_RETURN(
      auto held,
      kv::LeasedVersions(engine->directory(), engine->lease().get()));
  Chain chain;
  if (engine->writer() != nullptr) {
    CKPTREE_RETURN_IF_ERROR(engine->keeper().refusal());
    chain = engine->keeper().chain();
    for (const auto& [version, why] : engine->keeper().Held()) {
      held.emplace(version, why);
    }
    for (const auto& [version, why] : engine->collector()->failed()) {
      held.emplace(version, why);
    }
  } else {
    // Files that a writer has written anew since are counted, too, where they
    // can be seen.
    database.SeeFiles().IgnoreError();
    CKPTREE_ASSIGN_OR_RETURN(chain, ReadChain(database));
  }
  return Overlay(database, engine->arena(), std::move(chain), std::move(held));
}

// REQUIRES: `record` was resolved before the overlay was made. Then it is only
// missing there where the step went in between.
absl::Status CheckThere(const Overlay& overlay,
                        const schema::StepRecord& record) {
  if (overlay.chain().versions().contains(record.version)) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrFormat(
      "step %d was deleted or overwritten in the meantime; refresh the store",
      record.step));
}

// What deleting `version` alone frees; nothing else may be pending.
absl::StatusOr<std::vector<CollectPlan>> FreedAlone(const Overlay& settled,
                                                    std::uint64_t version) {
  const Chain& chain = settled.chain();
  const ChainLink& link = chain.versions().at(version);
  const auto before = chain.versions().find(link.prev);
  // Where branches part behind it, its going may let go of more.
  if (before != chain.versions().end() && before->second.removed) {
    Overlay copy = settled;
    copy.Remove(version);
    return copy.Settle();
  }
  std::vector<CollectPlan> plans;
  if (settled.IsHeld(version) || !chain.CouldGo(version)) return plans;
  CKPTREE_ASSIGN_OR_RETURN(CollectPlan plan, settled.Plan(version));
  plans.push_back(std::move(plan));
  return plans;
}

absl::StatusOr<std::vector<SegmentFile>> FilesOf(Engine* engine) {
  return ListSegmentFiles(engine->database(), [engine] {
    StepWriter* const writer = engine->writer();
    return writer == nullptr ? std::uint64_t{0} : writer->version_in_flight();
  });
}

// What blocks take in files of this disk.
class StoredSizes {
 public:
  // `all_far`: of a store that is read by its address, what they take there.
  StoredSizes(const std::vector<SegmentFile>& files, bool all_far) {
    for (const SegmentFile& file : files) {
      const double share = file.far && !all_far ? 0 : file.share;
      if (share >= 1) continue;
      for (const SegmentFile::Segment& segment : file.segments) {
        shares_[{segment.key.version, segment.key.part, segment.key.builder}] =
            share;
      }
    }
  }

  std::uint64_t Of(const std::vector<CollectPlan>& plans) const {
    double bytes = 0;
    for (const CollectPlan& plan : plans) {
      for (const schema::DeadPart& part : plan.freed) {
        for (const schema::BlockRun& run : part.runs) {
          bytes += ShareOf(part.part, run) * static_cast<double>(run.bytes);
        }
      }
    }
    return static_cast<std::uint64_t>(bytes);
  }

 private:
  double ShareOf(std::uint16_t part, const schema::BlockRun& run) const {
    if (run.place != schema::Space::kChunks) return 1;
    const auto found =
        shares_.find({run.version, part, schema::BuilderOf(run.first_n)});
    return found == shares_.end() ? 1 : found->second;
  }

  std::map<std::tuple<std::uint64_t, std::uint16_t, std::uint8_t>, double>
      shares_;
};

// What of a segment is freed where none of its blocks is left: its object goes,
// and of others none of it does.
std::uint64_t FreedObjects(const std::vector<SegmentFile>& files,
                           const std::vector<CollectPlan>& plans) {
  using Name =
      std::tuple<schema::Space, std::uint64_t, std::uint16_t, std::uint8_t>;
  std::map<Name, std::uint64_t> freed;  // Blocks of a segment.
  for (const CollectPlan& plan : plans) {
    for (const schema::DeadPart& part : plan.freed) {
      for (const schema::BlockRun& run : part.runs) {
        freed[{run.place, run.version, part.part,
               schema::BuilderOf(run.first_n)}] += run.count;
      }
    }
  }
  double bytes = 0;
  for (const SegmentFile& file : files) {
    for (const SegmentFile::Segment& segment : file.segments) {
      const auto found = freed.find({segment.key.space, segment.key.version,
                                     segment.key.part, segment.key.builder});
      if (found == freed.end() ||
          found->second + segment.row.dead_count() < segment.row.block_count) {
        continue;
      }
      bytes += file.far ? static_cast<double>(file.file.bytes)
                        : file.share * static_cast<double>(segment.row.bytes);
    }
  }
  return static_cast<std::uint64_t>(bytes);
}

absl::StatusOr<UsageReport> UsageOf(Engine* engine) {
  CKPTREE_ASSIGN_OR_RETURN(Overlay overlay, MakeOverlay(engine));
  UsageReport report;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<CollectPlan> pending,
                           overlay.Settle());
  report.pending_bytes = FreedHere(engine->database(), pending);
  report.kept = overlay.Kept();
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<SegmentFile> files,
                           FilesOf(engine));
  const bool all_far = engine->database().reads_far();
  const StoredSizes stored(files, all_far);
  report.pending_stored_bytes = stored.Of(pending);
  for (const StepRecordPtr& record : engine->catalog().AllSteps()) {
    if (!overlay.chain().versions().contains(record->version)) continue;
    StepUsage step;
    step.branch = engine->catalog().BranchName(record->branch);
    step.step = record->step;
    step.version = record->version;
    step.logical_bytes = record->logical_bytes;
    step.new_bytes = record->new_bytes;
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<CollectPlan> freed,
                             FreedAlone(overlay, record->version));
    step.unique_bytes = FreedBytesOf(freed);
    step.unique_stored_bytes = stored.Of(freed);
    report.logical_bytes += step.logical_bytes;
    report.steps.push_back(std::move(step));
  }
  for (const SegmentFile& file : files) {
    if (file.far && !all_far) {
      report.far_bytes += file.file.bytes;
      continue;
    }
    ++report.files;
    report.dead_bytes += file.dead_bytes;
    report.living_bytes += file.live_bytes;
    report.living_stored_bytes += static_cast<std::uint64_t>(
        file.share * static_cast<double>(file.live_bytes));
  }
  CKPTREE_ASSIGN_OR_RETURN(report.file_bytes, engine->database().FileBytes());
  return report;
}

// Where `records` go, and `branch`, if it is one, goes with them.
absl::StatusOr<FreedBytes> FreedBy(Engine* engine,
                                   std::span<const StepRecordPtr> records,
                                   std::optional<std::uint32_t> branch) {
  CKPTREE_ASSIGN_OR_RETURN(Overlay overlay, MakeOverlay(engine));
  CKPTREE_RETURN_IF_ERROR(overlay.Settle().status());
  std::set<std::uint64_t> versions;
  for (const StepRecordPtr& record : records) {
    CKPTREE_RETURN_IF_ERROR(CheckThere(overlay, *record));
    versions.insert(record->version);
    overlay.Remove(record->version);
  }
  if (branch.has_value()) overlay.DropBranch(*branch);
  FreedBytes freed;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<CollectPlan> plans,
                           overlay.Settle());
  for (const CollectPlan& plan : plans) {
    freed.blocks += plan.blocks();
  }
  freed.bytes = FreedHere(engine->database(), plans);
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<SegmentFile> files,
                           FilesOf(engine));
  freed.stored_bytes =
      StoredSizes(files, engine->database().reads_far()).Of(plans);
  if (!engine->address().empty() || !engine->ShippedTo().empty()) {
    freed.remote_bytes = FreedObjects(files, plans);
  }
  freed.kept = overlay.Kept();
  std::erase_if(freed.kept, [&versions](const KeptVersion& kept) {
    return !versions.contains(kept.version);
  });
  return freed;
}

absl::StatusOr<FreedBytes> FreedBySteps(
    Engine* engine, const std::vector<StepSelector>& steps) {
  std::vector<StepRecordPtr> records;
  for (const StepSelector& selector : steps) {
    CKPTREE_ASSIGN_OR_RETURN(records.emplace_back(),
                             engine->catalog().Resolve(selector));
  }
  return FreedBy(engine, records, std::nullopt);
}

absl::StatusOr<FreedBytes> FreedByBranch(Engine* engine,
                                         std::string_view name) {
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t branch,
                           engine->catalog().FindBranch(name));
  if (branch == kMainBranch) {
    return absl::InvalidArgumentError("the main branch cannot be removed");
  }
  return FreedBy(engine, engine->catalog().Steps(branch), branch);
}

// The text form of the first `depth` keys of an encoded path.
std::string Prefix(std::string_view encoded, int depth) {
  const auto path = Path::Decode(encoded);
  if (!path.ok()) return "?";
  std::vector<PathPart> parts = path->parts();
  if (parts.size() > static_cast<std::size_t>(depth)) {
    parts.resize(static_cast<std::size_t>(depth));
  }
  return Path(std::move(parts)).Text();
}

absl::StatusOr<std::vector<SubtreeUsage>> SubtreesOf(
    Engine* engine, const StepSelector& selector, int depth) {
  CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr record,
                           engine->catalog().Resolve(selector));
  CKPTREE_ASSIGN_OR_RETURN(Overlay overlay, MakeOverlay(engine));
  CKPTREE_RETURN_IF_ERROR(overlay.Settle().status());
  CKPTREE_RETURN_IF_ERROR(CheckThere(overlay, *record));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<CollectPlan> plans,
                           FreedAlone(overlay, record->version));
  std::set<BlockId> freed;
  for (const CollectPlan& plan : plans) {
    for (const schema::DeadPart& part : plan.freed) {
      for (const schema::BlockRun& run : part.runs) {
        for (std::uint32_t i = 0; i < run.count; ++i) {
          freed.insert(
              {part.part, {run.kind, run.place, run.version, run.first_n + i}});
        }
      }
    }
  }
  std::map<std::string, SubtreeUsage> subtrees;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<schema::PartRecord> parts,
                           PartsOf(engine->database(), *record));
  for (const schema::PartRecord& part : parts) {
    absl::StatusOr<std::shared_ptr<const BasePart>> loaded =
        absl::UnknownError("");
    engine->arena().execute(
        [&] { loaded = LoadPart(engine->database(), part); });
    CKPTREE_RETURN_IF_ERROR(loaded.status());
    std::size_t ordinal = 0;
    for (const schema::TreeEntry& entry : *(*loaded)->entries) {
      if (!IsLeaf(entry.kind)) continue;
      const BaseLeaf& leaf = *(*loaded)->leaves[ordinal++];
      SubtreeUsage& subtree = subtrees[Prefix(entry.path, depth)];
      ++subtree.leaves;
      subtree.logical_bytes += leaf.record.byte_length;
      if (freed.contains(RecordBlock(part.part, leaf))) {
        subtree.unique_bytes += leaf.encoded_bytes;
        if (leaf.record.is_inline) {
          subtree.unique_value_bytes += leaf.record.byte_length;
        }
      }
      for (const schema::ChunkRef& ref : leaf.record.chunks) {
        if (!freed.contains(ChunkBlock(ref))) continue;
        subtree.unique_bytes += ref.length;
        subtree.unique_value_bytes += ref.length;
      }
    }
  }
  std::vector<SubtreeUsage> result;
  for (auto& [name, subtree] : subtrees) {
    subtree.name = name;
    result.push_back(std::move(subtree));
  }
  return result;
}

// Runs `work` while nothing is collected.
template <typename Result, typename Work>
absl::StatusOr<Result> Paused(Engine* engine, Work work) {
  absl::StatusOr<Result> result = absl::UnknownError("");
  engine->RunPaused([&] { result = work(); });
  return result;
}

}  // namespace

absl::StatusOr<UsageReport> Usage(Engine* engine) {
  return Paused<UsageReport>(engine, [engine] { return UsageOf(engine); });
}

absl::StatusOr<FreedBytes> WouldFree(Engine* engine,
                                     const std::vector<StepSelector>& steps) {
  return Paused<FreedBytes>(engine,
                            [&] { return FreedBySteps(engine, steps); });
}

absl::StatusOr<FreedBytes> WouldFreeBranch(Engine* engine,
                                           std::string_view branch) {
  return Paused<FreedBytes>(engine,
                            [&] { return FreedByBranch(engine, branch); });
}

absl::StatusOr<std::vector<SubtreeUsage>> Subtrees(Engine* engine,
                                                   const StepSelector& step,
                                                   int depth) {
  return Paused<std::vector<SubtreeUsage>>(
      engine, [&] { return SubtreesOf(engine, step, depth); });
}

}  // namespace ckptree::internal
