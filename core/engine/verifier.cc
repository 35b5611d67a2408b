// SPDX-License-Identifier: Apache-2.0

#include "core/engine/verifier.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/process/guarded_call.h"
#include "core/process/out_of_reach.h"
#include "core/save/part_writer.h"
#include "core/save/staging_pool.h"
#include "core/verify/chunk_check.h"
#include "core/verify/leaf_count.h"
#include "core/verify/reference_check.h"
#include "core/verify/row_check.h"
#include "core/verify/segment_ends.h"
#include "core/verify/segment_files.h"
#include "core/verify/verify_walk.h"
#include "core/version/base_loader.h"
#include "core/version/dead_blocks.h"
#include "core/version/step_health.h"
#include "schema/keys.h"
#include "schema/store_record.h"

namespace ckptree::internal {
namespace {

using schema::Space;
using Level = VerifyOptions::Level;

class Verifier {
 public:
  Verifier(Engine* engine, const VerifyOptions& options)
      : engine_(*engine),
        database_(engine->database()),
        options_(options),
        damage_(&report_) {}

  absl::StatusOr<VerifyReport> Run() {
    for (const StepSelector& selector : options_.steps) {
      CKPTREE_ASSIGN_OR_RETURN(const StepRecordPtr step,
                               engine_.catalog().Resolve(selector));
      wanted_.insert({step->branch, step->step});
    }
    for (const std::string& warning : engine_.warnings()) AddHere(warning);
    for (const std::string& note : engine_.notes()) {
      damage_.Add(Finding::Severity::kWarning, note);
    }
    if (const absl::Status note = engine_.ReadShipNote().status(); !note.ok()) {
      damage_.Add(Finding::Severity::kWarning,
                  absl::StrFormat("no step is hurt, and no open with a remote "
                                  "goes on: %s",
                                  note.message()));
    }
    std::vector<std::string> there;
    CKPTREE_RETURN_IF_ERROR(engine_.CheckObjectsThere(
        options_.level == Level::kDeep && options_.steps.empty(), &there));
    for (std::string& what : there) {
      damage_.Add(Finding::Severity::kDamage, std::move(what));
    }
    if (options_.level != Level::kQuick) {
      std::vector<std::string> indexes;
      CKPTREE_RETURN_IF_ERROR(engine_.CheckIndexesThere(&indexes));
      for (std::string& what : indexes) {
        damage_.Add(Finding::Severity::kWarning, std::move(what));
      }
    }
    CKPTREE_RETURN_IF_ERROR(CheckRows(database_, options_.cancelled, &damage_));
    CKPTREE_ASSIGN_OR_RETURN(Moment moment, TakeMoment());
    CKPTREE_RETURN_IF_ERROR(ListVersions(&moment.rows));
    CKPTREE_RETURN_IF_ERROR(CheckTips(&moment.rows));
    for (const VersionView& version : versions_) {
      if (Wanted(version)) total_ += BytesOf(version);
    }
    if (options_.level == Level::kDeep && options_.steps.empty()) {
      CKPTREE_ASSIGN_OR_RETURN(
          files_, SegmentFiles::List(database_, &moment.rows,
                                     {.bytes_ahead = DefaultStagingBytes(),
                                      .cancelled = options_.cancelled}));
    }
    for (VersionView& version : versions_) {
      if (Stopped()) return absl::CancelledError("verify stopped");
      if (!Wanted(version)) continue;
      CKPTREE_RETURN_IF_ERROR(Check(&version));
      done_ += BytesOf(version);
      CKPTREE_RETURN_IF_ERROR(Tell(done_));
      ForgetBases(version);
    }
    if (files_.has_value()) {
      const bool far = !database_.any_far() || FarAnswers();
      absl::Status status;
      engine_.arena().execute(
          [&] { status = files_->Finish(NewestSettled(), far, &damage_); });
      if (OutOfReach(status).has_value()) status = NotLookedAt(status);
      CKPTREE_RETURN_IF_ERROR(status);
      CKPTREE_RETURN_IF_ERROR(Tell(done_));
      if (all_whole_) {
        CKPTREE_RETURN_IF_ERROR(
            CheckReferences(database_, &moment, blocks_, trees_, &damage_));
      }
    }
    if (options_.level == Level::kFull && options_.steps.empty()) {
      absl::Status status;
      engine_.arena().execute([&] {
        status = CheckSegmentEnds(database_, &moment.rows, options_.cancelled,
                                  &damage_);
      });
      CKPTREE_RETURN_IF_ERROR(status);
    }
    // What the journal or the index made good.
    if (options_.level != Level::kQuick && options_.steps.empty()) {
      const std::vector<std::string> known = engine_.warnings();
      std::vector<std::string> ragged;
      CKPTREE_ASSIGN_OR_RETURN(std::vector<std::string> journal,
                               database_.CheckJournal(&ragged));
      for (std::string& what : journal) {
        if (std::find(known.begin(), known.end(), what) == known.end()) {
          AddHere(std::move(what));
        }
      }
      for (std::string& what : ragged) {
        damage_.Add(Finding::Severity::kWarning, std::move(what));
      }
    }
    if (std::string damage = database_.IndexDamage(); !damage.empty()) {
      AddHere(std::move(damage));
    }
    // Whatever was not read then says nothing.
    if (const auto& enough = engine_.options().cancelled;
        database_.any_far() && enough && enough()) {
      return absl::CancelledError("verify stopped");
    }
    engine_.arena().execute([&] { damage_.Explain(database_, versions_); });
    return std::move(report_);
  }

