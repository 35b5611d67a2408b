// SPDX-License-Identifier: Apache-2.0

// Which steps of a store are to be saved into another one, and saving them.
//
// 1. What is there: records of both stores are read, and nothing is changed
//    before it is known that no step clashes.
// 2. Each step is saved by one commit, in the order of versions, so that a step
//    is compared with the one before it as it was when it was first saved.
// 3. Tags, pins and metadata follow their steps; then what was copied is read
//    back.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/copy.h"
#include "core/engine/engine.h"
#include "core/engine/hold_listed.h"
#include "core/engine/step_reader.h"
#include "core/engine/store_engine.h"
#include "core/process/guarded_call.h"
#include "core/process/out_of_reach.h"
#include "core/repair/step_copy.h"

namespace ckptree {
namespace internal {
namespace {

// Steps of several processes, and arrays that are packed, are cut otherwise in
// a copy: their digest is another then, and this says what it was.
constexpr std::string_view kDigestOfSource = "copied_digest";

constexpr char kNotKept[] = "the policy of the other store does not keep it";

absl::StatusOr<std::set<std::string>> DigestsOf(const Step& step) {
  std::set<std::string> digests = {step.info().digest};
  CKPTREE_ASSIGN_OR_RETURN(const StepMetadata metadata, step.Metadata());
  for (const auto& [name, text] : metadata.lineage) {
    if (name == kDigestOfSource) digests.insert(text);
  }
  return digests;
}

bool Alike(const LeafInfo& a, const LeafInfo& b) {
  return a.path == b.path && a.kind == b.kind && a.dtype == b.dtype &&
         a.packed == b.packed && a.shape == b.shape && a.tag == b.tag &&
         a.tie_to == b.tie_to;
}

bool SameMetrics(const StepInfo& a, const StepInfo& b) {
  // NaN is equal to itself here.
  return std::equal(a.metrics.begin(), a.metrics.end(), b.metrics.begin(),
                    b.metrics.end(), [](const auto& x, const auto& y) {
                      return x.first == y.first &&
                             (x.second == y.second ||
                              (x.second != x.second && y.second != y.second));
                    });
}

// Whether both have the same values under the same names. Reads arrays only
// where their digests are of other pieces. `failed`: which of the two could not
// be read, where this fails.
absl::StatusOr<bool> SameContent(const Step& a, const Step& b,
                                 const Step** failed) {
  const auto of = [failed](const Step& step, auto read) {
    if (!read.ok()) *failed = &step;
    return read;
  };
  if (!SameMetrics(a.info(), b.info()) || a.info().note != b.info().note) {
    return false;
  }
  CKPTREE_ASSIGN_OR_RETURN(const StepMetadata of_a, of(a, a.Metadata()));
  CKPTREE_ASSIGN_OR_RETURN(const StepMetadata of_b, of(b, b.Metadata()));
  if (of_a.custom != of_b.custom || of_a.items != of_b.items) return false;
  CKPTREE_ASSIGN_OR_RETURN(const std::set<std::string> digests,
                           of(a, DigestsOf(a)));
  CKPTREE_ASSIGN_OR_RETURN(const std::set<std::string> others,
                           of(b, DigestsOf(b)));
  for (const std::string& digest : digests) {
    if (others.contains(digest)) return true;
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> leaves,
                           of(a, a.Leaves()));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> theirs,
                           of(b, b.Leaves()));
  if (!std::equal(leaves.begin(), leaves.end(), theirs.begin(), theirs.end(),
                  Alike)) {
    return false;
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafDetail> details,
                           of(a, a.Details(leaves)));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafDetail> their_details,
                           of(b, b.Details(theirs)));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].is_leaf() || details[i].digest == their_details[i].digest) {
      continue;
    }
    if (CutAlike(details[i], their_details[i])) return false;
    CKPTREE_ASSIGN_OR_RETURN(const LeafValue value,
                             of(a, a.Value(leaves[i].path)));
    CKPTREE_ASSIGN_OR_RETURN(const LeafValue other,
                             of(b, b.Value(theirs[i].path)));
    if (value.bytes != other.bytes) return false;
  }
  return true;
}

std::string NameOf(const StepInfo& info) {
  return StepText(info.branch, info.step);
}

// Confined to one thread.
class StoreCopier {
 public:
  StoreCopier(const Store& from, Store* to, const CopyOptions& options)
      : from_(from), to_(to), options_(options) {}

