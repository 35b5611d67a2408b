// SPDX-License-Identifier: Apache-2.0

#include "tools/report/live_run.h"

#include <cmath>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/output/clock.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

constexpr int kRestOfGathering = 9;  // Times as long as it took.

// As Prometheus writes it between quotes.
std::string Label(std::string_view text) {
  std::string label;
  for (const char c : text) {
    if (c == '\\' || c == '"') label += '\\';
    if (c == '\n') {
      label += "\\n";
    } else {
      label += c;
    }
  }
  return label;
}

std::string Value(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return NumberText(value);
}

struct Gauge {
  const char* name;
  const char* help;
  double (*of)(const StepInfo&);
};

template <auto kField>
double FieldOf(const StepInfo& step) {
  return static_cast<double>(step.*kField);
}

constexpr Gauge kGauges[] = {
    {"newest_step", "The number of the newest step.", FieldOf<&StepInfo::step>},
    {"newest_committed_seconds", "When it was committed, Unix time.",
     [](const StepInfo& step) {
       return static_cast<double>(absl::ToUnixMillis(step.committed)) / 1000;
     }},
    {"newest_save_seconds", "From its begin until it was durable.",
     [](const StepInfo& step) {
       return absl::ToDoubleSeconds(step.committed - step.begun);
     }},
    {"newest_new_bytes", "Of values that its save wrote.",
     FieldOf<&StepInfo::new_bytes>},
    {"newest_logical_bytes", "Of all its values.",
     FieldOf<&StepInfo::logical_bytes>},
    {"newest_leaves", "Its leaves.", FieldOf<&StepInfo::leaf_count>},
    {"newest_changed_leaves", "Those that changed.",
     FieldOf<&StepInfo::changed_leaves>},
    {"newest_nan_elements", "NaN in its arrays.",
     FieldOf<&StepInfo::nan_count>},
    {"newest_inf_elements", "Inf in its arrays.",
     FieldOf<&StepInfo::inf_count>},
    {"newest_nonfinite_leaves", "Arrays of it with NaN or Inf.",
     FieldOf<&StepInfo::nonfinite_leaves>},
};

void Head(std::string_view name, std::string_view help, std::string* text) {
  absl::StrAppendFormat(text, "# HELP ckptree_%s %s\n# TYPE ckptree_%s gauge\n",
                        name, help, name);
}

}  // namespace

absl::StatusOr<std::vector<StepInfo>> LiveRun::Look(std::string* version) {
  if (absl::Status status = store_.Refresh(); !status.ok()) return status;
  absl::StatusOr<std::vector<StepInfo>> steps = store_.Steps(branch_);
  if (!steps.ok()) return steps.status();
  if (steps->empty()) return absl::NotFoundError("the store has no steps yet");
  // Commits of tags and pins count, too.
  *version = absl::StrFormat("%d/%d/%d", store_.Info().commits, steps->size(),
                             steps->back().version);
  return steps;
}

absl::Status LiveRun::Update() {
  std::string version;
  absl::StatusOr<std::vector<StepInfo>> steps = Look(&version);
  if (!steps.ok()) return steps.status();
  if (version == version_) return absl::OkStatus();
  const absl::Time begun = NowForWaits();
  if (begun < next_) return absl::OkStatus();
  ReportOptions options = options_;
  options.steps = *std::move(steps);
  options.now = absl::Now();
  absl::StatusOr<std::string> data = GatherReport(store_, options);
  if (!data.ok()) return data.status();
  data_ = *std::move(data);
  version_ = std::move(version);
  const absl::Time now = NowForWaits();
  next_ = now + (now - begun) * kRestOfGathering;
  return absl::OkStatus();
}

absl::StatusOr<std::string> LiveRun::Version() {
  const absl::MutexLock lock(&mutex_);
  std::string version;
  const absl::StatusOr<std::vector<StepInfo>> steps = Look(&version);
  if (!steps.ok()) return steps.status();
  return NowForWaits() < next_ ? version_ : version;
}

absl::StatusOr<std::string> LiveRun::Data(std::string* version) {
  const absl::MutexLock lock(&mutex_);
  if (absl::Status status = Update(); !status.ok()) return status;
  if (version != nullptr) *version = version_;
  return data_;
}

absl::StatusOr<std::string> LiveRun::Metrics() {
  const absl::MutexLock lock(&mutex_);
  if (absl::Status status = store_.Refresh(); !status.ok()) return status;
  const absl::StatusOr<std::vector<BranchInfo>> branches = store_.Branches();
  if (!branches.ok()) return branches.status();
  std::vector<StepInfo> newest;
  std::string text, version;
  Head("steps", "Steps there are.", &text);
  for (const BranchInfo& branch : *branches) {
    absl::StatusOr<std::vector<StepInfo>> steps = store_.Steps(branch.name);
    if (absl::IsNotFound(steps.status())) continue;  // Dropped since.
    if (!steps.ok()) return steps.status();
    absl::StrAppendFormat(&text, "ckptree_steps{branch=\"%s\"} %d\n",
                          Label(branch.name), steps->size());
    if (steps->empty()) continue;
    absl::StrAppendFormat(&version, "%d/%d ", steps->size(),
                          steps->back().version);
    newest.push_back(std::move(steps->back()));
  }
  for (const Gauge& gauge : kGauges) {
    Head(gauge.name, gauge.help, &text);
    for (const StepInfo& step : newest) {
      absl::StrAppendFormat(&text, "ckptree_%s{branch=\"%s\"} %s\n", gauge.name,
                            Label(step.branch), Value(gauge.of(step)));
    }
  }
  Head("metric", "What the newest step was saved with.", &text);
  for (const StepInfo& step : newest) {
    for (const auto& [name, value] : step.metrics) {
      absl::StrAppendFormat(&text,
                            "ckptree_metric{branch=\"%s\",name=\"%s\"} %s\n",
                            Label(step.branch), Label(name), Value(value));
    }
  }
  // Reads more than the rest, and is the same until there is another step.
  if (version != usage_version_) {
    const absl::StatusOr<UsageReport> usage = store_.Usage();
    if (!usage.ok()) return usage.status();
    disk_bytes_ = usage->file_bytes;
    usage_version_ = version;
  }
  Head("disk_bytes", "Of all files of the store.", &text);
  absl::StrAppendFormat(&text, "ckptree_disk_bytes %d\n", disk_bytes_);
  return text;
}

}  // namespace ckptree::tools