 private:
  // What is wrong with rows on this disk. Those of an address are a copy.
  void AddHere(std::string what) {
    if (engine_.address().empty()) {
      const bool mended = std::ranges::count(database_.report().mended, what);
      if (mended) what.insert(0, "mended when the store was opened: ");
      using Severity = Finding::Severity;
      damage_.Add(mended ? Severity::kWarning : Severity::kDamage, what);
      return;
    }
    damage_.Add(Finding::Severity::kWarning,
                absl::StrFormat("what this machine keeps of its rows in %s is "
                                "damaged, and nothing there (%s): remove that "
                                "folder, which is fetched again",
                                engine_.directory(), what));
  }

  // Files are read in addition.
  absl::Status Tell(std::uint64_t done) const {
    if (!options_.on_progress) return absl::OkStatus();
    std::uint64_t total = total_;
    if (files_.has_value()) {
      done += files_->checked_bytes();
      total += files_->bytes();
    }
    return GuardedCall("on_progress",
                       [&] { options_.on_progress(done, total); });
  }
  // What there is to read of it. Of a chosen step that is all: only where the
  // one before it was chosen, too, less.
  std::uint64_t BytesOf(const VersionView& version) const {
    return options_.steps.empty() ? version.record.new_bytes
                                  : version.record.logical_bytes;
  }
  bool Stopped() const { return options_.cancelled && options_.cancelled(); }

  // Whether what is elsewhere can be looked at. Only a check that needs some of
  // it asks.
  bool FarAnswers() {
    if (!far_answers_.has_value()) {
      const absl::Status far = database_.FarAnswers();
      far_answers_ = far.ok();
      if (!far.ok()) TellNotLookedAt(far);
    }
    return *far_answers_;
  }
  // Of what did not answer in the middle. All of a store that is read by its
  // address is there.
  absl::Status NotLookedAt(const absl::Status& why) {
    if (database_.reads_far() || absl::IsCancelled(why)) return why;
    if (far_answers_.value_or(true)) TellNotLookedAt(why);
    far_answers_ = false;
    return absl::OkStatus();
  }
  void TellNotLookedAt(const absl::Status& why) {
    report_.not_looked_at = std::string(why.message());
    damage_.Add(
        Finding::Severity::kWarning,
        absl::StrFormat("what is not on this disk was not looked at: %s",
                        why.message()));
  }

  // Dead lists tie a version to its base, so the deep check takes all.
  bool Wanted(const VersionView& version) const {
    if (options_.steps.empty()) {
      return !version.removed || options_.level == Level::kDeep;
    }
    return !version.removed &&
           wanted_.contains({version.record.branch, version.record.step});
  }

  // Saves and deletes may go on beside this.
  absl::StatusOr<Moment> TakeMoment() {
    const auto in_flight = [this] {
      return engine_.writer() != nullptr &&
             engine_.writer()->version_in_flight() != 0;
    };
    bool beside_save = database_.following() || in_flight();
    CKPTREE_ASSIGN_OR_RETURN(kv::Iterator small,
                             database_.Scan(Space::kSmall, "", ""));
    CKPTREE_ASSIGN_OR_RETURN(kv::Iterator rows,
                             database_.Scan(Space::kRecords, "", ""));
    beside_save = beside_save || in_flight();
    return Moment{std::move(rows), std::move(small), beside_save};
  }

