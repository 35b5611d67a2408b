// SPDX-License-Identifier: Apache-2.0

// `ckptree gc`: frees the bytes of removed steps now.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/changes.h"
#include "tools/line/command.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/freeing.h"

namespace ckptree::tools {
namespace {

bool WantsJson(const Session& session) {
  return session.arguments().Has("json") ||
         session.arguments().Get("output", "table") == "json";
}

// 0: none.
absl::StatusOr<std::uint64_t> Budget(const Session& session) {
  const std::optional<std::string> text = session.arguments().Find("budget");
  if (!text) return 0;
  std::string_view size = *text;
  if (size.ends_with("/s")) size.remove_suffix(2);
  const std::optional<std::uint64_t> bytes = ParseSize(size);
  if (!bytes || *bytes == 0) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "--budget `%s` is no rate", Escape(*text))),
                    "bytes a second: 200MB/s, 1GiB/s");
  }
  return *bytes;
}

absl::StatusOr<int> SayWhatWouldGo(Session& session, bool exact) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<UsageReport> usage = (*store)->Usage();
  if (!usage.ok()) return usage.status();
  if (WantsJson(session)) {
    const Json json = {{"schema", "ckptree.gc-dry-run/1"},
                       {"pending_bytes", usage->pending_bytes},
                       {"dead_bytes", usage->dead_bytes},
                       {"files", usage->files},
                       {"file_bytes", usage->file_bytes},
                       {"kept", KeptJson(usage->kept)}};
    session.out().Write(JsonText(json, true) + "\n");
    return kExitOk;
  }
  session.out().Write(
      usage->pending_bytes == 0
          ? "there is nothing to free of removed steps\n"
          : absl::StrFormat("would free %s of removed steps\n",
                            SizeText(usage->pending_stored_bytes, exact)));
  if (usage->dead_bytes > 0) {
    session.out().Write(absl::StrFormat(
        "about %s are dead already, in files that hold other bytes; --full "
        "writes all of these again\n",
        SizeText(usage->dead_bytes, exact)));
  }
  session.out().Write(KeptText(usage->kept));
  return kExitOk;
}

Json ReportJson(const CollectReport& report) {
  return {{"schema", "ckptree.gc/2"},
          {"versions", report.versions},
          {"blocks_freed", report.blocks_freed},
          {"bytes_freed", report.bytes_freed},
          {"far_bytes_freed", report.far_bytes_freed},
          {"bytes_left", report.bytes_left},
          {"files_dropped", report.files_dropped},
          {"files_rewritten", report.files_rewritten},
          {"files_packed", report.files_packed},
          {"bytes_written", report.bytes_written},
          {"file_bytes_before", report.file_bytes_before},
          {"file_bytes_after", report.file_bytes_after},
          {"kept", KeptJson(report.kept)},
          {"damaged", report.damaged},
          {"no_room", report.no_room}};
}

std::string ReportText(const CollectReport& report,
                       const CollectOptions& options, bool exact) {
  std::string text;
  if (options.pack && report.files_packed == 0) {
    text =
        "nothing was packed: what is smaller so is packed already, and the "
        "newest save stays as it is\n";
  }
  if (report.versions == 0 && report.files_rewritten == 0 &&
      report.files_dropped == 0) {
    text += "there was nothing to free";
    if (options.min_dead_fraction > 0) {
      text +=
          "; what is dead in files that hold other bytes goes where it is a "
          "quarter of one, with --full in any case";
    }
    text += "\n";
    // Rows of the index and of the journal, which no step has.
    const std::string before = SizeText(report.file_bytes_before, exact);
    const std::string after = SizeText(report.file_bytes_after, exact);
    if (report.file_bytes_after < report.file_bytes_before && before != after) {
      absl::StrAppendFormat(&text, "files: %s -> %s, rows were written anew\n",
                            before, after);
    }
  } else {
    if (report.versions > 0 || report.files_packed == 0) {
      absl::StrAppendFormat(&text, "%s removed: %s\n",
                            CountText(report.versions, "step", "steps"),
                            FreedText(report, exact));
    }
    if (report.files_packed > 0) {
      absl::StrAppendFormat(&text, "%s packed\n",
                            CountText(report.files_packed, "file", "files"));
    }
    absl::StrAppendFormat(
        &text, "files: %d dropped, %d written again (%s), %s -> %s\n",
        report.files_dropped, report.files_rewritten,
        SizeText(report.bytes_written, exact),
        SizeText(report.file_bytes_before, exact),
        SizeText(report.file_bytes_after, exact));
  }
  text += KeptText(report.kept);
  for (const std::string& damaged : report.damaged) {
    absl::StrAppendFormat(&text, "DAMAGED, left alone: %s\n",
                          EscapeLines(damaged));
  }
  return text + NoRoomText(report);
}

}  // namespace

absl::StatusOr<int> RunGc(Session& session) {
  const absl::StatusOr<std::uint64_t> budget = Budget(session);
  if (!budget.ok()) return budget.status();
  const bool exact = session.arguments().Has("bytes");
  if (session.arguments().Has("dry-run")) {
    if (session.arguments().Has("pack")) {
      return WithHint(
          absl::InvalidArgumentError(
              "--dry-run says what removed steps would free, not what --pack "
              "would save: that is known once it is coded"),
          "leave one of them out");
    }
    return SayWhatWouldGo(session, exact);
  }
  Changes changes(&session);
  if (absl::Status status = changes.Open(); !status.ok()) return status;
  CollectOptions options;
  options.bytes_per_second = *budget;
  if (session.arguments().Has("full")) options.min_dead_fraction = 0;
  options.pack = session.arguments().Has("pack");
  const absl::StatusOr<CollectReport> report =
      RunCollect(session, changes, options, "gc",
                 /*patient=*/!session.arguments().Has("timeout") &&
                     !session.arguments().Has("wait"));
  if (!report.ok()) return report.status();
  session.out().Write(WantsJson(session)
                          ? JsonText(ReportJson(*report), true) + "\n"
                          : ReportText(*report, options, exact));
  if (absl::Status status = changes.Close(); !status.ok()) return status;
  return report->damaged.empty() ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