  absl::StatusOr<CopyReport> Run() {
    if (to_ == nullptr && !options_.dry_run) {
      return absl::InvalidArgumentError("no store to copy into");
    }
    // Beside a trainer whose policy removes steps.
    CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const void> held,
                             HoldListed(from_));
    CKPTREE_RETURN_IF_ERROR(FindWanted());
    CKPTREE_RETURN_IF_ERROR(FindThere());
    for (const Wanted& wanted : wanted_) {
      if (Cancelled()) return absl::CancelledError("interrupted");
      if (!options_.dry_run) {
        CKPTREE_RETURN_IF_ERROR(CopyOne(wanted));
        continue;
      }
      Tell(wanted.info, wanted.there ? CopiedStep::Result::kThere
                                     : CopiedStep::Result::kPlanned);
    }
    if (options_.dry_run) return std::move(report_);
    if (!options_.steps) CKPTREE_RETURN_IF_ERROR(CopyMetadata());
    FindRemoved();
    CKPTREE_RETURN_IF_ERROR(ReadBack());
    return std::move(report_);
  }

 private:
  struct Wanted {
    StepInfo info;
    bool there = false;       // With the same values.
    bool overwrites = false;  // Another step has the number.
    // Why it cannot be compared with that now: it is damaged, or out of reach.
    absl::Status unread = {};
  };

  bool Cancelled() const { return options_.cancelled && options_.cancelled(); }

  absl::Status FindWanted() {
    CKPTREE_ASSIGN_OR_RETURN(branches_, from_.Branches());
    std::vector<StepInfo> steps;
    if (options_.steps) {
      std::set<std::uint64_t> seen;
      for (const StepSelector& selector : *options_.steps) {
        CKPTREE_ASSIGN_OR_RETURN(StepInfo info, from_.Resolve(selector));
        if (seen.insert(info.version).second) steps.push_back(std::move(info));
      }
    } else {
      for (const BranchInfo& branch : branches_) {
        CKPTREE_ASSIGN_OR_RETURN(std::vector<StepInfo> of_branch,
                                 from_.Steps(branch.name));
        steps.insert(steps.end(), std::make_move_iterator(of_branch.begin()),
                     std::make_move_iterator(of_branch.end()));
      }
    }
    std::sort(steps.begin(), steps.end(),
              [](const StepInfo& a, const StepInfo& b) {
                return a.version < b.version;
              });
    for (StepInfo& info : steps) wanted_.push_back({std::move(info)});
    return absl::OkStatus();
  }

  // Step 1.
  absl::Status FindThere() {
    if (to_ == nullptr) return Total();
    std::map<std::string, std::map<std::int64_t, StepInfo>> theirs;
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                             to_->Branches());
    for (const BranchInfo& branch : branches) {
      CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                               to_->Steps(branch.name));
      for (const StepInfo& info : steps) theirs[branch.name][info.step] = info;
    }
    absl::Status first;  // That would be replaced.
    for (Wanted& wanted : wanted_) {
      if (Cancelled()) return absl::CancelledError("interrupted");
      const auto& of_branch = theirs[wanted.info.branch];
      const auto found = of_branch.find(wanted.info.step);
      if (found == of_branch.end()) continue;
      const StepSelector selector =
          AtStep(wanted.info.step, wanted.info.branch);
      const absl::StatusOr<Step> ours = from_.OpenStep(selector);
      if (absl::IsNotFound(ours.status())) continue;  // Said when copied.
      if (StaysBehind(ours.status())) {
        wanted.unread = ours.status();
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(ours.status());
      CKPTREE_ASSIGN_OR_RETURN(const Step other, to_->OpenStep(selector));
      const Step* failed = nullptr;
      const absl::StatusOr<bool> same = SameContent(*ours, other, &failed);
      if (absl::IsCancelled(same.status())) return same.status();
      if (same.ok() && *same) {
        wanted.there = true;
        continue;
      }
      if (StaysBehind(same.status()) &&
          (failed == &*ours || OutOfReach(same.status()).has_value())) {
        wanted.unread = same.status();
        continue;
      }
      wanted.overwrites = true;
      absl::Status differs =
          same.ok()
              ? absl::AlreadyExistsError(absl::StrFormat(
                    "step %s is there with other values, saved %s; "
                    "nothing was copied",
                    NameOf(wanted.info),
                    absl::FormatTime(absl::RFC3339_sec, found->second.committed,
                                     absl::UTCTimeZone())))
              : same.status();
      if (!options_.overwrite) return differs;
      if (first.ok() && same.ok()) first = std::move(differs);
    }
    if (options_.of_same_store && !first.ok() &&
        std::ranges::none_of(wanted_, &Wanted::there)) {
      return first;
    }
    return Total();
  }

  absl::Status Total() {
    for (const Wanted& wanted : wanted_) {
      if (!wanted.there) total_ += wanted.info.logical_bytes;
    }
    return absl::OkStatus();
  }

  void Tell(const StepInfo& info, CopiedStep::Result result,
            std::string why = "", std::uint64_t new_bytes = 0) {
    report_.steps.push_back({info.branch, info.step, result, std::move(why),
                             info.leaf_count, info.logical_bytes, new_bytes});
    if (options_.on_step) options_.on_step(report_.steps.back());
    const bool stays_behind = result != CopiedStep::Result::kCopied &&
                              result != CopiedStep::Result::kThere &&
                              result != CopiedStep::Result::kPlanned;
    if (!stays_behind) return;
    const absl::Status why_not = absl::NotFoundError("it was not copied");
    for (const std::string& tag : info.tags) {
      Problem("tag " + tag + " of step ", info, why_not);
    }
    if (info.pinned) Problem("the pin of step ", info, why_not);
  }

  // Of a step that cannot be read: others can.
  static bool StaysBehind(const absl::Status& why) {
    return absl::IsDataLoss(why) || OutOfReach(why).has_value();
  }
  absl::Status TellUnread(const StepInfo& info, const absl::Status& why) {
    if (const auto silent = OutOfReach(why); silent.has_value()) {
      report_.silent_remote = *silent;
      Tell(info, CopiedStep::Result::kUnreachable, std::string(why.message()));
    } else {
      Tell(info, CopiedStep::Result::kDamaged, std::string(why.message()));
    }
    return absl::OkStatus();
  }

  // Step 2.
  absl::Status CopyOne(const Wanted& wanted) {
    const StepInfo& info = wanted.info;
    const StepSelector selector = AtStep(info.step, info.branch);
    if (wanted.there) {
      Tell(info, CopiedStep::Result::kThere);
      CarryNames(info);
      if (options_.verify_all) read_back_.push_back(selector);
      return absl::OkStatus();
    }
    // What is there in its place stays.
    if (!wanted.unread.ok()) return TellUnread(info, wanted.unread);
    const absl::StatusOr<Step> step = from_.OpenStep(selector);
    if (absl::IsCancelled(step.status())) return step.status();
    if (absl::IsNotFound(step.status())) {
      Tell(info, CopiedStep::Result::kGone);
      return absl::OkStatus();
    }
    if (StaysBehind(step.status())) return TellUnread(info, step.status());
    CKPTREE_RETURN_IF_ERROR(step.status());
    CKPTREE_RETURN_IF_ERROR(MakeBranch(info.branch));
    StepCopyOptions copying;
    copying.memory_bytes = options_.memory_bytes;
    copying.whole = true;
    copying.overwrite = wanted.overwrites;
    copying.lineage = {{std::string(kDigestOfSource), info.digest}};
    absl::Status out_of_reach;
    copying.out_of_reach = &out_of_reach;
    copying.cancelled = [this] { return Cancelled(); };
    copying.on_read = [this](std::uint64_t bytes) {
      done_ += bytes;
      if (options_.on_progress) options_.on_progress(done_, total_);
    };
    const absl::StatusOr<RecoveredStep> copied = CopyStep(*step, to_, copying);
    if (absl::IsFailedPrecondition(copied.status())) {
      Tell(info, CopiedStep::Result::kRefused,
           std::string(copied.status().message()));
      return absl::OkStatus();
    }
    CKPTREE_RETURN_IF_ERROR(copied.status());
    if (!copied->saved && !out_of_reach.ok()) {
      return TellUnread(info, out_of_reach);
    }
    if (!copied->saved) {
      Tell(info,
           copied->lost.empty() ? CopiedStep::Result::kRefused
                                : CopiedStep::Result::kDamaged,
           copied->why);
      return absl::OkStatus();
    }
    // A policy of the other store may have taken it at once.
    const absl::StatusOr<StepInfo> made = to_->Resolve(selector);
    if (!made.ok()) {
      Tell(info, CopiedStep::Result::kRefused, kNotKept);
      return absl::OkStatus();
    }
    Tell(info, CopiedStep::Result::kCopied, "", made->new_bytes);
    read_back_.push_back(selector);
    CarryNames(info);
    return absl::OkStatus();
  }

  // What a branch of `from_` goes on from in the other store.
  struct Origin {
    std::optional<std::uint32_t> branch;  // None: it was dropped.
    std::uint64_t version = 0;            // 0: that save is not there.
  };

  absl::StatusOr<Origin> OriginOf(
      const schema::BranchRecord& branch,
      const std::map<std::uint32_t, schema::BranchRecord>& branches) {
    Origin origin;
    const auto before = branches.find(branch.origin_branch);
    if (before == branches.end()) return origin;
    const std::string& name = before->second.name;
    CKPTREE_RETURN_IF_ERROR(MakeBranch(name));
    const Catalog& theirs = StoreEngine::Of(*to_).catalog();
    CKPTREE_ASSIGN_OR_RETURN(origin.branch, theirs.FindBranch(name));
    const StepRecordPtr step = StoreEngine::Of(from_).catalog().Find(
        before->first, branch.origin_step);
    const StepRecordPtr copy = theirs.Find(*origin.branch, branch.origin_step);
    // What has that number may be another step than the origin.
    if (step == nullptr || copy == nullptr ||
        step->version != branch.origin_version) {
      return origin;
    }
    const StepSelector at = AtStep(branch.origin_step, name);
    const absl::StatusOr<Step> a = from_.OpenStep(at);
    const absl::StatusOr<Step> b = to_->OpenStep(at);
    const Step* failed = nullptr;
    if (a.ok() && b.ok() && SameContent(*a, *b, &failed).value_or(false)) {
      origin.version = copy->version;
    }
    return origin;
  }

  // Whether a branch of the other store goes on from there.
  bool GoesOnFrom(const schema::BranchRecord& other, std::int64_t step,
                  const Origin& origin) const {
    const Catalog& theirs = StoreEngine::Of(*to_).catalog();
    if (other.origin_step != step) return false;
    if (!origin.branch) return !theirs.Branches().contains(other.origin_branch);
    if (other.origin_branch != *origin.branch) return false;
    if (origin.version != 0) return other.origin_version == origin.version;
    // Removed here, and there it may still be what it was. Where a tip is
    // missing an older engine wrote any version.
    const StepRecordPtr there = theirs.Find(other.origin_branch, step);
    return other.tip != 0 || there == nullptr ||
           there->version != other.origin_version;
  }

  // The branch: from the step that it comes from where the other store has
  // that, else from none, also where another step has its number there.
  absl::Status MakeBranch(const std::string& name) {
    if (name.empty() || !made_.insert(name).second) return absl::OkStatus();
    Engine& far = StoreEngine::Of(*to_);
    const Catalog& ours = StoreEngine::Of(from_).catalog();
    CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number, ours.FindBranch(name));
    const auto branches = ours.Branches();
    schema::BranchRecord branch = branches.at(number);
    CKPTREE_ASSIGN_OR_RETURN(const Origin origin, OriginOf(branch, branches));
    const auto there = far.catalog().FindBranch(name);
    bool replaces = false;
    if (there.ok()) {
      const schema::BranchRecord other = far.catalog().Branches().at(*there);
      if (GoesOnFrom(other, branch.origin_step, origin)) {
        return absl::OkStatus();
      }
      // Made by a copy before its origin was, or anew since.
      replaces = other.created_ns == branch.created_ns ||
                 (options_.overwrite && far.catalog().Steps(*there).empty());
      if (!replaces) {
        if (!options_.steps) TellOther(branch, other);
        return absl::OkStatus();
      }
    }
    branch.origin_branch = origin.branch.value_or(0);
    branch.tip = branch.origin_version = origin.version;
    // A fork has a version that it comes from: one that no step will have.
    if (origin.version == 0)
      branch.origin_version = far.writer()->TakeVersion();
    const bool orphan = !origin.branch.has_value();
    return replaces ? far.commits().ReplaceBranch(std::move(branch), orphan)
                    : far.commits().AdoptBranch(std::move(branch), orphan);
  }

  void TellOther(const schema::BranchRecord& ours,
                 const schema::BranchRecord& theirs) {
    const auto origin = [](const Store& store,
                           const schema::BranchRecord& branch) {
      const Catalog& catalog = StoreEngine::Of(store).catalog();
      return catalog.Branches().contains(branch.origin_branch)
                 ? absl::StrCat(
                       "step ",
                       StepText(catalog.BranchName(branch.origin_branch),
                                branch.origin_step))
                 : absl::StrCat("step ", branch.origin_step,
                                " of a dropped branch");
    };
    report_.problems.push_back(absl::StrFormat(
        "branch %s is another one there: it goes on from %s, and here from %s; "
        "what it has there stays",
        ours.name, origin(*to_, theirs), origin(from_, ours)));
  }

  // Step 3.
  void CarryNames(const StepInfo& info) {
    const StepSelector step = AtStep(info.step, info.branch);
    for (const std::string& tag : info.tags) {
      const absl::Status status =
          to_->Tag(tag, step, {.move = options_.overwrite});
      if (!status.ok()) Problem("tag " + tag + " of step ", info, status);
    }
    if (!info.pinned) return;
    const absl::Status status = to_->Pin(step);
    if (!status.ok()) Problem("the pin of step ", info, status);
  }

  void Problem(std::string_view what, const StepInfo& info,
               const absl::Status& status) {
    report_.problems.push_back(absl::StrFormat("%s%s: %s", what, NameOf(info),
                                               std::string(status.message())));
  }

  absl::Status CopyMetadata() {
    for (const BranchInfo& branch : branches_) {
      CKPTREE_RETURN_IF_ERROR(MakeBranch(branch.name));
      CKPTREE_ASSIGN_OR_RETURN(std::string ours, from_.Metadata(branch.name));
      CKPTREE_ASSIGN_OR_RETURN(const std::string theirs,
                               to_->Metadata(branch.name));
      if (ours.empty() || ours == theirs) continue;
      if (!theirs.empty() && !options_.overwrite) {
        report_.problems.push_back(absl::StrFormat(
            "the metadata of %s is another there",
            branch.name.empty() ? "the main branch" : "branch " + branch.name));
        continue;
      }
      CKPTREE_RETURN_IF_ERROR(to_->SetMetadata(std::move(ours), branch.name));
    }
    return absl::OkStatus();
  }

  // A later save may have removed what was there, or an earlier one made.
  void FindRemoved() {
    for (CopiedStep& step : report_.steps) {
      if (step.result != CopiedStep::Result::kCopied &&
          step.result != CopiedStep::Result::kThere) {
        continue;
      }
      const absl::StatusOr<StepInfo> found =
          to_->Resolve(AtStep(step.step, step.branch));
      if (!absl::IsNotFound(found.status())) continue;
      step.result = CopiedStep::Result::kRefused;
      step.why = kNotKept;
      step.new_bytes = 0;
      if (options_.on_step) options_.on_step(step);
    }
  }

  absl::Status ReadBack() {
    if (read_back_.empty()) return absl::OkStatus();
    std::erase_if(read_back_, [this](const StepSelector& selector) {
      return !to_->Resolve(selector).ok();
    });
    if (read_back_.empty()) return absl::OkStatus();
    VerifyOptions verifying;
    verifying.steps = read_back_;
    verifying.cancelled = [this] { return Cancelled(); };
    verifying.on_progress = options_.on_progress;
    CKPTREE_ASSIGN_OR_RETURN(report_.verified, to_->Verify(verifying));
    return absl::OkStatus();
  }

  const Store& from_;
  Store* const to_;
  const CopyOptions& options_;
  std::vector<BranchInfo> branches_;
  std::vector<Wanted> wanted_;
  std::set<std::string> made_;  // Branches.
  std::vector<StepSelector> read_back_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  CopyReport report_;
};

}  // namespace
}  // namespace internal

