// SPDX-License-Identifier: Apache-2.0

// `ckptree show`: all about a step or a leaf.

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/engine/blame_pieces.h"
#include "tools/line/command.h"
#include "tools/line/target.h"
#include "tools/output/clock.h"
#include "tools/output/failure.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/output/table.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kMaxLineageShown = 500;

// Labelled lines, the values below each other.
class Sheet {
 public:
  void Add(std::string_view label, std::string_view value,
           Tone tone = Tone::kPlain) {
    if (!value.empty())
      lines_.push_back({std::string(label), Escape(value), tone});
  }

  std::string Text(bool color) const {
    std::size_t width = 0;
    for (const Line& line : lines_) width = std::max(width, line.label.size());
    std::string text;
    for (const Line& line : lines_) {
      text += Paint(line.label, Tone::kFaint, color);
      text.append(width + 2 - line.label.size(), ' ');
      text += Paint(line.value, line.tone, color) + "\n";
    }
    return text;
  }

 private:
  struct Line {
    std::string label;
    std::string value;
    Tone tone;
  };
  std::vector<Line> lines_;
};

std::string WhenText(absl::Time time) {
  if (time == absl::UnixEpoch()) return "";
  return absl::StrFormat("%s (%s)", TimeText(time),
                         AgeText(time, NowForAges()));
}

std::string ListText(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d", i == 0 ? "" : ",", shape[i]);
  }
  return text + "]";
}

constexpr std::size_t kSortedBytes = 64 << 10;

// Custom metadata is JSON text; what is not stays text.
Json ParseCustom(const std::string& text) {
  if (text.empty()) return nullptr;
  // Names that stand in the order of the text are found one by one: of very
  // many that takes minutes, so such come sorted.
  Json value = text.size() < kSortedBytes
                   ? Json::parse(text, nullptr, /*allow_exceptions=*/false)
                   : Json(nlohmann::json::parse(text, nullptr,
                                                /*allow_exceptions=*/false));
  if (value.is_discarded()) return text;
  return value;
}

Json PartsJson(const std::vector<PartInfo>& parts) {
  Json json = Json::array();
  for (const PartInfo& part : parts) {
    json.push_back({{"rank", part.rank},
                    {"host", part.host},
                    {"pid", part.pid},
                    {"bytes", part.bytes},
                    {"new_bytes", part.new_bytes},
                    {"seconds", absl::ToDoubleSeconds(part.duration)}});
  }
  return json;
}

// "8 of 2 hosts; the slowest, rank 3 on h1, took 1.2 s".
std::string PartsText(const std::vector<PartInfo>& parts) {
  if (parts.empty()) return "";
  std::set<std::string_view> hosts;
  const PartInfo* slowest = &parts.front();
  for (const PartInfo& part : parts) {
    hosts.insert(part.host);
    if (part.duration > slowest->duration) slowest = &part;
  }
  return absl::StrFormat("%d of %s; the slowest, rank %d on %s, took %s",
                         parts.size(), CountText(hosts.size(), "host", "hosts"),
                         slowest->rank, slowest->host,
                         DurationText(slowest->duration));
}

Table PartsTable(const std::vector<PartInfo>& parts, bool exact) {
  Table table;
  table.schema = "ckptree.parts/1";
  table.rows_name = "parts";
  table.columns = {{.name = "rank", .title = "RANK", .right = true},
                   {.name = "host", .title = "HOST", .elide = true},
                   {.name = "pid", .title = "PID", .right = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "new_bytes", .title = "NEW", .right = true},
                   {.name = "seconds", .title = "TOOK", .right = true}};
  for (const PartInfo& part : parts) {
    Cell took = NumberCell(absl::ToDoubleSeconds(part.duration));
    took.text = DurationText(part.duration);
    table.rows.push_back({StepCell(part.rank), TextCell(part.host),
                          StepCell(part.pid), BytesCell(part.bytes, exact),
                          BytesCell(part.new_bytes, exact), std::move(took)});
  }
  return table;
}

