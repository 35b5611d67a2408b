// SPDX-License-Identifier: Apache-2.0

// `ckptree rm`: removes steps.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/line/changes.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/freeing.h"

namespace ckptree::tools {
namespace {

// " and the tags @a, @b"; empty where none of the steps has one.
std::string TagsText(const std::vector<StepInfo>& steps) {
  std::vector<std::string> tags;
  for (const StepInfo& info : steps) {
    for (const std::string& tag : info.tags) tags.push_back("@" + tag);
  }
  if (tags.empty()) return "";
  return absl::StrFormat(" and the %s %s", tags.size() == 1 ? "tag" : "tags",
                         absl::StrJoin(tags, ", "));
}

std::string NamesText(const std::vector<StepInfo>& steps) {
  std::vector<std::string> names;
  names.reserve(steps.size());
  for (const StepInfo& info : steps) {
    names.push_back(StepText(info.branch, info.step));
  }
  return StepsText(names);
}

// Nothing is removed where one of them is to stay.
absl::Status CheckMayGo(const Session& session,
                        const std::vector<StepInfo>& steps) {
  for (const StepInfo& info : steps) {
    const std::string name = StepText(info.branch, info.step);
    if (info.pinned) {
      return WithHint(
          absl::FailedPreconditionError(
              absl::StrFormat("step %s is pinned; nothing was removed", name)),
          absl::StrFormat("`ckptree pin --delete %s` unpins it", name));
    }
    if (!info.tags.empty() && !session.arguments().Has("tagged")) {
      return WithHint(
          absl::FailedPreconditionError(
              absl::StrFormat("step %s is tagged @%s; nothing was removed",
                              name, info.tags.front())),
          absl::StrFormat("--tagged removes it and its tags; `ckptree tag "
                          "--delete %s` takes the tag away",
                          info.tags.front()));
    }
  }
  return absl::OkStatus();
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
  if (absl::Status status = CheckMayGo(session, *steps); !status.ok()) {
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