std::string_view Name(CopiedStep::Result result) {
  switch (result) {
    case CopiedStep::Result::kCopied:
      return "copied";
    case CopiedStep::Result::kThere:
      return "there";
    case CopiedStep::Result::kPlanned:
      return "planned";
    case CopiedStep::Result::kGone:
      return "gone";
    case CopiedStep::Result::kRefused:
      return "refused";
    case CopiedStep::Result::kDamaged:
      return "damaged";
    case CopiedStep::Result::kUnreachable:
      return "unreachable";
  }
  return "unknown";
}

std::uint64_t CopyReport::CountOf(CopiedStep::Result result) const {
  return static_cast<std::uint64_t>(std::count_if(
      steps.begin(), steps.end(),
      [result](const CopiedStep& step) { return step.result == result; }));
}

bool CopyReport::complete() const {
  return problems.empty() && CountOf(CopiedStep::Result::kGone) == 0 &&
         CountOf(CopiedStep::Result::kRefused) == 0 &&
         CountOf(CopiedStep::Result::kDamaged) == 0 &&
         CountOf(CopiedStep::Result::kUnreachable) == 0 &&
         std::all_of(verified.findings.begin(), verified.findings.end(),
                     [](const Finding& finding) {
                       return finding.severity == Finding::Severity::kWarning;
                     });
}

absl::StatusOr<CopyReport> Copy(const Store& from, Store* to,
                                const CopyOptions& options) {
  return internal::GuardedResult("copying", [&] {
    return internal::StoreCopier(from, to, options).Run();
  });
}

}  // namespace ckptree