Json StepJson(const StepInfo& info, const StepMetadata& metadata) {
  Json metrics = Json::object();
  for (const auto& [name, value] : info.metrics) metrics[name] = value;
  Json items = Json::object();
  for (const auto& [name, kind] : metadata.items) items[name] = kind;
  Json lineage = Json::object();
  for (const auto& [name, value] : metadata.lineage) lineage[name] = value;
  return {{"schema", "ckptree.step/1"},
          {"branch", info.branch},
          {"step", info.step},
          {"version", info.version},
          {"base", info.base},
          {"begun", TimeText(info.begun)},
          {"staged", TimeText(info.staged)},
          {"committed", TimeText(info.committed)},
          {"metrics", metrics},
          {"tags", info.tags},
          {"pinned", info.pinned},
          {"leaves", info.leaf_count},
          {"changed_leaves", info.changed_leaves},
          {"logical_bytes", info.logical_bytes},
          {"new_bytes", info.new_bytes},
          {"nan", info.nan_count},
          {"inf", info.inf_count},
          {"nonfinite_leaves", info.nonfinite_leaves},
          {"unknown_leaves", info.unknown_leaves},
          {"digest", info.digest},
          {"saved_by", info.saved_by},
          {"note", info.note},
          {"items", items},
          {"lineage", lineage},
          {"parts", PartsJson(metadata.parts)},
          {"custom", ParseCustom(metadata.custom)}};
}

Sheet StepSheet(const StepInfo& info, const StepMetadata& metadata,
                bool exact) {
  Sheet sheet;
  sheet.Add("step", StepText(info.branch, info.step), Tone::kHeading);
  std::string tags;
  for (const std::string& tag : info.tags) {
    tags += (tags.empty() ? "@" : " @") + tag;
  }
  sheet.Add("tags", tags);
  if (info.pinned) sheet.Add("pinned", "yes");
  sheet.Add("note", info.note);
  sheet.Add("committed", WhenText(info.committed));
  if (info.committed - info.begun < absl::Hours(24)) {
    sheet.Add("staged after", DurationText(info.staged - info.begun));
    sheet.Add("committed after", DurationText(info.committed - info.begun));
  } else {
    // Saved before, elsewhere: the step was given its time.
    sheet.Add("time", WhenText(info.begun));
  }
  sheet.Add("leaves", absl::StrFormat("%d, %d of them changed", info.leaf_count,
                                      info.changed_leaves));
  sheet.Add("size", SizeText(info.logical_bytes, exact));
  sheet.Add("written", SizeText(info.new_bytes, exact));
  if (info.nonfinite_leaves > 0) {
    sheet.Add("not finite",
              absl::StrFormat(
                  "%d NaN and %d Inf in %s", info.nan_count, info.inf_count,
                  CountText(info.nonfinite_leaves, "leaf", "leaves")),
              Tone::kBad);
  }
  if (info.unknown_leaves > 0) {
    sheet.Add("not known",
              absl::StrFormat("NaN and Inf in %s: saved with statistics off",
                              CountText(info.unknown_leaves, "leaf", "leaves")),
              Tone::kBad);
  }
  for (const auto& [name, value] : info.metrics) {
    sheet.Add("metric " + Escape(name), NumberText(value));
  }
  for (const auto& [name, kind] : metadata.items) {
    sheet.Add("item " + Escape(name), kind);
  }
  sheet.Add("parts", PartsText(metadata.parts));
  sheet.Add("version", absl::StrFormat("%d", info.version));
  sheet.Add("base", info.base == 0 ? std::string("none: a full save")
                                   : absl::StrFormat("version %d", info.base));
  sheet.Add("digest", info.digest);
  sheet.Add("saved by", info.saved_by);
  for (const auto& [name, value] : metadata.lineage) {
    // --json has all of it: a program may note much.
    sheet.Add("from " + Escape(name),
              value.size() > kMaxLineageShown
                  ? absl::StrCat(value.substr(0, kMaxLineageShown), "...")
                  : value);
  }
  if (!metadata.custom.empty()) {
    sheet.Add("custom", JsonText(ParseCustom(metadata.custom), false));
  }
  return sheet;
}

