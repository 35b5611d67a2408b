// SPDX-License-Identifier: Apache-2.0

#include "python/src/records.h"

#include <string>
#include <string_view>
#include <utility>

#include "python/src/errors.h"
#include "python/src/numpy_array.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

// Takes one field after the other.
class Fields {
 public:
  template <typename Value>
  Fields& operator()(const char* name, const Value& value) {
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      dict_[name] = ToText(value);
    } else {
      dict_[name] = value;
    }
    return *this;
  }

  nb::dict Take() { return std::move(dict_); }

 private:
  nb::dict dict_;
};

nb::list Texts(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(ToText(text));
  return list;
}

nb::dict TextPairs(
    const std::vector<std::pair<std::string, std::string>>& pairs) {
  nb::dict dict;
  for (const auto& [name, text] : pairs) dict[ToText(name)] = ToText(text);
  return dict;
}

const char* Name(Progress::Phase phase) {
  switch (phase) {
    case Progress::Phase::kQueued:
      return "queued";
    case Progress::Phase::kWriting:
      return "writing";
    case Progress::Phase::kCommitting:
      return "committing";
    case Progress::Phase::kDone:
      return "done";
    case Progress::Phase::kFailed:
      return "failed";
  }
  return "unknown";
}

nb::object StatisticsOf(const LeafDetail& detail) {
  if (!detail.statistics.has_value()) return nb::none();
  const Statistics& s = *detail.statistics;
  return Fields()("count", s.count)("nan", s.nan)("inf", s.inf)("zero", s.zero)(
             "min", s.min)("max", s.max)("mean", s.mean())("std", s.std_dev())(
             "l2", s.l2())
      .Take();
}

nb::object Optional(const std::optional<LeafInfo>& leaf) {
  return leaf.has_value() ? nb::cast(*leaf) : nb::none();
}

nb::object Optional(const std::optional<LeafDetail>& detail) {
  return detail.has_value() ? nb::object(ToDict(*detail)) : nb::none();
}

}  // namespace

Record ToDict(const StepInfo& info) {
  nb::dict metrics;
  for (const auto& [name, value] : info.metrics) metrics[ToText(name)] = value;
  return Fields()("step", info.step)("branch", info.branch)("metrics", metrics)(
             "tags", Texts(info.tags))("pinned", info.pinned)(
             "leaf_count", info.leaf_count)("changed_leaves",
                                            info.changed_leaves)(
             "logical_bytes", info.logical_bytes)("new_bytes", info.new_bytes)(
             "nan_count", info.nan_count)("inf_count", info.inf_count)(
             "nonfinite_leaves", info.nonfinite_leaves)(
             "begun_ns", absl::ToUnixNanos(info.begun))(
             "staged_ns", absl::ToUnixNanos(info.staged))(
             "committed_ns", absl::ToUnixNanos(info.committed))(
             "version", info.version)("base", info.base)("digest", info.digest)(
             "saved_by", info.saved_by)("note", info.note)("unknown_leaves",
                                                           info.unknown_leaves)
      .Take();
}

Record ToDict(const PartInfo& part) {
  return Fields()("rank", part.rank)("host", part.host)("pid", part.pid)(
             "nbytes", part.bytes)("new_bytes", part.new_bytes)(
             "seconds", absl::ToDoubleSeconds(part.duration))
      .Take();
}

Record ToDict(const StepMetadata& metadata) {
  return Fields()("items", TextPairs(metadata.items))(
             "custom", metadata.custom)("lineage", TextPairs(metadata.lineage))(
             "parts", ToDicts(metadata.parts))
      .Take();
}

Record ToDict(const LeafDetail& detail) {
  nb::list boxes;
  for (const BoxSpec& box : detail.boxes) {
    boxes.append(nb::make_tuple(FromShape(box.start), FromShape(box.shape)));
  }
  return Fields()("nbytes", detail.bytes)("since_step", detail.since_step)(
             "since_version", detail.since_version)("digest", detail.digest)(
             "stats", StatisticsOf(detail))("chunk_count", detail.chunk_count)(
             "chunk_shape", FromShape(detail.chunk_shape))("boxes", boxes)(
             "stored_bytes", detail.stored_bytes)
      .Take();
}

