// SPDX-License-Identifier: Apache-2.0

// `ckptree tag` and `ckptree pin`: what keeps a step from being lost.

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/changes.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

absl::StatusOr<int> ListTags(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<TagInfo>> tags = (*store)->Tags();
  if (!tags.ok()) return tags.status();
  Table table;
  table.schema = "ckptree.tag/1";
  table.rows_name = "tags";
  table.columns = {{.name = "name", .title = "TAG", .elide = true},
                   {.name = "step", .title = "STEP", .right = true},
                   {.name = "version"},
                   {.name = "branch"}};
  for (const TagInfo& tag : *tags) {
    // People see "BRANCH/7", programs both parts.
    Cell step = StepCell(tag.step);
    step.text = StepText(tag.branch, tag.step);
    table.rows.push_back({TextCell(tag.name), std::move(step),
                          CountCell(tag.version), TextCell(tag.branch)});
  }
  if (tags->empty()) session.Note("no tags yet");
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

// The words may carry the '@' that REV needs.
std::string TagName(const std::string& word) {
  return word.starts_with('@') ? word.substr(1) : word;
}

}  // namespace

absl::StatusOr<int> RunTag(Session& session) {
  const bool remove = session.arguments().Has("delete");
  if (session.words().empty() && !remove) return ListTags(session);
  if (session.words().empty() || (remove && session.words().size() > 1)) {
    return absl::InvalidArgumentError("`ckptree tag --delete` needs one NAME");
  }
  if (remove && session.arguments().Has("move")) {
    return absl::InvalidArgumentError(
        "`--delete` takes a tag away and `--move` gives it to another step: "
        "give one");
  }
  if (absl::Status status =
          CheckNoTable(session.arguments(), remove ? "--delete" : "NAME");
      !status.ok()) {
    return status;
  }
  const std::string name = TagName(session.words()[0]);
  const absl::StatusOr<Address> address =
      ParseAddress(session.words().size() > 1 ? session.words()[1] : "");
  if (!address.ok()) return address.status();
  if (!address->key.empty()) {
    return WithHint(absl::InvalidArgumentError(
                        "a tag names a whole step: leave the key out"),
                    "`ckptree tag NAME 1200`");
  }
  Changes changes(&session);
  if (absl::Status status = changes.Open(); !status.ok()) return status;
  if (remove) {
    if (absl::Status status = changes.Untag(name); !status.ok()) {
      return WithHint(status, "`ckptree tag` lists the tags");
    }
    session.Note("removed the tag @" + name);
  } else {
    const absl::StatusOr<StepInfo> info = session.Resolve(address->step);
    if (!info.ok()) return info.status();
    if (absl::Status status =
            changes.Tag(name, *info, session.arguments().Has("move"));
        !status.ok()) {
      if (absl::IsAlreadyExists(status)) {
        return WithHint(status, "--move lets it name another step");
      }
      if (!absl::IsInvalidArgument(status)) return status;
      return WithHint(status, "a tag is a short name without ':' or '~'");
    }
    session.Note(absl::StrFormat("@%s is step %s", name,
                                 StepText(info->branch, info->step)));
  }
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return kExitOk;
}

absl::StatusOr<int> RunPin(Session& session) {
  const bool remove = session.arguments().Has("delete");
  Changes changes(&session);
  if (absl::Status status = changes.Open(); !status.ok()) return status;
  // All are found before the first is changed.
  const absl::StatusOr<std::vector<StepInfo>> steps =
      FindAllSteps(session, session.words());
  if (!steps.ok()) return steps.status();
  if (!steps->empty()) {
    if (absl::Status status = changes.Pin(*steps, !remove); !status.ok()) {
      return status;
    }
  }
  for (const StepInfo& info : *steps) {
    session.Note(absl::StrFormat("%s step %s", remove ? "unpinned" : "pinned",
                                 StepText(info.branch, info.step)));
  }
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return kExitOk;
}

}  // namespace ckptree::tools
