// SPDX-License-Identifier: Apache-2.0

// `ckptree fork`: branches, each a series of saves.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/line/changes.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/clock.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/freeing.h"
#include "tools/verbs/removable.h"

namespace ckptree::tools {
namespace {

absl::StatusOr<int> ListBranches(Session& session) {
  const absl::StatusOr<TableOptions> options =
      ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<BranchInfo>> branches = (*store)->Branches();
  if (!branches.ok()) return branches.status();
  const bool ages =
      session.terminal().is_terminal && options->format == Format::kTable;
  Table table;
  table.schema = "ckptree.fork/1";
  table.rows_name = "branches";
  table.columns = {
      {.name = "branch", .title = "BRANCH", .elide = true},
      {.name = "steps", .title = "STEPS", .right = true},
      {.name = "from", .title = "FROM", .elide = true},
      {.name = "created", .title = ages ? "AGE" : "CREATED", .time = true},
      {.name = "origin_branch"},
      {.name = "origin_step"}};
  const absl::Time now = NowForAges();
  for (const BranchInfo& branch : *branches) {
    const bool main = branch.name.empty();
    // The engine's name of a branch that was dropped, which no branch can have.
    const bool dropped = branch.origin_branch == "?";
    Cell from = NoCell();
    if (dropped) {
      from.text = absl::StrFormat("%d of a dropped branch", branch.origin_step);
    } else if (!main) {
      from = TextCell(StepText(branch.origin_branch, branch.origin_step));
    }
    Cell name = TextCell(branch.name);
    if (main) name.text = "(main)";
    const std::string time = TimeText(branch.created);
    table.rows.push_back(
        {std::move(name), CountCell(branch.steps), std::move(from),
         main ? NoCell()
              : Cell{Json(time), ages ? AgeText(branch.created, now) : time},
         main || dropped ? NoCell() : TextCell(branch.origin_branch),
         main ? NoCell() : StepCell(branch.origin_step)});
  }
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  return kExitOk;
}

absl::StatusOr<int> AddBranch(Session& session, const std::string& name) {
  if (!IsBranchName(name)) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` cannot be the name of a branch", Escape(name))),
        "letters, digits, '_', '-' and '.', a letter first; not main, "
        "latest, best or healthy");
  }
  const absl::StatusOr<Address> address =
      ParseAddress(session.words().empty() ? "" : session.words()[0]);
  if (!address.ok()) return address.status();
  if (!address->key.empty()) {
    return WithHint(
        absl::InvalidArgumentError(
            "a branch goes on from a whole step: leave the key out"),
        "`ckptree fork 1200 --branch NAME`");
  }
  Changes changes(&session);
  if (absl::Status status = changes.Open(); !status.ok()) return status;
  const absl::StatusOr<StepInfo> info = session.Resolve(address->step);
  if (!info.ok()) return info.status();
  if (absl::Status status = changes.Fork(*info, name); !status.ok()) {
    return WithHint(status, "`ckptree fork` lists the branches");
  }
  session.Note(absl::StrFormat("branch %s goes on from step %s", name,
                               StepText(info->branch, info->step)));
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return kExitOk;
}

absl::StatusOr<BranchInfo> FindBranch(Store* store, const std::string& name) {
  const absl::StatusOr<std::vector<BranchInfo>> branches = store->Branches();
  if (!branches.ok()) return branches.status();
  for (const BranchInfo& branch : *branches) {
    if (branch.name == name) return branch;
  }
  return WithHint(
      absl::NotFoundError(absl::StrFormat("no branch `%s`", Escape(name))),
      "`ckptree fork` lists the branches");
}

absl::StatusOr<int> DropBranch(Session& session, const std::string& name) {
  const bool dry_run = session.arguments().Has("dry-run");
  const bool asks = !dry_run && !session.arguments().Has("yes");
  if (asks) {
    if (absl::Status status = session.CheckCanAsk(
            "remove the branch",
            "add -y to remove it, --dry-run to see its steps");
        !status.ok()) {
      return status;
    }
  }
  if (name.empty() || name == "main") {
    return WithHint(
        absl::InvalidArgumentError("the main branch cannot be removed"),
        "`ckptree rm 0..latest` removes its steps");
  }
  Changes changes(&session);
  if (absl::Status status =
          dry_run ? session.OpenStore().status() : changes.Open();
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<std::vector<StepInfo>> steps =
      StepsOfBranch(session, name);
  if (!steps.ok()) return steps.status();
  const absl::StatusOr<BranchInfo> branch = FindBranch(changes.store(), name);
  if (!branch.ok()) return branch.status();
  if (absl::Status status = CheckMayGo(session.arguments(), *steps);
      !status.ok()) {
    return status;
  }
  const std::string what =
      steps->empty()
          ? absl::StrFormat("branch %s, which has no step", name)
          : absl::StrFormat("branch %s and its %s%s", name,
                            CountText(steps->size(), "step", "steps"),
                            TagsText(*steps));
  if (dry_run) {
    const absl::StatusOr<std::string> freed =
        WouldFreeText(changes.store(), name);
    if (!freed.ok()) return freed.status();
    session.out().Write("would remove " + what + "\n" + *freed);
    return kExitOk;
  }
  if (asks && !session.Ask("remove " + what)) {
    session.Note("nothing was removed");
    return kExitNegative;
  }
  if (absl::Status status =
          changes.DropBranch(*branch, session.arguments().Has("tagged"));
      !status.ok()) {
    return status;
  }
  session.out().Write("removed " + what + "\n");
  if (absl::Status status = FreeRemoved(session, changes); !status.ok()) {
    return status;
  }
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunFork(Session& session) {
  const auto branch = session.arguments().Find("branch");
  const auto drop = session.arguments().Find("drop");
  if (drop && (branch || !session.words().empty())) {
    return WithHint(
        absl::InvalidArgumentError("--drop takes the name of a branch alone"),
        "`ckptree fork --drop NAME`");
  }
  if (drop || branch) {
    if (absl::Status status =
            CheckNoTable(session.arguments(), drop ? "--drop" : "--branch");
        !status.ok()) {
      return status;
    }
  }
  if (drop) return DropBranch(session, *drop);
  if (branch) return AddBranch(session, *branch);
  if (session.words().empty()) return ListBranches(session);
  const std::string& word = session.words()[0];
  // A name where a step belongs is what a hand used to `git branch` types.
  return WithHint(
      absl::InvalidArgumentError("the new branch needs a name"),
      IsBranchName(word)
          ? absl::StrFormat("`ckptree fork REV --branch %s`", word)
          : absl::StrFormat("`ckptree fork %s --branch NAME`", Escape(word)));
}

}  // namespace ckptree::tools
