// SPDX-License-Identifier: Apache-2.0

#include "tests/model/driver.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptree::testing {
namespace {

using Kind = ModelOperation::Kind;
using Save = ModelOperation::Save;

constexpr std::size_t kManySteps = 25;

}  // namespace

std::string ModelOperation::Text() const {
  static constexpr std::string_view kNames[] = {
      "saves",  "delete",  "tag",     "untag",       "pin",
      "unpin",  "reopen",  "restore", "box",         "catalog",
      "verify", "collect", "fork",    "drop branch", "retain"};
  std::string text(kNames[static_cast<int>(kind)]);
  for (const Save& save : saves) {
    static constexpr std::string_view kFates[] = {"", " bad", " cancelled",
                                                  " refused", " not kept"};
    absl::StrAppendFormat(&text, " %d (%d leaves%s%s)", save.step,
                          save.content->leaves.size(),
                          save.overwrite ? ", overwrite" : "",
                          std::string(kFates[static_cast<int>(save.fate)]));
  }
  if (saves.empty()) absl::StrAppend(&text, " ", step);
  if (refused) text += " refused";
  if (!tag.empty()) absl::StrAppend(&text, " ", tag);
  if (fault) absl::StrAppend(&text, " [", testing::Text(*fault), "]");
  return text;
}

std::int64_t ModelDriver::AnyStep() {
  auto it = state_.steps.begin();
  std::advance(it, random_.Int(static_cast<int>(state_.steps.size())));
  return it->first;
}

Save ModelDriver::NextSave(bool large) {
  Save save;
  auto at = state_.branches.begin();
  if (state_.branches.size() > 1 && random_.OneIn(2)) {
    std::advance(at, random_.Int(static_cast<int>(state_.branches.size())));
  }
  const std::int64_t branch = *at;
  ModelState::Content& last = last_[branch];
  std::int64_t& next = next_step_[branch];
  if (next == 0) next = branch * kBranchSteps + 10;
  ModelStep content = last ? Changed(*last, random_, large) : TinyStep(random_);
  if (random_.OneIn(60)) content = TinyStep(random_);
  save.content = std::make_shared<const ModelStep>(std::move(content));
  last = save.content;
  save.step = next;
  next += 1 + random_.Int(3);
  if (random_.OneIn(10)) {  // Out of order: fill a gap, if it is one.
    const std::int64_t below =
        branch * kBranchSteps +
        static_cast<std::int64_t>(random_.Below(
            static_cast<std::uint64_t>(save.step % kBranchSteps)));
    if (!state_.steps.contains(below)) save.step = below;
  }
  return save;
}

ModelOperation ModelDriver::Next() {
  ModelOperation op;
  op.seed = random_.Next();
  const int what = random_.Int(1000);
  const bool some = !state_.steps.empty();
  const bool many = state_.steps.size() > kManySteps;
  if (!some || what < 330) {
    op.kind = Kind::kSaves;
    op.saves.push_back(NextSave(random_.OneIn(25)));
    if (some && random_.OneIn(6)) {  // Of a step that exists.
      Save& save = op.saves[0];
      save.step = AnyStep();
      save.overwrite = !random_.OneIn(4);
      if (!save.overwrite || state_.pins.contains(save.step)) {
        save.fate = Save::Fate::kRefused;
      }
    } else if (random_.OneIn(30)) {
      op.saves[0].fate = Save::Fate::kBadInput;
    }
    if (random_.OneIn(many ? 3 : 12)) {
      op.policy = 1 + random_.Int(8);
      Save& save = op.saves[0];
      ModelState after = state_;
      if (after.steps.contains(save.step)) after.Delete(save.step);
      after.Save(save.step, save.content);
      const auto victims = after.Victims(save.step / kBranchSteps, op.policy,
                                         /*by_policy=*/true);
      const bool goes = std::ranges::find(victims, save.step) != victims.end();
      if (goes && save.fate == Save::Fate::kCommits) {
        save.fate = Save::Fate::kNotKept;
      }
    }
  } else if (what < 400) {
    op.kind = Kind::kSaves;
    for (int n = 2 + random_.Int(3); n > 0; --n) {
      Save save = NextSave(random_.OneIn(30));
      const bool twice = std::ranges::any_of(
          op.saves, [&](const Save& s) { return s.step == save.step; });
      if (twice) continue;
      const int fate = random_.Int(5);
      if (fate == 0) save.fate = Save::Fate::kBadInput;
      if (fate == 1) save.fate = Save::Fate::kCancelled;
      op.saves.push_back(std::move(save));
    }
  } else if (many && random_.OneIn(6)) {
    op.kind = Kind::kRetain;
    op.branch = AnyStep() / kBranchSteps;
    op.versions = random_.Int(6);
  } else if (what < (many ? 560 : 450)) {
    op.kind = Kind::kDelete;
    op.step = random_.OneIn(20) ? next_step_[0] + 100 : AnyStep();
    op.refused =
        !state_.steps.contains(op.step) || state_.pins.contains(op.step);
  } else if (what < 590) {
    op.kind =
        random_.OneIn(3) && !state_.tags.empty() ? Kind::kUntag : Kind::kTag;
    op.step = AnyStep();
    op.tag = absl::StrFormat("tag%d", random_.Int(5));
    if (op.kind == Kind::kUntag) op.tag = state_.tags.begin()->first;
  } else if (what < 640) {
    op.kind = Kind::kPin;
    op.step = AnyStep();
    if (!state_.pins.empty() && (state_.pins.size() > 4 || random_.OneIn(2))) {
      op.kind = Kind::kUnpin;
      op.step = *state_.pins.begin();
    } else if (state_.pins.contains(op.step)) {
      op.kind = Kind::kRestore;
    }
  } else if (what < 780) {
    op.kind = Kind::kRestore;
    op.step = AnyStep();
  } else if (what < 900) {
    op.kind = Kind::kBox;
    op.step = AnyStep();
  } else if (what < 945) {
    op.kind = Kind::kCatalog;
    op.step = AnyStep();
  } else if (what < 955) {
    op.step = AnyStep();
    for (op.branch = 1; state_.branches.contains(op.branch);) ++op.branch;
    op.kind = op.branch <= 3 ? Kind::kFork : Kind::kDropBranch;
    if (op.kind == Kind::kDropBranch) {
      op.branch = 1 + random_.Int(3);
      const auto pin = state_.pins.lower_bound(op.branch * kBranchSteps);
      if (pin != state_.pins.end() && *pin / kBranchSteps == op.branch) {
        op.kind = Kind::kRestore;
      }
    } else {
      last_[op.branch] = state_.steps.at(op.step);
      next_step_.erase(op.branch);
    }
  } else if (what < 985) {
    op.kind = Kind::kCollect;
    if (random_.OneIn(3)) op.versions = random_.Int(3);
  } else if (what < 995) {
    op.kind = Kind::kReopen;
  } else {
    op.kind = Kind::kVerify;
  }
  const bool changes = op.kind != Kind::kRestore && op.kind != Kind::kBox &&
                       op.kind != Kind::kCatalog && op.kind != Kind::kVerify;
  if (changes && random_.OneIn(op.kind == Kind::kCollect ? 10 : 50)) {
    op.fault =
        FaultPlan{.mode = random_.OneIn(2) ? FaultPlan::Mode::kKill
                                           : FaultPlan::Mode::kPowerCut,
                  .at = 1 + random_.Below(op.saves.size() > 1         ? 30
                                          : op.kind == Kind::kCollect ? 60
                                                                      : 12),
                  .seed = random_.Next()};
  }
  return op;
}

