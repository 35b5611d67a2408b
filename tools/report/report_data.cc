// SPDX-License-Identifier: Apache-2.0

#include "tools/report/report_data.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ckptree/version.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/output/table.h"
#include "tools/report/branches.h"
#include "tools/report/choose_steps.h"
#include "tools/report/histograms.h"
#include "tools/report/leaf_grid.h"
#include "tools/report/number_pack.h"

namespace ckptree::tools {
namespace {

// What is drawn of a step is a few dozen bytes of the page.
constexpr std::size_t kMostDrawnSteps = 20000;
// Leaves times steps whose statistics are in the page, some ten bytes each.
constexpr std::size_t kMostCells = std::size_t{1} << 18;
constexpr std::size_t kMostLeafSteps = 1024;
constexpr std::size_t kLeastLeafSteps = 4;
constexpr std::size_t kMostSubtrees = 1500;
constexpr int kDeepestSubtrees = 5;

template <typename Value>
std::vector<std::int64_t> Integers(const std::vector<StepInfo>& steps,
                                   const Value& value) {
  std::vector<std::int64_t> all;
  all.reserve(steps.size());
  for (const StepInfo& step : steps) {
    all.push_back(static_cast<std::int64_t>(value(step)));
  }
  return all;
}

// The metrics by the steps in which they are; NaN is a value.
Json MetricsOf(const std::vector<StepInfo>& steps, NumberPack* pack) {
  std::vector<std::string> names;
  std::map<std::string, std::size_t> places;
  for (const StepInfo& step : steps) {
    for (const auto& [name, value] : step.metrics) {
      if (places.emplace(name, names.size()).second) names.push_back(name);
    }
  }
  std::vector<std::vector<double>> values(names.size());
  std::vector<std::vector<std::int64_t>> at(names.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const auto& [name, value] : steps[i].metrics) {
      const std::size_t place = places[name];
      values[place].push_back(value);
      at[place].push_back(static_cast<std::int64_t>(i));
    }
  }
  Json metrics = Json::array();
  for (std::size_t m = 0; m < names.size(); ++m) {
    metrics.push_back({{"name", names[m]},
                       {"at", pack->AddIntegers(at[m])},
                       {"value", pack->AddFloats(values[m], Digits::kFloat)}});
  }
  return metrics;
}

Json StepsOf(const std::vector<StepInfo>& steps, const UsageReport& usage,
             NumberPack* pack) {
  std::map<std::uint64_t, std::uint64_t> stored;
  for (const StepUsage& step : usage.steps) {
    stored[step.version] = step.unique_stored_bytes;
  }
  Json json;
  const auto add = [&](const char* name, const auto& value) {
    json[name] = pack->AddIntegers(Integers(steps, value));
  };
  add("step", [](const StepInfo& step) { return step.step; });
  add("time",
      [](const StepInfo& step) { return absl::ToUnixMillis(step.committed); });
  add("new", [](const StepInfo& step) { return step.new_bytes; });
  add("all", [](const StepInfo& step) { return step.logical_bytes; });
  add("alone", [&](const StepInfo& step) { return stored[step.version]; });
  add("leaves", [](const StepInfo& step) { return step.leaf_count; });
  add("changed", [](const StepInfo& step) { return step.changed_leaves; });
  add("nan", [](const StepInfo& step) { return step.nan_count; });
  add("inf", [](const StepInfo& step) { return step.inf_count; });
  add("bad", [](const StepInfo& step) { return step.nonfinite_leaves; });
  Json told = Json::array();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepInfo& step = steps[i];
    if (step.tags.empty() && !step.pinned && step.note.empty()) continue;
    told.push_back({{"at", i},
                    {"tags", step.tags},
                    {"pinned", step.pinned},
                    {"note", step.note}});
  }
  json["told"] = std::move(told);
  return json;
}