Json StatisticsJson(const Statistics& statistics) {
  Json json = {{"count", statistics.count},
               {"nan", statistics.nan},
               {"inf", statistics.inf},
               {"zeros", statistics.zero},
               {"min", nullptr},
               {"max", nullptr},
               {"mean", nullptr},
               {"std", nullptr},
               {"l2", nullptr}};
  if (statistics.finite() > 0) {
    json["min"] = statistics.min;
    json["max"] = statistics.max;
    json["mean"] = statistics.mean();
    json["std"] = StatisticOf(statistics, "std");
    json["l2"] = statistics.l2();
  }
  return json;
}

Json LeafJson(const LeafInfo& named, const LeafInfo& leaf,
              const LeafDetail& detail) {
  const bool array = HoldsArray(leaf);
  Json boxes = Json::array();
  for (const BoxSpec& box : detail.boxes) {
    boxes.push_back({{"start", box.start}, {"shape", box.shape}});
  }
  return {{"key", named.name},
          {"tie_to", named.tie_to ? Json(leaf.name) : Json()},
          {"kind", std::string(Name(KindOf(leaf)))},
          {"dtype", array ? Json(std::string(Name(leaf.dtype))) : Json()},
          {"packed", leaf.packed},
          {"shape", array ? Json(leaf.shape) : Json()},
          {"tag", leaf.tag},
          {"bytes", detail.bytes},
          {"stored_bytes", detail.stored_bytes},
          {"since", detail.since_step},
          {"since_version", detail.since_version},
          {"digest", detail.digest},
          {"chunks", detail.chunk_count},
          {"chunk_shape", array ? Json(detail.chunk_shape) : Json()},
          {"boxes", boxes},
          {"statistics", detail.statistics && !IsLargeInt(leaf)
                             ? StatisticsJson(*detail.statistics)
                             : Json()}};
}

Sheet LeafSheet(const Step& step, const LeafInfo& named, const LeafInfo& leaf,
                const LeafDetail& detail,
                const internal::BranchByVersion& branches, bool exact) {
  Sheet sheet;
  sheet.Add("key", named.name, Tone::kHeading);
  if (named.tie_to) sheet.Add("tied to", leaf.name);
  sheet.Add("step", StepText(step.info().branch, step.step()));
  sheet.Add("kind", Name(KindOf(leaf)));
  if (HoldsArray(leaf)) {
    sheet.Add("dtype", absl::StrFormat("%s%s", Name(leaf.dtype),
                                       leaf.packed ? ", packed" : ""));
    sheet.Add("shape", ListText(leaf.shape));
  }
  sheet.Add("tag", leaf.tag);
  sheet.Add("size", SizeText(detail.bytes, exact));
  // Where that step was removed nobody knows of which branch it was.
  const auto since = branches.find(detail.since_version);
  sheet.Add("unchanged since",
            "step " + StepText(since == branches.end() ? "" : since->second,
                               detail.since_step));
  sheet.Add("digest", detail.digest);
  if (detail.chunk_count == 0) {
    sheet.Add("chunks", "none: stands in its record");
  } else {
    std::string chunks = absl::StrFormat("%d", detail.chunk_count);
    if (!detail.chunk_shape.empty()) {
      chunks += " of " + ListText(detail.chunk_shape);
    }
    sheet.Add("chunks",
              chunks + ", " + SizeText(detail.stored_bytes, exact) + " stored");
  }
  if (detail.boxes.size() > 1) {
    for (const BoxSpec& box : detail.boxes) {
      sheet.Add("box", ListText(box.shape) + " from " + ListText(box.start));
    }
  }
  if (detail.statistics && !IsLargeInt(leaf)) {
    const Statistics& s = *detail.statistics;
    if (s.finite() > 0) {
      sheet.Add("min", ShortNumberText(s.min));
      sheet.Add("max", ShortNumberText(s.max));
      sheet.Add("mean", ShortNumberText(s.mean()));
      sheet.Add("std", std::isnan(s.std_dev()) ? "not known"
                                               : ShortNumberText(s.std_dev()));
      sheet.Add("l2", ShortNumberText(s.l2()));
    }
    sheet.Add("zeros", absl::StrFormat("%d of %d", s.zero, s.count));
    if (s.nan > 0) sheet.Add("nan", absl::StrFormat("%d", s.nan), Tone::kBad);
    if (s.inf > 0) sheet.Add("inf", absl::StrFormat("%d", s.inf), Tone::kBad);
  }
  return sheet;
}

