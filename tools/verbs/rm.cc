// SPDX-License-Identifier: Apache-2.0

// `ckptree rm`: removes steps.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/changes.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/freeing.h"
#include "tools/verbs/removable.h"

namespace ckptree::tools {
namespace {

std::string NamesText(const std::vector<StepInfo>& steps) {
  std::vector<std::string> names;
  names.reserve(steps.size());
  for (const StepInfo& info : steps) {
    names.push_back(StepText(info.branch, info.step));
  }
  return StepsText(names);
}

}  // namespace

absl::StatusOr<int> RunRm(Session& session) {
  const bool dry_run = session.arguments().Has("dry-run");
  const bool asks = !dry_run && !session.arguments().Has("yes");
  for (const std::string& word : session.words()) {
    // A range that lost its ends in a script: too much.
    if (word == ".." || word.ends_with("/..")) {
      return WithHint(
          absl::InvalidArgumentError("`" + word + "` would be every step"),
          "name an end: 0..latest; `ckptree fork --drop BRANCH` removes a "
          "branch");
    }
  }
  Changes changes(&session);
  if (absl::Status status =
          dry_run ? session.OpenStore().status() : changes.Open();
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<std::vector<StepInfo>> steps =
      FindAllSteps(session, session.words());
  if (!steps.ok()) return steps.status();
  if (absl::Status status = CheckMayGo(session.arguments(), *steps);
      !status.ok()) {
    return status;
  }
  if (asks && !steps->empty()) {
    if (absl::Status status = session.CheckCanAsk(
            "remove the steps",
            "add -y to remove them, --dry-run to see which");
        !status.ok()) {
      return status;
    }
    if (!session.Ask("remove " + NamesText(*steps) + TagsText(*steps))) {
      session.Note("nothing was removed");
      return kExitNegative;
    }
  }
  std::string freed;
  if (dry_run && !steps->empty()) {
    absl::StatusOr<std::string> text = WouldFreeText(changes.store(), *steps);
    if (!text.ok()) return text.status();
    freed = *std::move(text);
  }
  if (!dry_run) {
    if (absl::Status status =
            changes.Delete(*steps, session.arguments().Has("tagged"));
        !status.ok()) {
      return status;
    }
  }
  const std::string done = dry_run ? "would remove " : "removed ";
  if (steps->size() > kMostLines) {
    session.out().Write(done + NamesText(*steps) + TagsText(*steps) + "\n");
  } else {
    for (const StepInfo& info : *steps) {
      session.out().Write(done + NamesText({info}) + TagsText({info}) + "\n");
    }
  }
  session.out().Write(freed);
  if (!dry_run && !steps->empty()) {
    if (absl::Status status = FreeRemoved(session, changes); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return kExitOk;
}

}  // namespace ckptree::tools
