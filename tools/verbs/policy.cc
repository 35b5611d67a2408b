// SPDX-License-Identifier: Apache-2.0

// `ckptree policy`: which steps live, and why.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "tools/line/changes.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/clock.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/freeing.h"

namespace ckptree::tools {
namespace {

std::string BranchText(const std::string& branch) {
  return branch.empty() ? "" : " of branch " + Escape(branch);
}

absl::StatusOr<Preservation> PolicyOf(const std::string& text) {
  absl::StatusOr<Preservation> policy = ParsePreservation(text);
  if (!policy.ok()) {
    return WithHint(policy.status(), "`ckptree help policy` lists the rules");
  }
  if (const std::string name = MissingFunction(*policy); !name.empty()) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` would be a function, which a program alone can give",
            Escape(name))),
        "`ckptree help policy` lists the rules that need none");
  }
  return policy;
}

// The metrics that the policy goes by.
void AddMetrics(const Preservation& policy, std::vector<std::string>* names) {
  const auto& rule = policy.rule();
  if (const auto* best = std::get_if<BestN>(&rule); best && !best->computed) {
    names->push_back(best->metric);
  }
  const std::vector<Preservation>* parts = nullptr;
  if (const auto* any = std::get_if<AnyOf>(&rule)) parts = &any->of;
  if (const auto* all = std::get_if<AllOf>(&rule)) parts = &all->of;
  if (parts == nullptr) return;
  for (const Preservation& part : *parts) AddMetrics(part, names);
}

// Steps without the metric stay: a name that is mistyped would keep all.
void NoteUnknownMetrics(Session& session, const Store& store,
                        const std::string& branch, const Preservation& policy) {
  const absl::StatusOr<std::vector<StepInfo>> steps = store.Steps(branch);
  if (!steps.ok() || steps->empty()) return;
  std::vector<std::string> wanted;
  AddMetrics(policy, &wanted);
  for (const std::string& name : wanted) {
    const bool known = std::any_of(
        steps->begin(), steps->end(), [&name](const StepInfo& info) {
          return std::any_of(
              info.metrics.begin(), info.metrics.end(),
              [&name](const auto& m) { return m.first == name; });
        });
    if (!known) {
      session.Note(
          absl::StrFormat("no step has a metric `%s` so far", Escape(name)));
    }
  }
}

std::uint64_t GoingOf(const PolicyReport& report) {
  return static_cast<std::uint64_t>(std::count_if(
      report.steps.begin(), report.steps.end(),
      [](const PolicyVerdict& verdict) { return !verdict.kept; }));
}

// Newest first.
Table VerdictTable(const PolicyReport& report, const std::string& branch) {
  Table table;
  table.schema = "ckptree.policy/1";
  table.rows_name = "steps";
  table.extra = {{"policy", report.policy},
                 {"branch", branch},
                 {"freed_bytes", report.freed.bytes},
                 {"freed_stored_bytes", report.freed.stored_bytes},
                 {"freed_remote_bytes", report.freed.remote_bytes},
                 {"kept_back", KeptJson(report.freed.kept)}};
  table.columns = {
      {.name = "step", .title = "STEP", .right = true},
      {.name = "time", .title = "AGE", .right = true, .time = true},
      {.name = "kept", .title = "STAYS"},
      {.name = "why", .title = "WHY", .elide = true},
      {.name = "version"}};
  const absl::Time now = NowForAges();
  for (auto it = report.steps.rbegin(); it != report.steps.rend(); ++it) {
    Cell number = StepCell(it->step);
    number.text = StepText(branch, it->step);
    Cell time = TextCell(AgeText(it->begun, now));
    time.value = TimeText(it->begun);
    Cell kept;
    kept.value = it->kept;
    kept.text = it->kept ? "yes" : "no";
    if (!it->kept) kept.tone = Tone::kBad;
    Cell why = TextCell(Escape(absl::StrJoin(it->why, ", ")));
    why.value = it->why;
    table.rows.push_back({std::move(number), std::move(time), std::move(kept),
                          std::move(why), CountCell(it->version)});
  }
  return table;
}

std::string SummaryText(const PolicyReport& report, const Store& store) {
  const std::uint64_t going = GoingOf(report);
  std::string text =
      absl::StrFormat("keeps %d of %s", report.steps.size() - going,
                      CountText(report.steps.size(), "step", "steps"));
  if (going == 0) return text + "\n";
  absl::StrAppendFormat(&text, "; removing the rest would free %s\n",
                        FreedText(report.freed.stored_bytes, report.freed,
                                  /*exact=*/false, store));
  return text + KeptText(report.freed.kept);
}

std::string StoredText(const PolicyInfo& info, const std::string& branch) {
  if (info.text.empty()) {
    return absl::StrFormat("no policy%s: every step stays\n",
                           BranchText(branch));
  }
  return absl::StrFormat(
      "policy%s: %s\nset %s, %s\n", BranchText(branch), EscapeLines(info.text),
      info.from_program ? "by the options of a program" : "by hand",
      TimeText(info.set));
}

// What `policy`, or that of the branch, makes of the steps.
absl::StatusOr<int> Show(Session& session, const TableOptions& options,
                         Store* store, const std::string& branch,
                         const std::optional<Preservation>& policy) {
  const absl::StatusOr<PolicyInfo> info = store->Policy(branch);
  if (!info.ok()) return info.status();
  const bool people = options.format == Format::kTable;
  if (people && !policy.has_value()) {
    session.out().Write(StoredText(*info, branch));
    if (info->text.empty()) {
      session.Note(
          "`ckptree policy --set POLICY --dry-run` shows what one "
          "would keep; `ckptree help policy` lists the rules");
      return kExitOk;
    }
  }
  const absl::StatusOr<PolicyReport> report =
      store->PreviewPolicy(branch, policy);
  if (absl::IsFailedPrecondition(report.status()) && !policy.has_value()) {
    return WithHint(report.status(), "nothing is removed by it");
  }
  if (!report.ok()) return report.status();
  if (people && policy.has_value()) {
    session.out().Write(absl::StrFormat("policy%s, not set: %s\n",
                                        BranchText(branch),
                                        EscapeLines(report->policy)));
  }
  if (!people || !report->steps.empty()) {
    if (absl::Status status =
            session.Print(VerdictTable(*report, branch), options);
        !status.ok()) {
      return status;
    }
  }
  if (people) session.out().Write(SummaryText(*report, *store));
  NoteUnknownMetrics(session, *store, branch,
                     policy.has_value() ? *policy : info->policy);
  return kExitOk;
}

// Whether the user agrees to what `report` removes; what is so otherwise.
bool Agrees(Session& session, const PolicyReport& report,
            std::string_view otherwise) {
  const std::uint64_t going = GoingOf(report);
  if (going == 0 || session.arguments().Has("yes") ||
      session.Ask("remove " + CountText(going, "step", "steps"))) {
    return true;
  }
  session.Note(otherwise);
  return false;
}

// `agreed`: the user was asked.
absl::StatusOr<int> Apply(Session& session, Changes& changes,
                          const std::string& branch, bool agreed) {
  const absl::StatusOr<PolicyReport> report =
      changes.store()->PreviewPolicy(branch);
  if (!report.ok()) return report.status();
  const std::uint64_t going = GoingOf(*report);
  if (going == 0) {
    session.out().Write("the policy keeps every step\n");
    return kExitOk;
  }
  if (!agreed && !Agrees(session, *report, "nothing was removed")) {
    return kExitNegative;
  }
  const absl::StatusOr<std::vector<std::int64_t>> removed =
      changes.ApplyPolicy(branch);
  if (!removed.ok()) return removed.status();
  std::vector<std::string> names;
  for (const std::int64_t step : *removed) {
    names.push_back(StepText(branch, step));
  }
  if (names.size() > kMostLines) {
    session.out().Write("removed " + StepsText(names) + "\n");
  } else {
    for (const std::string& name : names) {
      session.out().Write("removed step " + name + "\n");
    }
  }
  if (absl::Status status = FreeRemoved(session, changes); !status.ok()) {
    return status;
  }
  return kExitOk;
}

absl::StatusOr<int> Set(Session& session, Changes& changes,
                        const std::string& branch, const Preservation& policy) {
  if (absl::Status status = changes.SetPolicy(policy, branch); !status.ok()) {
    return status;
  }
  const Store* const store = changes.store();
  session.out().Write(
      absl::StrFormat("policy%s: %s\n", BranchText(branch), Text(policy)));
  const absl::StatusOr<PolicyReport> report = store->PreviewPolicy(branch);
  if (!report.ok()) return report.status();
  session.out().Write(SummaryText(*report, *store));
  NoteUnknownMetrics(session, *store, branch, policy);
  if (GoingOf(*report) > 0 && !session.arguments().Has("apply")) {
    session.Note(
        "the rest leaves with the next save; `ckptree policy "
        "--apply` removes it now");
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunPolicy(Session& session) {
  const Arguments& arguments = session.arguments();
  const absl::StatusOr<TableOptions> options = ParseTableOptions(arguments);
  if (!options.ok()) return options.status();
  const std::string branch = arguments.Get("branch", "");
  std::optional<Preservation> policy;
  if (const std::optional<std::string> text = arguments.Find("set")) {
    absl::StatusOr<Preservation> parsed = PolicyOf(*text);
    if (!parsed.ok()) return parsed.status();
    policy = *std::move(parsed);
  }
  const bool writes = (policy.has_value() || arguments.Has("apply")) &&
                      !arguments.Has("dry-run");
  if (writes && arguments.Has("apply") && !arguments.Has("yes")) {
    if (absl::Status status = session.CheckCanAsk(
            "remove the steps",
            "add -y to remove them, --dry-run to see which");
        !status.ok()) {
      return status;
    }
  }
  if (!writes) {
    const absl::StatusOr<Store*> store = session.OpenStore();
    if (!store.ok()) return store.status();
    return Show(session, *options, *store, branch, policy);
  }
  if (absl::Status status =
          CheckNoTable(arguments, policy.has_value() ? "--set" : "--apply");
      !status.ok()) {
    return status;
  }
  Changes changes(&session);
  if (absl::Status status = changes.Open(); !status.ok()) return status;
  int code = kExitOk;
  const bool applies = arguments.Has("apply");
  if (policy.has_value() && applies && !arguments.Has("yes")) {
    // Before it is set: the next save would remove them then.
    const absl::StatusOr<PolicyReport> report =
        changes.store()->PreviewPolicy(branch, policy);
    if (!report.ok()) return report.status();
    if (!Agrees(session, *report,
                "nothing was changed: the policy is not set")) {
      if (absl::Status status = changes.Close(); !status.ok()) return status;
      return kExitNegative;
    }
  }
  if (policy.has_value()) {
    const absl::StatusOr<int> set = Set(session, changes, branch, *policy);
    if (!set.ok()) return set;
  }
  if (applies) {
    const absl::StatusOr<int> applied =
        Apply(session, changes, branch, /*agreed=*/policy.has_value());
    if (!applied.ok()) return applied;
    code = *applied;
  }
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return code;
}

}  // namespace ckptree::tools
