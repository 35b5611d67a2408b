// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/follow.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/line/step_range.h"
#include "tools/output/clock.h"
#include "tools/output/expression.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/nearest.h"
#include "tools/output/printed_table.h"
#include "tools/output/quantity.h"
#include "tools/verbs/log_table.h"

extern char** environ;

namespace ckptree::tools {
namespace {

constexpr int kPollMilliseconds = 500;

// `text` split at spaces; quotes keep words together, and nothing else means
// anything. kInvalidArgument: a quote without an end, or no word.
absl::StatusOr<std::vector<std::string>> SplitCommand(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        words.back() += c;
      }
      continue;
    }
    if (c == ' ' || c == '\t') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '"' || c == '\'') {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0 || words.empty() || words[0].empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "`--exec %s`: %s", Escape(text),
        quote != 0 ? "a quote has no end" : "there is no command"));
  }
  return words;
}

// Runs `words` without a shell and waits for it. What it prints goes to
// standard error: on standard output are rows alone.
void RunProgram(Session& session, const std::vector<std::string>& words,
                const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    const bool replaced =
        std::any_of(more.begin(), more.end(), [&](const auto& entry) {
          return variable.starts_with(entry.first + "=");
        });
    if (!replaced) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : more) {
    variables.push_back(name + "=" + value);
  }
  std::vector<char*> argv, envp;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  for (const std::string& variable : variables) {
    envp.push_back(const_cast<char*>(variable.c_str()));
  }
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, argv[0], &actions, SpawnedSignals().get(), argv.data(),
                   envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    session.Note(absl::StrFormat("%s cannot be run: %s", Escape(words[0]),
                                 std::strerror(error)));
    return;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    session.Note(absl::StrFormat(
        "%s ended with %d", Escape(words[0]),
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)));
  }
}

// What is watched for.
struct Watch {
  std::string alert_text;
  std::optional<Expression> alert;
  std::optional<absl::Duration> stall;
  std::vector<std::string> command;
  std::optional<std::int64_t> until;
};

absl::StatusOr<Watch> ParseWatch(const Arguments& arguments) {
  Watch watch;
  if (const auto text = arguments.Find("alert")) {
    absl::StatusOr<Expression> alert = Expression::Parse(*text);
    if (!alert.ok()) {
      return WithHint(alert.status(),
                      "`ckptree help where` shows what a condition is");
    }
    watch.alert_text = *text;
    watch.alert = *std::move(alert);
  }
  if (const auto text = arguments.Find("stall")) {
    absl::Duration time;
    if (!absl::ParseDuration(*text, &time) || time <= absl::ZeroDuration() ||
        time == absl::InfiniteDuration()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "`--stall %s`: a time is written 90s, 10m or 1h30m", Escape(*text)));
    }
    watch.stall = time;
  }
  if (const auto text = arguments.Find("exec")) {
    if (!watch.alert && !watch.stall) {
      return absl::InvalidArgumentError("--exec needs --alert or --stall");
    }
    absl::StatusOr<std::vector<std::string>> command = SplitCommand(*text);
    if (!command.ok()) return command.status();
    watch.command = *std::move(command);
  }
  const auto until = arguments.Number("until");
  if (!until.ok()) return until.status();
  watch.until = *until;
  return watch;
}

class Follower {
 public:
  Follower(Session& session, TableOptions options, Watch watch)
      : session_(session),
        options_(std::move(options)),
        watch_(std::move(watch)),
        branch_(session.arguments().Get("branch", "")) {}

  absl::StatusOr<int> Run() {
    const absl::StatusOr<Store*> store = session_.OpenStore();
    if (!store.ok()) return store.status();
    const Interruptible interruptible;
    bool first = true;
    absl::Time last_change = NowForWaits();
    bool stalled = false;
    while (true) {
      absl::StatusOr<std::vector<StepInfo>> fresh = Fresh();
      if (!fresh.ok()) return fresh.status();
      if (!fresh->empty()) {
        if (!first) last_change = NowForWaits();
        stalled = false;
        const absl::Status status = Show(*std::move(fresh), first);
        if (!status.ok()) return status;
        // Each line at once, also into a pipe.
        if (absl::Status flushed = session_.out().Flush(); !flushed.ok()) {
          return session_.out().broken_pipe() ? absl::StatusOr<int>(kExitOk)
                                              : flushed;
        }
      }
      first = false;
      if (watch_.until && highest_ >= *watch_.until) return kExitOk;
      if (watch_.stall && !stalled &&
          NowForWaits() - last_change >= *watch_.stall) {
        stalled = true;
        Alert("stall",
              absl::StrFormat("no step for %s",
                              absl::FormatDuration(*watch_.stall)),
              "");
      }
      const bool waited = session_.out().WaitWhileRead(kPollMilliseconds);
      if (Interrupted()) return absl::CancelledError("interrupted");
      // As where a line could not be written.
      if (session_.out().broken_pipe()) return kExitOk;
      if (!waited) return absl::CancelledError("interrupted");
      if (absl::Status status = (*store)->Refresh(); !status.ok()) {
        return status;
      }
    }
  }

 private:
  // Steps that were not seen before, in the order of their saves.
  absl::StatusOr<std::vector<StepInfo>> Fresh() {
    absl::StatusOr<std::vector<StepInfo>> steps =
        StepsOfBranch(session_, branch_);
    if (!steps.ok()) return steps;
    for (const std::string& name : MetricNames(*steps)) {
      if (std::find(metrics_.begin(), metrics_.end(), name) == metrics_.end()) {
        metrics_.push_back(name);
      }
    }
    std::erase_if(
        *steps, [this](const StepInfo& step) { return step.version <= seen_; });
    std::sort(steps->begin(), steps->end(),
              [](const StepInfo& a, const StepInfo& b) {
                return a.version < b.version;
              });
    for (const StepInfo& step : *steps) {
      seen_ = std::max(seen_, step.version);
      highest_ = std::max(highest_, step.step);
    }
    return steps;
  }