Record ToDict(const TagInfo& tag) {
  return Fields()("name", tag.name)("step", tag.step)("branch", tag.branch)(
             "version", tag.version)
      .Take();
}

Record ToDict(const BranchInfo& branch) {
  return Fields()("name", branch.name)("origin_branch", branch.origin_branch)(
             "origin_step", branch.origin_step)(
             "created_ns", absl::ToUnixNanos(branch.created))(
             "steps", branch.steps)("origin_version", branch.origin_version)
      .Take();
}

Record ToDict(const Finding& finding) {
  return Fields()("severity", ToText(Name(finding.severity)))(
             "what", finding.what)("steps", Texts(finding.selectors))(
             "leaf", finding.leaf)
      .Take();
}

Record ToDict(const VerifyReport& report) {
  return Fields()("findings", ToDicts(report.findings))("steps", report.steps)(
             "leaves", report.leaves)("chunks", report.chunks)("nbytes",
                                                               report.bytes)
      .Take();
}

Record ToDict(const StoreInfo& info) {
  return Fields()("directory", ToFileName(info.directory))("uuid", info.uuid)(
             "format", info.format)("created_ns",
                                    absl::ToUnixNanos(info.created))(
             "created_by", info.created_by)("read_only", info.read_only)(
             "following", info.following)("commits", info.commits)(
             "incarnation", info.incarnation)("remote", info.remote)(
             "unshipped", info.unshipped)("shipped_to", info.shipped_to)(
             "far_nbytes", info.far_bytes)("warnings", Texts(info.warnings))
      .Take();
}

Record ToDict(const Stats& stats) {
  return Fields()("saves_committed", stats.saves_committed)(
             "saves_failed", stats.saves_failed)("saves_in_flight",
                                                 stats.saves_in_flight)(
             "bytes_staged", stats.bytes_staged)("bytes_hashed",
                                                 stats.bytes_hashed)(
             "bytes_written", stats.bytes_written)("bytes_unchanged",
                                                   stats.bytes_unchanged)(
             "bytes_coded", stats.bytes_coded)("bytes_coded_to",
                                               stats.bytes_coded_to)(
             "bytes_read", stats.bytes_read)("chunks_written",
                                             stats.chunks_written)(
             "leaf_records_written", stats.leaf_records_written)(
             "segments_written", stats.segments_written)("seconds_staging",
                                                         stats.seconds_staging)(
             "seconds_comparing_and_writing",
             stats.seconds_comparing_and_writing)("seconds_committing",
                                                  stats.seconds_committing)(
             "staging_bytes_in_use", stats.staging_bytes_in_use)
      .Take();
}

Record ToDict(const KeptVersion& kept) {
  return Fields()("step", kept.step)("version", kept.version)("why", kept.why)
      .Take();
}

Record ToDict(const CollectReport& report) {
  return Fields()("versions", report.versions)("blocks_freed",
                                               report.blocks_freed)(
             "bytes_freed", report.bytes_freed)("far_bytes_freed",
                                                report.far_bytes_freed)(
             "bytes_left", report.bytes_left)("files_dropped",
                                              report.files_dropped)(
             "files_rewritten", report.files_rewritten)("files_packed",
                                                        report.files_packed)(
             "bytes_written", report.bytes_written)("file_bytes_before",
                                                    report.file_bytes_before)(
             "file_bytes_after", report.file_bytes_after)(
             "kept", ToDicts(report.kept))("damaged", Texts(report.damaged))(
             "no_room", Texts(report.no_room))
      .Take();
}

Record ToDict(const StepUsage& usage) {
  return Fields()("step", usage.step)("branch", usage.branch)(
             "version", usage.version)("logical_bytes", usage.logical_bytes)(
             "new_bytes", usage.new_bytes)("unique_bytes", usage.unique_bytes)(
             "unique_stored_bytes", usage.unique_stored_bytes)
      .Take();
}

