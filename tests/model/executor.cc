// SPDX-License-Identifier: Apache-2.0

#include "tests/model/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/model/store.h"
#include "tests/testutil/store_on.h"

namespace ckptree::testing {
namespace {

using Kind = ModelOperation::Kind;
using Fate = ModelOperation::Save::Fate;

std::optional<std::string> Must(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  return std::string(status.ToString());
}

// Gives the save a leaf twice.
void Spoil(StepBuilder& builder) {
  builder.PutInt("spoiled/x", 1).PutInt("spoiled/x", 2);
}

}  // namespace

absl::Status ModelExecutor::Open(bool create) {
  absl::StatusOr<Store> store = create
                                    ? CreateStoreOn(fs_, directory_, options_)
                                    : OpenStoreOn(fs_, directory_, options_);
  if (!store.ok()) return store.status();
  store_.emplace(*std::move(store));
  // One that a process died under.
  const absl::StatusOr<std::vector<BranchInfo>> branches = store_->Branches();
  if (!branches.ok()) return branches.status();
  for (const BranchInfo& branch : *branches) {
    const absl::StatusOr<PolicyInfo> policy = store_->Policy(branch.name);
    if (!policy.ok()) return policy.status();
    if (policy->text.empty() || policy->text == "all") continue;
    absl::Status status = store_->SetPolicy(PreserveAll{}, branch.name);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::optional<std::string> ModelExecutor::Close() {
  absl::Status status = store_->Close();
  store_.reset();
  return Must(status);
}

std::optional<std::string> ModelExecutor::Saves(const ModelOperation& operation,
                                                const TrialPipe& pipe,
                                                std::vector<bool>* results) {
  const std::string branch = BranchName(operation.saves[0].step / kBranchSteps);
  if (operation.policy >= 0) {
    absl::Status status = store_->SetPolicy(LatestN{operation.policy}, branch);
    if (!status.ok()) return Must(status);
  }
  std::vector<SaveHandle> handles;
  for (const ModelOperation::Save& save : operation.saves) {
    StepBuilder builder =
        store_->Begin(save.step % kBranchSteps,
                      {.overwrite = save.overwrite,
                       .tagged = save.overwrite,
                       .branch = BranchName(save.step / kBranchSteps)});
    PutAll(*save.content, builder);
    if (save.fate == Fate::kBadInput) Spoil(builder);
    handles.push_back(std::move(builder).Commit());
    if (save.fate == Fate::kCancelled) handles.back().Cancel();
  }
  for (std::size_t i = 0; i < handles.size(); ++i) {
    const ModelOperation::Save& save = operation.saves[i];
    absl::Status status = handles[i].WaitCommitted(absl::Seconds(30));
    const bool right =
        save.fate == Fate::kCommits    ? status.ok()
        : save.fate == Fate::kBadInput ? absl::IsInvalidArgument(status)
        : save.fate == Fate::kCancelled
            ? status.ok() || absl::IsCancelled(status)
        : save.fate == Fate::kNotKept ? absl::IsFailedPrecondition(status)
        : save.overwrite              ? absl::IsFailedPrecondition(status)
                                      : absl::IsAlreadyExists(status);
    if (!right) {
      return absl::StrFormat("save of %d: %s", save.step,
                             std::string(status.ToString()));
    }
    pipe.Say(status.ok() ? "SAVED 1" : "SAVED 0");
    results->push_back(status.ok());
  }
  if (operation.policy < 0) return std::nullopt;
  if (absl::Status status = handles[0].PolicyProblem(); !status.ok()) {
    return Must(status);
  }
  return Must(store_->SetPolicy(PreserveAll{}, branch));
}

std::optional<std::string> ModelExecutor::Catalog(
    const ModelOperation& operation, const ModelState& before) {
  if (auto wrong = CatalogDifference(*store_, before)) return wrong;
  StepSelector newest = Latest();
  newest.branch = BranchName(before.steps.rbegin()->first / kBranchSteps);
  absl::StatusOr<StepInfo> latest = store_->Resolve(newest);
  if (!latest.ok()) return Must(latest.status());
  if (latest->step != before.steps.rbegin()->first % kBranchSteps) {
    return "another latest";
  }
  absl::StatusOr<Step> step = store_->OpenStep(SelectorOf(operation.step));
  if (!step.ok()) return Must(step.status());
  absl::StatusOr<std::vector<LeafInfo>> all = step->Leaves();
  if (!all.ok()) return Must(all.status());
  std::vector<LeafInfo> leaves;
  for (const LeafInfo& leaf : *all) {
    if (leaf.is_leaf() && leaf.kind == EntryKind::kArray)
      leaves.push_back(leaf);
  }
  absl::StatusOr<std::vector<LeafDetail>> details = step->Details(leaves);
  if (!details.ok()) return Must(details.status());
  if (details->size() != leaves.size()) return "another number of details";
  const ModelStep& content = *before.steps.at(operation.step);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const ModelLeaf& leaf = content.leaves.at(leaves[i].name);
    const LeafDetail& detail = (*details)[i];
    if (detail.bytes != leaf.bytes.size()) {
      return leaves[i].name + ": another size";
    }
    std::string value =
        absl::StrFormat("%d:%d:", leaf.boxes, static_cast<int>(leaf.dtype));
    for (std::int64_t dim : leaf.shape) absl::StrAppend(&value, dim, ",");
    value += leaf.bytes;
    const std::string& digest =
        digest_of_.try_emplace(value, detail.digest).first->second;
    if (digest != detail.digest) {
      return leaves[i].name + ": equal values, other digests";
    }
  }
  return std::nullopt;
}

// What deleting the step frees is what was said before.
std::optional<std::string> ModelExecutor::DeletePredicted(std::int64_t step) {
  if (auto wrong = CollectAll(*store_)) return wrong;
  const StepSelector selector = SelectorOf(step);
  absl::StatusOr<StepInfo> info = store_->Resolve(selector);
  if (!info.ok()) return Must(info.status());
  absl::StatusOr<UsageReport> usage = store_->Usage();
  if (!usage.ok()) return Must(usage.status());
  absl::StatusOr<FreedBytes> predicted = store_->WouldFree({selector});
  if (!predicted.ok()) return Must(predicted.status());
  absl::StatusOr<std::vector<SubtreeUsage>> whole =
      store_->Subtrees(selector, 0);
  if (!whole.ok()) return Must(whole.status());
  if (usage->pending_bytes != 0) return "something is pending";
  if (usage->dead_bytes != 0) return "something dead is left in files";
  const auto entry = std::ranges::find_if(
      usage->steps,
      [&](const StepUsage& used) { return used.version == info->version; });
  if (entry == usage->steps.end()) return "a step of which no usage is known";
  const std::uint64_t own = entry->unique_bytes;
  // What is elsewhere alone (local_keep) is not freed here.
  const bool far = store_->Info().far_bytes > 0;
  if (predicted->bytes > own || (!far && predicted->bytes < own)) {
    return absl::StrFormat("%d bytes are its own, %d would go", own,
                           predicted->bytes);
  }
  // Packs may have bytes of leaves that are no more.
  if (whole->size() != 1 || whole->front().unique_bytes > own) {
    return "another sum of the subtrees";
  }
  const std::uint64_t values = whole->front().unique_value_bytes;
  if (values > whole->front().unique_bytes || values > entry->logical_bytes) {
    return "more values than there are";
  }
  if (absl::Status status = store_->Delete(selector, {.tagged = true});
      !status.ok()) {
    return Must(status);
  }
  CollectOptions options;
  options.min_dead_fraction = 0;
  absl::StatusOr<CollectReport> report = store_->Collect(options);
  if (!report.ok()) return Must(report.status());
  // Some of them may have left the disk in the meantime.
  const std::uint64_t freed = report->bytes_freed + report->far_bytes_freed;
  if (freed != own || report->blocks_freed != predicted->blocks ||
      report->bytes_freed > predicted->bytes) {
    return absl::StrFormat(
        "%d blocks of %d bytes went, %d here, %d of %d were foretold, %d here",
        report->blocks_freed, freed, report->bytes_freed, predicted->blocks,
        own, predicted->bytes);
  }
  return std::nullopt;
}

std::optional<std::string> ModelExecutor::Collect(
    const ModelOperation& operation) {
  CollectOptions options;
  options.min_dead_fraction = 0;
  std::uint64_t done = 0;
  options.on_progress = [&done](const CollectProgress& progress) {
    done = progress.versions_done;
  };
  options.cancelled = [&] {
    return operation.versions >= 0 &&
           done >= static_cast<std::uint64_t>(operation.versions);
  };
  if (operation.versions >= 0) {
    const absl::Status status = store_->Collect(options).status();
    return absl::IsCancelled(status) ? std::nullopt : Must(status);
  }
  if (auto wrong = CollectAll(*store_)) return wrong;
  // A quarter of them: it reads everything.
  if (operation.seed % 4 != 0) return std::nullopt;
  return DeepFindings(*store_, /*and_leaks=*/true);
}

std::optional<std::string> ModelExecutor::Execute(
    const ModelOperation& operation, const ModelState& before,
    const TrialPipe& pipe, std::vector<bool>* results) {
  if (operation.fault) fs_->Arm({*operation.fault});
  std::optional<std::string> wrong;
  switch (operation.kind) {
    case Kind::kSaves:
      wrong = Saves(operation, pipe, results);
      break;
    case Kind::kDelete: {
      if (!operation.refused && !operation.fault && operation.seed % 3 == 0) {
        wrong = DeletePredicted(operation.step);
        break;
      }
      absl::Status status =
          store_->Delete(SelectorOf(operation.step), {.tagged = true});
      const bool right = !operation.refused ? status.ok()
                         : before.pins.contains(operation.step)
                             ? absl::IsFailedPrecondition(status)
                             : absl::IsNotFound(status);
      if (!right) wrong = "Delete: " + std::string(status.ToString());
      break;
    }
    case Kind::kTag:
      wrong = Must(store_->Tag(operation.tag, SelectorOf(operation.step),
                               {.move = true}));
      break;
    case Kind::kUntag:
      wrong = Must(store_->Untag(operation.tag));
      break;
    case Kind::kPin:
      wrong = Must(store_->Pin(SelectorOf(operation.step)));
      break;
    case Kind::kUnpin:
      wrong = Must(store_->Unpin(SelectorOf(operation.step)));
      break;
    case Kind::kReopen:
      wrong = Close();
      if (!wrong) wrong = Must(Open(/*create=*/false));
      break;
    case Kind::kRestore:
      wrong = StepDifference(*store_, operation.step,
                             *before.steps.at(operation.step));
      break;
    case Kind::kBox: {
      FaultRandom random(operation.seed);
      absl::StatusOr<Step> step = store_->OpenStep(SelectorOf(operation.step));
      wrong = step.ok() ? BoxDifference(*step, *before.steps.at(operation.step),
                                        random)
                        : Must(step.status());
      break;
    }
    case Kind::kCatalog:
      wrong = Catalog(operation, before);
      break;
    case Kind::kVerify:
      wrong = DeepFindings(*store_);
      break;
    case Kind::kCollect:
      wrong = Collect(operation);
      break;
    case Kind::kRetain: {
      std::vector<StepSelector> victims;
      for (std::int64_t step :
           before.Victims(operation.branch, operation.versions)) {
        victims.push_back(SelectorOf(step));
      }
      wrong = Must(store_->Delete(victims, {.tagged = true}));
      break;
    }
    case Kind::kFork:
      wrong = Must(store_->Fork(SelectorOf(operation.step),
                                BranchName(operation.branch)));
      break;
    case Kind::kDropBranch: {
      const std::string branch = BranchName(operation.branch);
      const bool tagged =
          std::ranges::any_of(before.tags, [&](const auto& tag) {
            return tag.second / kBranchSteps == operation.branch;
          });
      if (tagged && !operation.fault) {
        const absl::Status refused = store_->DropBranch(branch);
        if (!absl::IsFailedPrecondition(refused)) {
          wrong = "DropBranch of a tagged step: " + refused.ToString();
          break;
        }
      }
      wrong = Must(store_->DropBranch(branch, {.tagged = tagged}));
      break;
    }
  }
  if (operation.fault) fs_->Disarm();
  return wrong;
}

}  // namespace ckptree::testing