  // Files of later versions may be those of saves that are not in `versions_`.
  std::uint64_t NewestSettled() const {
    const bool alone = engine_.writer() == nullptr && !database_.following();
    if (alone) return std::numeric_limits<std::uint64_t>::max();
    return versions_.empty() ? 0 : versions_.back().record.version;
  }

  absl::Status AddVersions(schema::Row row, kv::Iterator* rows) {
    const schema::KeyRange range = schema::AllRows(row);
    for (rows->Seek(range.begin); rows->Valid() && rows->key() < range.end;
         rows->Next()) {
      auto record = schema::DecodeStepRecord(rows->value());
      if (!record.ok()) continue;  // CheckRows reports it.
      VersionView view;
      view.record = *std::move(record);
      view.branch = engine_.catalog().BranchName(view.record.branch);
      view.removed = row == schema::Row::kRemoved;
      versions_.push_back(std::move(view));
    }
    return rows->status();
  }

  absl::Status ListVersions(kv::Iterator* rows) {
    CKPTREE_RETURN_IF_ERROR(AddVersions(schema::Row::kStep, rows));
    CKPTREE_RETURN_IF_ERROR(AddVersions(schema::Row::kRemoved, rows));
    std::sort(versions_.begin(), versions_.end(),
              [](const VersionView& a, const VersionView& b) {
                return a.record.version < b.record.version;
              });
    std::set<std::uint64_t> with_dead;
    for (VersionView& version : versions_) {
      const std::uint64_t v = version.record.version;
      auto parts = PartsOf(database_, version.record);
      if (parts.ok()) {
        version.parts = *std::move(parts);
      } else {
        version.whole = false;
        Hurt(version, std::string(parts.status().message()));
      }
      const std::string key = schema::DeadKey(v);
      rows->Seek(key);
      CKPTREE_RETURN_IF_ERROR(rows->status());
      if (!rows->Valid() || rows->key() != key) {
        Inconsistent(version, "its dead list is missing");
        continue;
      }
      auto list = schema::DecodeDeadList(rows->value());
      if (!list.ok()) continue;
      version.dead = *std::move(list);
      last_successor_[version.dead->prev] = v;
    }
    return absl::OkStatus();
  }

  absl::Status CheckTips(kv::Iterator* rows) {
    bool has_main = false;
    const schema::KeyRange range = schema::AllRows(schema::Row::kBranch);
    for (rows->Seek(range.begin); rows->Valid() && rows->key() < range.end;
         rows->Next()) {
      const auto branch = schema::DecodeBranchKey(rows->key());
      const auto record = schema::DecodeBranchRecord(rows->value());
      if (!branch.has_value()) continue;  // CheckRows reports it.
      has_main |= *branch == kMainBranch;
      if (!record.ok() || record->tip == 0) continue;
      if (Find(record->tip) == nullptr) {
        damage_.Add(Finding::Severity::kInconsistent,
                    absl::StrFormat("branch %d continues version %d, which is "
                                    "not there",
                                    *branch, record->tip));
      }
    }
    CKPTREE_RETURN_IF_ERROR(rows->status());
    if (!has_main) {
      damage_.Add(Finding::Severity::kDamage, "the row of branch 0 is missing");
    }
    return absl::OkStatus();
  }

  void Hurt(const VersionView& version, const std::string& what) {
    damage_.Add(Finding::Severity::kDamage, version.name() + ": " + what,
                {version.step()});
  }
  void Inconsistent(const VersionView& version, const std::string& what) {
    damage_.Add(Finding::Severity::kInconsistent, version.name() + ": " + what,
                {version.step()});
  }

  // Whether the chunks of that part were looked at: of a leaf that is lost
  // nobody can say which it had.
  static bool HasLooked(const VersionView& version, std::uint16_t part) {
    const auto loaded = version.loaded.find(part);
    return loaded != version.loaded.end() &&
           std::ranges::none_of(loaded->second->leaves, [](const auto& leaf) {
             return leaf == nullptr;
           });
  }