Record ToDict(const UsageReport& report) {
  return Fields()("steps", ToDicts(report.steps))(
             "logical_bytes", report.logical_bytes)("pending_bytes",
                                                    report.pending_bytes)(
             "pending_stored_bytes", report.pending_stored_bytes)(
             "dead_bytes", report.dead_bytes)("files", report.files)(
             "file_bytes", report.file_bytes)("far_bytes", report.far_bytes)(
             "living_bytes", report.living_bytes)("living_stored_bytes",
                                                  report.living_stored_bytes)(
             "kept", ToDicts(report.kept))
      .Take();
}

Record ToDict(const FreedBytes& freed) {
  return Fields()("nbytes", freed.bytes)("stored_bytes", freed.stored_bytes)(
             "remote_bytes", freed.remote_bytes)("blocks", freed.blocks)(
             "kept", ToDicts(freed.kept))
      .Take();
}

Record ToDict(const SubtreeUsage& usage) {
  return Fields()("name", usage.name)("leaves", usage.leaves)(
             "logical_bytes", usage.logical_bytes)(
             "unique_bytes", usage.unique_bytes)("unique_value_bytes",
                                                 usage.unique_value_bytes)
      .Take();
}

Record ToDict(const Progress& progress) {
  return Fields()("step", progress.step)("phase", Name(progress.phase))(
             "bytes_total", progress.bytes_total)("bytes_staged",
                                                  progress.bytes_staged)(
             "bytes_compared", progress.bytes_compared)("bytes_written",
                                                        progress.bytes_written)(
             "bytes_unchanged", progress.bytes_unchanged)("leaves_total",
                                                          progress.leaves_total)
      .Take();
}

Record ToDict(const PolicyInfo& info) {
  return Fields()("text", info.text)("problem",
                                     std::string(info.applicable.message()))(
             "from_program", info.from_program)("set_by", info.set_by)(
             "set_ns", absl::ToUnixNanos(info.set))
      .Take();
}

Record ToDict(const PolicyVerdict& verdict) {
  return Fields()("step", verdict.step)("kept", verdict.kept)(
             "why", Texts(verdict.why))("begun_ns",
                                        absl::ToUnixNanos(verdict.begun))
      .Take();
}

Record ToDict(const PolicyReport& report) {
  return Fields()("policy", report.policy)("steps", ToDicts(report.steps))(
             "freed", ToDict(report.freed))
      .Take();
}

Record ToDict(const ItemInfo& item) {
  nb::list leaves;
  for (const LeafInfo& leaf : item.leaves) {
    if (!leaf.is_leaf()) continue;
    leaves.append(nb::cast(leaf));
  }
  return Fields()("name", item.name)("kind", item.kind)("leaves", leaves)
      .Take();
}

Record ToDict(const HistoryEntry& entry) {
  return Fields()("step", entry.first_step)("last_step", entry.last_step)(
             "steps", entry.steps)("begun_ns", absl::ToUnixNanos(entry.begun))(
             "leaf", nb::cast(entry.leaf))("detail", ToDict(entry.detail))
      .Take();
}

Record ToDict(const LeafChange& change) {
  return Fields()("name", change.name)("change", ToText(Name(change.kind)))(
             "before", Optional(change.before))(
             "after", Optional(change.after))("before_detail",
                                              Optional(change.before_detail))(
             "after_detail", Optional(change.after_detail))
      .Take();
}

Record ToDict(const DiffReport& report) {
  return Fields()("changes", ToDicts(report.changes))("same", report.same)
      .Take();
}

Record ToDict(const BlameEntry& entry) {
  return Fields()("leaf", nb::cast(entry.leaf))("detail", ToDict(entry.detail))(
             "listed", entry.listed)(
             "branch",
             entry.listed ? nb::object(ToText(entry.branch)) : nb::none())
      .Take();
}

}  // namespace ckptree::python