// As deep as the page holds: what the bytes of the newest step are of.
absl::StatusOr<Json> SubtreesOf(const Store& store, const StepInfo& step) {
  std::vector<SubtreeUsage> best;
  for (int depth = 1; depth <= kDeepestSubtrees; ++depth) {
    absl::StatusOr<std::vector<SubtreeUsage>> found =
        store.Subtrees(AtStep(step.step, step.branch), depth);
    if (IsStepGone(found.status())) return Json::array();
    if (!found.ok()) return found.status();
    if (depth > 1 && found->size() > kMostSubtrees) break;
    const bool same = found->size() == best.size();
    best = *std::move(found);
    if (same) break;
  }
  if (best.size() > kMostSubtrees) best.resize(kMostSubtrees);
  Json subtrees = Json::array();
  for (const SubtreeUsage& subtree : best) {
    subtrees.push_back({{"name", subtree.name},
                        {"leaves", subtree.leaves},
                        {"bytes", subtree.logical_bytes},
                        {"alone", subtree.unique_bytes}});
  }
  return subtrees;
}

absl::StatusOr<std::string> Deflate(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string packed(size, '\0');
  const int code =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                reinterpret_cast<const Bytef*>(bytes.data()),
                static_cast<uLong>(bytes.size()), Z_BEST_COMPRESSION);
  if (code != Z_OK) {
    return absl::ResourceExhaustedError("no memory to deflate the report");
  }
  packed.resize(size);
  return packed;
}

}  // namespace

absl::Status CheckNames(const ReportOptions& options) {
  for (const auto* globs : {&options.keys, &options.histograms}) {
    for (const std::string& glob : *globs) {
      if (absl::Status status = ValidateGlob(glob); !status.ok()) {
        return WithHint(status, "`*` is any run in one part, `**` any parts");
      }
    }
  }
  return absl::OkStatus();
}

std::string StoreName(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path whole =
      std::filesystem::canonical(directory, error);
  return error ? directory : whole.filename().string();
}

absl::StatusOr<std::string> GatherReport(const Store& store,
                                         const ReportOptions& options) {
  std::vector<StepInfo> steps;
  for (const std::size_t i : ChooseSteps(options.steps, kMostDrawnSteps)) {
    steps.push_back(options.steps[i]);
  }
  const absl::StatusOr<UsageReport> usage = store.Usage();
  if (!usage.ok()) return usage.status();

  // How many leaves there are is known of the newest step alone.
  std::size_t most = options.leaf_steps;
  if (most == 0) {
    const std::size_t leaves =
        std::max<std::size_t>(1, steps.back().leaf_count);
    most = std::clamp(kMostCells / leaves, kLeastLeafSteps, kMostLeafSteps);
  }
  LeafGrid grid(options.keys);
  for (const std::size_t i : ChooseSteps(steps, most)) {
    if (options.cancelled()) return absl::CancelledError("interrupted");
    const absl::StatusOr<Step> step =
        store.OpenStep(AtStep(steps[i].step, steps[i].branch));
    if (IsStepGone(step.status())) continue;
    if (!step.ok()) return step.status();
    const absl::Status status = grid.Add(*step, i);
    if (IsStepGone(status)) continue;
    if (!status.ok()) return status;
  }

  NumberPack pack;
  Json json = {{"schema", "ckptree.report/1"}};
  const StoreInfo info = store.Info();
  json["store"] = {{"name", options.name},
                   {"uuid", info.uuid},
                   {"branch", steps.back().branch},
                   {"steps", options.steps.size()},
                   {"disk", usage->file_bytes},
                   {"logical", usage->logical_bytes},
                   {"made", TimeText(options.now)},
                   {"by", absl::StrFormat("ckptree %s", Version())}};
  json["steps"] = StepsOf(steps, *usage, &pack);
  json["metrics"] = MetricsOf(steps, &pack);
  absl::StatusOr<Json> branches = BranchesOf(store, steps, &pack);
  if (!branches.ok()) return branches.status();
  json["branches"] = *std::move(branches);
  json["grid"] = grid.Take(&pack);
  absl::StatusOr<Json> subtrees = SubtreesOf(store, steps.back());
  if (!subtrees.ok()) return subtrees.status();
  json["subtrees"] = *std::move(subtrees);
  absl::StatusOr<Json> histograms =
      HistogramsOf(store, steps, options.histograms, options.cancelled, &pack);
  if (!histograms.ok()) return histograms.status();
  json["histograms"] = *std::move(histograms);

  const std::string text = JsonText(json, /*pretty=*/false);
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) {
    bytes.push_back(static_cast<char>(size >> shift));
  }
  bytes += text;
  bytes += pack.bytes();
  return Deflate(bytes);
}

}  // namespace ckptree::tools