absl::Status ShowStep(Session& session, const Step& step, bool json) {
  const absl::StatusOr<StepMetadata> metadata = step.Metadata();
  if (!metadata.ok()) return metadata.status();
  const bool exact = session.arguments().Has("bytes");
  if (session.arguments().Has("parts")) {
    if (metadata->parts.empty()) {
      session.Note("one process saved this step: it has no parts");
    }
    TableOptions options;
    if (json) options.format = Format::kJson;
    return session.Print(PartsTable(metadata->parts, exact), options);
  }
  session.out().Write(json ? JsonText(StepJson(step.info(), *metadata), true) +
                                 "\n"
                           : StepSheet(step.info(), *metadata, exact)
                                 .Text(session.terminal().color));
  return absl::OkStatus();
}

absl::Status ShowLeaf(Session& session, const Step& step, std::string_view key,
                      bool json) {
  const absl::StatusOr<Target> target = FindTarget(step, key);
  if (!target.ok()) return target.status();
  if (!target->slice.empty()) {
    return absl::InvalidArgumentError("`ckptree show` takes no slice");
  }
  const bool exact = session.arguments().Has("bytes");
  internal::BranchByVersion branches;
  if (!json) {
    CKPTREE_ASSIGN_OR_RETURN(const Store* store, session.OpenStore());
    CKPTREE_ASSIGN_OR_RETURN(branches, internal::ListedVersions(*store));
  }
  Json leaves = Json::array();
  bool first = true;
  for (const LeafInfo& named : target->leaves) {
    const absl::StatusOr<LeafInfo> leaf = step.Holder(named);
    if (!leaf.ok()) return leaf.status();
    const absl::StatusOr<LeafDetail> detail = step.Detail(leaf->path);
    if (!detail.ok()) return detail.status();
    if (json) {
      leaves.push_back(LeafJson(named, *leaf, *detail));
      continue;
    }
    if (!first) session.out().Write("\n");
    first = false;
    session.out().Write(LeafSheet(step, named, *leaf, *detail, branches, exact)
                            .Text(session.terminal().color));
  }
  if (json) {
    const Json document = {{"schema", "ckptree.leaf/2"},
                           {"branch", step.info().branch},
                           {"step", step.step()},
                           {"leaves", std::move(leaves)}};
    session.out().Write(JsonText(document, true) + "\n");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunShow(Session& session) {
  const auto file =
      FindFile(session, session.words().empty() ? "" : session.words()[0]);
  if (!file.ok()) return file.status();
  if (*file) return ShowFile(session, **file);
  const absl::StatusOr<Address> address =
      ParseAddress(session.words().empty() ? "" : session.words()[0]);
  if (!address.ok()) return address.status();
  const bool json = session.arguments().Has("json") ||
                    session.arguments().Get("output", "table") == "json";
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  if (session.arguments().Has("parts") && !address->key.empty()) {
    return absl::InvalidArgumentError(
        "--parts is of a whole step: leave the key out");
  }
  const absl::Status status =
      address->key.empty() ? ShowStep(session, *step, json)
                           : ShowLeaf(session, *step, address->key, json);
  if (!status.ok()) return status;
  return kExitOk;
}

}  // namespace ckptree::tools