  const VersionView* Find(std::uint64_t version) const {
    const auto it =
        std::lower_bound(versions_.begin(), versions_.end(), version,
                         [](const VersionView& v, std::uint64_t wanted) {
                           return v.record.version < wanted;
                         });
    return it != versions_.end() && it->record.version == version ? &*it
                                                                  : nullptr;
  }

  absl::Status Check(VersionView* version) {
    // The version before it in the chain, where this run has checked it.
    const VersionView* prev =
        version->dead.has_value() ? Find(version->dead->prev) : nullptr;
    if (prev != nullptr && prev->loaded.empty()) prev = nullptr;
    engine_.arena().execute([&] { Load(version, prev); });
    const LeafTotals leaves =
        CountLeaves(version->loaded, version->record.version);
    if (!version->removed) {
      ++report_.steps;
      report_.leaves += leaves.leaves;
      const std::string_view loss = LossIn(version->record.note);
      if (!loss.empty()) {
        damage_.Add(Finding::Severity::kWarning,
                    absl::StrFormat("%s: %s; what is there is whole",
                                    version->name(), loss),
                    {version->step()});
      }
    }
    std::uint64_t before = 0;  // That its other parts have read.
    for (const auto& [number, part] : version->loaded) {
      // Values that stand in the record of their leaf were checked with it. A
      // leaf that is lost is null.
      for (const auto& leaf : part->leaves) {
        if (leaf != nullptr &&
            leaf->record.since_version == version->record.version) {
          report_.bytes += leaf->record.inline_value.size();
        }
      }
      if (options_.level == Level::kQuick) continue;
      ChunkCheckOptions chunks;
      chunks.above = prev != nullptr && HasLooked(*prev, number)
                         ? prev->record.version
                         : 0;
      chunks.statistics = options_.level == Level::kDeep;
      chunks.far = [this] { return FarAnswers(); };
      chunks.on_silence = [this](const absl::Status& why) {
        return NotLookedAt(why);
      };
      if (files_.has_value()) {
        chunks.reach = [this](std::string_view key) {
          return files_->CheckUpTo(key);
        };
      }
      chunks.between = [&](std::uint64_t bytes) -> absl::Status {
        if (Stopped()) return absl::CancelledError("verify stopped");
        return Tell(done_ + std::min(before + bytes, BytesOf(*version)));
      };
      const std::uint64_t read = report_.bytes;
      absl::Status status;
      engine_.arena().execute([&, p = part.get()] {
        status = CheckChunks(database_, *p, chunks, &report_, &damage_);
      });
      CKPTREE_RETURN_IF_ERROR(status);
      before += report_.bytes - read;
    }
    all_whole_ = all_whole_ && version->whole;
    if (version->whole) CheckTotals(*version, leaves);
    if (options_.level == Level::kDeep && version->whole) {
      CheckDeadList(*version, prev);
      NoteReferences(*version);
    }
    return absl::OkStatus();
  }

  void Load(VersionView* version, const VersionView* prev) {
    for (const schema::PartRecord& record : version->parts) {
      const BasePart* known = nullptr;
      if (prev != nullptr) {
        const auto it = prev->loaded.find(record.part);
        if (it != prev->loaded.end()) known = it->second.get();
      }
      auto part = LoadPartSharing(database_, record, known, &damage_);
      if (!part.ok()) {
        version->whole = false;
        Hurt(*version, absl::StrFormat("part %d: %s", record.part,
                                       part.status().message()));
        continue;
      }
      for (const auto& leaf : (*part)->leaves) {
        if (leaf == nullptr) version->whole = false;
      }
      version->loaded[record.part] = *std::move(part);
    }
  }

