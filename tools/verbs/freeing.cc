// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/freeing.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "tools/line/step_range.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// What a person may still read.
constexpr std::size_t kShownKept = 20;

// As where arrays are coded.
bool GaveBackLess(const CollectReport& report) {
  const std::uint64_t gone = report.bytes_freed - report.bytes_left;
  return report.file_bytes_after <= report.file_bytes_before &&
         report.file_bytes_before - report.file_bytes_after < gone - gone / 10;
}

absl::StatusOr<std::string> TextOf(const absl::StatusOr<FreedBytes>& freed,
                                   const Store& store) {
  if (!freed.ok()) return freed.status();
  return absl::StrFormat(
             "would free %s\n",
             FreedText(freed->stored_bytes, *freed, /*exact=*/false, store)) +
         KeptText(freed->kept);
}

}  // namespace

std::string KeptText(const std::vector<KeptVersion>& kept) {
  std::string text;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i == kShownKept) {
      absl::StrAppendFormat(&text, "kept: %d more\n", kept.size() - kShownKept);
      break;
    }
    absl::StrAppendFormat(&text, "kept: step %d (version %d): %s\n",
                          kept[i].step, kept[i].version,
                          kept[i].why.empty()
                              ? "it was open until just now, and goes with the "
                                "next collection"
                              : EscapeLines(kept[i].why));
  }
  return text;
}

std::string FreedText(const CollectReport& report, bool exact) {
  std::string text =
      "freed " + SizeText(report.bytes_freed - report.bytes_left, exact);
  if (report.bytes_left > 0) {
    absl::StrAppendFormat(
        &text,
        "; about %s more are dead in files that hold other bytes, which "
        "`ckptree gc --full` writes again",
        SizeText(report.bytes_left, exact));
  }
  if (report.far_bytes_freed > 0) {
    absl::StrAppendFormat(&text,
                          "; %s that had left this disk go in the remote, once "
                          "the store is next open with it",
                          SizeText(report.far_bytes_freed, exact));
  }
  return text;
}

std::string FreedText(std::uint64_t here, const FreedBytes& freed, bool exact,
                      const Store& store) {
  const StoreInfo info = store.Info();
  // Of a store that is read by its address there is nothing here.
  if (freed.remote_bytes == 0 || info.shipped_to.empty()) {
    return SizeText(here, exact);
  }
  return absl::StrFormat("%s on this disk, and %s in %s", SizeText(here, exact),
                         SizeText(freed.remote_bytes, exact),
                         Escape(info.shipped_to));
}

std::string NoRoomText(const CollectReport& report) {
  std::string text;
  for (const std::string& what : report.no_room) {
    absl::StrAppendFormat(&text, "no room to free more: %s\n",
                          EscapeLines(what));
  }
  return text;
}

Json KeptJson(const std::vector<KeptVersion>& kept) {
  Json json = Json::array();
  for (const KeptVersion& version : kept) {
    json.push_back({{"step", version.step},
                    {"version", version.version},
                    {"why", version.why}});
  }
  return json;
}

absl::StatusOr<CollectReport> RunCollect(Session& session, Changes& changes,
                                         CollectOptions options,
                                         std::string_view label, bool patient) {
  ProgressLine progress(std::string(label),
                        session.error_terminal().is_terminal &&
                            !session.arguments().Has("quiet"));
  const Interruptible interruptible;
  options.cancelled = Interrupted;
  options.on_progress = [&](const CollectProgress& now) {
    if (now.versions_done < now.versions_total) {
      progress.Update(now.versions_done, now.versions_total);
    } else {
      progress.Say(absl::StrFormat("%s freed, %s written again",
                                   SizeText(now.bytes_freed),
                                   SizeText(now.bytes_written)));
    }
  };
  absl::StatusOr<CollectReport> report = changes.Collect(options, patient);
  if (absl::IsCancelled(report.status())) {
    session.Note(
        "interrupted: what was freed stays so, the rest is freed later");
  }
  return report;
}

absl::Status FreeRemoved(Session& session, Changes& changes) {
  CollectOptions options;
  options.min_dead_fraction = 1;  // Files are written again by `gc` alone.
  const absl::StatusOr<CollectReport> report =
      RunCollect(session, changes, options, "free", /*patient=*/false);
  if (absl::IsDeadlineExceeded(report.status())) {
    session.Note("the trainer frees their bytes, in the background");
    return absl::OkStatus();
  }
  const auto none = [](const CollectReport& r) {
    return r.bytes_freed == 0 && r.far_bytes_freed == 0 && r.kept.empty() &&
           r.no_room.empty();
  };
  if (report.ok() && none(*report) && !changes.by().empty()) {
    // Its own thread began as the steps went, and does not say how many.
    session.out().Write("freed by the trainer, in the background\n");
    session.Note("`ckptree du` says what is left");
    return absl::OkStatus();
  }
  if (absl::IsAborted(report.status())) {
    // Who had the store went away in between. What was asked for is done.
    session.Note("their bytes are not freed yet: `ckptree gc` does that");
    return absl::OkStatus();
  }
  if (!report.ok()) {
    return WithHint(report.status(),
                    "the steps are removed; `ckptree gc` frees their bytes");
  }
  session.out().Write(FreedText(*report, /*exact=*/false));
  if (GaveBackLess(*report)) {
    session.out().Write(absl::StrFormat("; files: %s -> %s",
                                        SizeText(report->file_bytes_before),
                                        SizeText(report->file_bytes_after)));
  }
  session.out().Write("\n");
  if (report->bytes_freed == 0 && report->far_bytes_freed == 0 &&
      report->kept.empty()) {
    session.Note(
        "what they alone had is freed with the files that it lies in: `ckptree "
        "du` says what is left");
  }
  session.out().Write(NoRoomText(*report));
  session.out().Write(KeptText(report->kept));
  return absl::OkStatus();
}

std::string StepsText(const std::vector<std::string>& names) {
  if (names.size() == 1) return "step " + names[0];
  constexpr std::size_t kMostNamed = 5;
  const bool all = names.size() <= kMostNamed;
  std::string text =
      all ? "the steps " : absl::StrFormat("the %d steps ", names.size());
  const std::size_t listed = all ? names.size() - 1 : 2;
  for (std::size_t i = 0; i < listed; ++i) {
    absl::StrAppendFormat(&text, "%s%s", i == 0 ? "" : ", ", names[i]);
  }
  return text + (all ? " and " : ", ... ") + names.back();
}

absl::StatusOr<std::string> WouldFreeText(Store* store,
                                          const std::vector<StepInfo>& steps) {
  std::vector<StepSelector> selectors;
  for (const StepInfo& info : steps)
    selectors.push_back(AtStep(info.step, info.branch));
  return TextOf(store->WouldFree(selectors), *store);
}

absl::StatusOr<std::string> WouldFreeText(Store* store,
                                          std::string_view branch) {
  return TextOf(store->WouldFreeBranch(branch), *store);
}

}  // namespace ckptree::tools