void ModelDriver::ApplySave(const Save& save, int policy, ModelState* state) {
  if (state->steps.contains(save.step)) state->Delete(save.step);
  state->Save(save.step, save.content);
  if (policy < 0) return;
  for (const std::int64_t victim :
       state->Victims(save.step / kBranchSteps, policy, /*by_policy=*/true)) {
    state->Delete(victim);
  }
}

void ModelDriver::ApplyOther(const ModelOperation& operation,
                             ModelState* state) {
  switch (operation.kind) {
    case Kind::kDelete:
      if (!operation.refused) state->Delete(operation.step);
      break;
    case Kind::kRetain:
      for (std::int64_t step :
           state->Victims(operation.branch, operation.versions)) {
        state->Delete(step);
      }
      break;
    case Kind::kTag:
      state->tags[operation.tag] = operation.step;
      break;
    case Kind::kUntag:
      state->tags.erase(operation.tag);
      break;
    case Kind::kPin:
      state->pins.insert(operation.step);
      break;
    case Kind::kUnpin:
      state->pins.erase(operation.step);
      break;
    case Kind::kFork:
      state->branches.insert(operation.branch);
      break;
    case Kind::kDropBranch:
      state->DropBranch(operation.branch);
      break;
    default:
      break;
  }
}

void ModelDriver::Apply(const ModelOperation& operation,
                        const std::vector<bool>& results) {
  for (std::size_t i = 0; i < operation.saves.size(); ++i) {
    if (results[i]) ApplySave(operation.saves[i], operation.policy, &state_);
  }
  ApplyOther(operation, &state_);
}

std::vector<ModelState> ModelDriver::Possible(
    const ModelOperation& operation, const std::vector<bool>& results) const {
  ModelState known = state_;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i]) ApplySave(operation.saves[i], operation.policy, &known);
  }
  if (operation.saves.empty()) {
    ModelState done = known;
    ApplyOther(operation, &done);
    return {done, known};
  }
  // Saves are committed in their order; a cancelled one may be left out.
  std::vector<ModelState> possible = {known};
  std::vector<ModelState> grown = {known};
  for (std::size_t i = results.size(); i < operation.saves.size(); ++i) {
    const Save& save = operation.saves[i];
    if (save.fate == Save::Fate::kBadInput ||
        save.fate == Save::Fate::kRefused ||
        save.fate == Save::Fate::kNotKept) {
      continue;
    }
    std::vector<ModelState> next;
    for (const ModelState& state : grown) {
      next.push_back(state);
      ApplySave(save, operation.policy, &next.back());
      possible.push_back(next.back());
      if (save.fate == Save::Fate::kCancelled) next.push_back(state);
    }
    grown = std::move(next);
  }
  return possible;
}

}  // namespace ckptree::testing