  absl::Status Show(std::vector<StepInfo> steps, bool first) {
    constexpr std::int64_t kFirstSteps = 10;
    if (first) {
      const auto most = static_cast<std::size_t>(
          std::max<std::int64_t>(0, options_.limit.value_or(kFirstSteps)));
      if (steps.size() > most) {
        steps.erase(steps.begin(),
                    steps.end() - static_cast<std::ptrdiff_t>(most));
      }
    }
    Table table =
        LogTable(steps, metrics_, false, options_, watch_.alert.has_value());
    table.MakeRows();
    TableOptions options = options_;
    options.limit.reset();
    if (options.format == Format::kJson) options.format = Format::kNdjson;
    KeepColumns(table, &options);
    if (absl::Status status = session_.Print(table, options, &layout_);
        !status.ok()) {
      return status;
    }
    return Check(steps, table, first);
  }

  // A reader of CSV has the columns of its first line: a metric that comes
  // later has none.
  void KeepColumns(const Table& table, TableOptions* options) {
    if (options->format != Format::kCsv && options->format != Format::kTsv) {
      return;
    }
    if (layout_.columns.empty() || !options->columns.empty()) return;
    options->columns = layout_.columns;
    for (const Column& column : table.columns) {
      if (!options_.Shows(column) ||
          std::ranges::find(layout_.columns, column.name) !=
              layout_.columns.end() ||
          !left_out_.insert(column.name).second) {
        continue;
      }
      session_.Note(absl::StrFormat(
          "`%s` came after the line of titles: it has no column", column.name));
    }
  }

  // Alerts of steps that came while we looked, not of those before.
  absl::Status Check(const std::vector<StepInfo>& steps, const Table& table,
                     bool first) {
    if (!watch_.alert || steps.empty()) return absl::OkStatus();
    std::vector<std::string> names, times;
    for (const Column& column : table.columns) {
      names.push_back(column.name);
      if (column.time) times.push_back(column.name);
    }
    // Anew each time: the names of metrics become more.
    absl::StatusOr<Expression> alert = Expression::Parse(watch_.alert_text);
    if (!alert.ok()) return alert.status();
    if (absl::Status status = alert->Bind(names, {}, times); !status.ok()) {
      // What is no column may be a metric of a step to come, unless it is
      // much like a column. The names that Bind() knows for texts are gone.
      std::string missing;
      for (const std::string& name : alert->Names()) {
        if (missing.empty() && std::ranges::find(names, name) == names.end()) {
          missing = name;
        }
      }
      const std::string nearest = Nearest(missing, names);
      const bool misspelt =
          !nearest.empty() &&
          std::ranges::find(metrics_, nearest) == metrics_.end();
      if (missing.empty() || misspelt ||
          NameThatGoesOn(missing, metrics_) != nullptr) {
        return status;
      }
      if (!std::exchange(alert_waits_, true)) {
        session_.Note(absl::StrFormat(
            "no step has `%s` yet: --alert waits for one that has%s", missing,
            nearest.empty() ? ""
                            : absl::StrFormat(" (or is it `%s`?)", nearest)));
      }
      return absl::OkStatus();
    }
    for (std::size_t r = 0; r < steps.size() && !first; ++r) {
      const absl::StatusOr<bool> holds =
          alert->Holds([&](std::string_view name) -> const Json& {
            const auto at = std::find(names.begin(), names.end(), name);
            return table.rows[r][static_cast<std::size_t>(at - names.begin())]
                .value;
          });
      if (!holds.ok()) return holds.status();
      if (!*holds) continue;
      const std::string rev = StepText(steps[r].branch, steps[r].step);
      Alert(watch_.alert_text,
            absl::StrFormat("step %s: %s", rev, watch_.alert_text), rev);
    }
    return absl::OkStatus();
  }

  void Alert(const std::string& what, const std::string& text,
             const std::string& rev) {
    session_.Note("alert: " + text);
    if (watch_.command.empty()) return;
    session_.out().Flush().IgnoreError();
    RunProgram(session_, watch_.command,
               {{"CKPTREE_ALERT", what},
                {"CKPTREE_REV", rev},
                {"CKPTREE_STORE", session_.directory()}});
  }

  Session& session_;
  const TableOptions options_;
  const Watch watch_;
  const std::string branch_;
  std::vector<std::string> metrics_;
  Layout layout_;                   // Of the rows that were printed.
  std::set<std::string> left_out_;  // It was said that these have no column.
  bool alert_waits_ = false;   // It was said that a name is of no step yet.
  std::uint64_t seen_ = 0;     // The newest version.
  std::int64_t highest_ = -1;  // Of the numbers of steps.
};

}  // namespace

absl::StatusOr<int> Follow(Session& session, TableOptions options) {
  if (!session.words().empty() || session.arguments().Has("graph") ||
      !options.sort.empty() || options.reverse) {
    return WithHint(absl::InvalidArgumentError(
                        "--follow prints steps as they come: it does not go "
                        "with RANGE, --graph, --sort or --reverse"),
                    "leave out one of the two");
  }
  if (options.format == Format::kMarkdown) {
    return absl::InvalidArgumentError(
        "--follow prints -o table, ndjson, csv or tsv");
  }
  absl::StatusOr<Watch> watch = ParseWatch(session.arguments());
  if (!watch.ok()) return watch.status();
  return Follower(session, std::move(options), *std::move(watch)).Run();
}

}  // namespace ckptree::tools
