// SPDX-License-Identifier: Apache-2.0

// `ckptree log`: the steps of a store.

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/table_flags.h"
#include "tools/output/bars.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/follow.h"
#include "tools/verbs/log_table.h"

namespace ckptree::tools {
namespace {

// A line for each metric, from the oldest step to the newest.
std::string Sparklines(const std::vector<StepInfo>& newest_first,
                       const std::vector<std::string>& metrics,
                       const Terminal& terminal) {
  std::string text;
  int widest = 0;
  for (const std::string& name : metrics) {
    widest = std::max(widest, DisplayWidth(Escape(name)));
  }
  const int room = std::clamp(terminal.width - widest - 2, 8, 60);
  for (const std::string& name : metrics) {
    std::vector<double> values;
    for (auto step = newest_first.rbegin(); step != newest_first.rend();
         ++step) {
      for (const auto& [metric, value] : step->metrics) {
        if (metric == name) values.push_back(value);
      }
    }
    const std::string line = Sparkline(values, room, terminal.utf8);
    if (values.size() < 2 || line.empty()) continue;
    const std::string shown = Escape(name);
    text +=
        shown +
        std::string(static_cast<std::size_t>(widest + 2 - DisplayWidth(shown)),
                    ' ') +
        line + "\n";
  }
  return text;
}

// Of every branch, the newest save first.
absl::StatusOr<std::vector<StepInfo>> StepsOfAll(
    Session& session, const std::vector<BranchInfo>& branches) {
  std::vector<StepInfo> all;
  for (const BranchInfo& branch : branches) {
    const absl::StatusOr<std::vector<StepInfo>> steps =
        StepsOfBranch(session, branch.name);
    if (!steps.ok()) return steps.status();
    all.insert(all.end(), steps->begin(), steps->end());
  }
  std::sort(all.begin(), all.end(), [](const StepInfo& a, const StepInfo& b) {
    return a.version < b.version;
  });
  return all;
}

// Rows cost more than steps: those that --limit leaves out are not made, where
// nothing else decides which these are.
std::span<const StepInfo> Shown(const std::vector<StepInfo>& newest_first,
                                const TableOptions& options, bool graph) {
  const std::span<const StepInfo> all(newest_first);
  if (graph || !options.limit || options.where || !options.sort.empty()) {
    return all;
  }
  return all.first(
      std::min(all.size(), static_cast<std::size_t>(*options.limit)));
}

// Whether the newest steps, as many as --limit says, are all that is shown: the
// others of a long run need not be read then.
bool OnlyNewest(const Session& session, const TableOptions& options) {
  return options.limit.value_or(0) > 0 && !options.where &&
         options.sort.empty() && !session.arguments().Has("spark");
}

absl::Status CheckGraph(const Session& session, const TableOptions& options) {
  const Arguments& arguments = session.arguments();
  const char* other = !session.words().empty()  ? "RANGE"
                      : arguments.Has("branch") ? "--branch"
                      : !options.sort.empty()   ? "--sort"
                      : options.reverse         ? "--reverse"
                                                : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                      "--graph draws every branch, newest save first: it does "
                      "not go with %s",
                      other)),
                  "leave out one of the two");
}

}  // namespace

absl::StatusOr<int> RunLog(Session& session) {
  absl::StatusOr<TableOptions> options = ParseTableOptions(session.arguments());
  if (!options.ok()) return options.status();
  if (session.arguments().Has("follow")) return Follow(session, *options);
  for (const char* flag : {"alert", "exec", "stall", "until"}) {
    if (session.arguments().Has(flag)) {
      return WithHint(absl::InvalidArgumentError(
                          absl::StrFormat("--%s needs --follow", flag)),
                      "`ckptree log -f` follows what is saved");
    }
  }
  const bool ranged = !session.words().empty();
  const bool graph = session.arguments().Has("graph");
  const std::string branch = session.arguments().Get("branch", "");
  std::vector<BranchInfo> branches;
  absl::StatusOr<std::vector<StepInfo>> steps;
  if (graph) {
    if (absl::Status status = CheckGraph(session, *options); !status.ok()) {
      return status;
    }
    const absl::StatusOr<Store*> store = session.OpenStore();
    if (!store.ok()) return store.status();
    absl::StatusOr<std::vector<BranchInfo>> found = (*store)->Branches();
    if (!found.ok()) return found.status();
    branches = *std::move(found);
    steps = StepsOfAll(session, branches);
  } else {
    steps = ranged ? FindSteps(session, session.words()[0], branch)
            : OnlyNewest(session, *options)
                ? NewestOfBranch(session, branch,
                                 static_cast<std::size_t>(*options->limit))
                : StepsOfBranch(session, branch);
  }
  if (!steps.ok()) return steps.status();
  std::reverse(steps->begin(), steps->end());
  if (steps->empty() && !ranged) session.Note("no steps yet");
  const bool people = options->format == Format::kTable;
  const std::vector<std::string> metrics = MetricNames(*steps);
  Table table = LogTable(Shown(*steps, *options, graph), metrics,
                         session.terminal().is_terminal && people, *options);
  if (graph) AddGraph(*steps, branches, people && !options->where, &table);
  if (absl::Status status = session.Print(std::move(table), *options);
      !status.ok()) {
    return status;
  }
  if (people && !graph &&
      (session.arguments().Has("spark") || session.terminal().is_terminal)) {
    session.out().Write(Sparklines(*steps, metrics, session.terminal()));
  }
  return kExitOk;
}

}  // namespace ckptree::tools