  // What the step record says of all leaves together.
  void CheckTotals(const VersionView& version, const LeafTotals& leaves) {
    schema::StepRecord now = version.record;
    now.logical_bytes = now.new_bytes = 0;
    now.nan_count = now.inf_count = 0;
    std::vector<base::Digest> digests;
    for (const auto& [number, part] : version.loaded) {
      base::DigestStream digest;
      digest.Update(part->tree.view());
      for (const auto& leaf : part->leaves) {
        const schema::LeafRecord& record = leaf->record;
        digest.Update(leaf->value_digest.view());
        now.logical_bytes += record.byte_length;
        for (const Statistics& statistics : record.statistics) {
          now.nan_count += statistics.nan;
          now.inf_count += statistics.inf;
        }
        for (const schema::ChunkRef& ref : record.chunks) {
          if (ref.version == now.version) now.new_bytes += ref.length;
        }
        if (record.is_inline && record.since_version == now.version) {
          now.new_bytes += record.byte_length;
        }
      }
      digests.push_back(digest.Finish());
    }
    now.digest = StepDigest(digests);
    // Metrics do not follow from the leaves, and a NaN would not equal itself.
    schema::StepRecord said = version.record;
    now.metrics.clear();
    said.metrics.clear();
    const auto is_said = [&](const LeafTotals& totals) {
      now.leaf_count = totals.leaves;
      now.changed_leaves = totals.changed;
      now.nonfinite_leaves = totals.nonfinite;
      // Engines that did not count them left 0.
      now.unknown_leaves = said.unknown_leaves == 0 ? 0 : totals.unknown;
      return now == said;
    };
    // Older steps of several parts count a leaf in each that has it.
    if (!is_said(leaves) &&
        !is_said(CountLeavesByPart(version.loaded, now.version))) {
      Inconsistent(version,
                   "its totals or its digest are not those of its "
                   "leaves");
    }
  }

  // dead(v) = blocks(prev(v)) - blocks(v), part by part.
  void CheckDeadList(const VersionView& version, const VersionView* prev) {
    if (!version.dead.has_value()) return;
    if (version.dead->prev != 0 && prev == nullptr) {
      // Its base is damaged and was reported, or was never there.
      if (Find(version.dead->prev) == nullptr) {
        Inconsistent(version, absl::StrFormat("its base, version %d, is gone",
                                              version.dead->prev));
      }
      return;
    }
    // A save whose base could not be read is full and knows of no dead block.
    if (prev != nullptr && (!prev->whole || version.record.base == 0)) return;
    schema::DeadList now;
    now.branch = version.dead->branch;
    now.prev = version.dead->prev;
    if (prev != nullptr) {
      for (const auto& [number, base] : prev->loaded) {
        const auto part = version.loaded.find(number);
        const auto runs = part == version.loaded.end()
                              ? schema::RunsOf(BlocksOfPart(*base))
                              : DeadBlocks(base.get(), *part->second);
        if (!runs.empty()) now.parts.push_back({number, runs});
      }
    }
    if (!(now == *version.dead)) {
      Inconsistent(version, "its dead list is not what it left of its base");
    }
  }

  void NoteReferences(const VersionView& version) {
    for (const auto& [number, part] : version.loaded) {
      trees_.insert(part->tree);
      for (const schema::Block& block : BlocksOfPart(*part)) {
        blocks_.insert({number, block});
      }
    }
  }

  // Bases that no later version needs are let go: a verify holds few versions
  // in memory, however many there are.
  void ForgetBases(const VersionView& version) {
    for (VersionView& other : versions_) {
      if (other.record.version > version.record.version) break;
      if (other.loaded.empty()) continue;
      const auto successor = last_successor_.find(other.record.version);
      if (successor == last_successor_.end() ||
          successor->second <= version.record.version) {
        other.loaded.clear();
      }
    }
  }

  Engine& engine_;
  const kv::Database& database_;
  const VerifyOptions& options_;
  VerifyReport report_;
  Damage damage_;
  std::set<std::pair<std::uint32_t, std::int64_t>> wanted_;  // Branch, step.
  std::vector<VersionView> versions_;  // Ascending by version.
  std::map<std::uint64_t, std::uint64_t>
      last_successor_;  // By version; the newest.
  // Of the deep check of all steps: what there is, and all that is referred to.
  std::optional<SegmentFiles> files_;
  std::set<BlockId> blocks_;
  std::set<base::Digest> trees_;
  bool all_whole_ = true;
  std::optional<bool> far_answers_;  // Nothing: it was not asked yet.
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyOnce(Engine* engine,
                                        const VerifyOptions& options) {
  // What is here of a store that is read by its address says nothing of what is
  // there.
  engine->database().DoubtFetched(true);
  const absl::Cleanup trust = [engine] {
    engine->database().DoubtFetched(false);
  };
  absl::StatusOr<VerifyReport> report = absl::UnknownError("");
  // Removed versions are checked too: none may be freed until then.
  engine->RunPaused([&] { report = Verifier(engine, options).Run(); });
  return report;
}

}  // namespace ckptree::internal
