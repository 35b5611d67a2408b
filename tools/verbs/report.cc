// SPDX-License-Identifier: Apache-2.0

// `ckptree report`: one file that shows a run.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "tools/line/command.h"
#include "tools/line/step_range.h"
#include "tools/line/target.h"
#include "tools/output/byte_sink.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/new_file.h"
#include "tools/output/quantity.h"
#include "tools/report/page.h"
#include "tools/report/report_data.h"

namespace ckptree::tools {
namespace {

// kNotFound where -k names nothing that the newest step or the oldest has.
absl::Status CheckKeys(const Store& store, const ReportOptions& options) {
  if (options.keys.empty()) return absl::OkStatus();
  for (const StepInfo* info : {&options.steps.back(), &options.steps.front()}) {
    const absl::StatusOr<Step> step =
        store.OpenStep(AtStep(info->step, info->branch));
    if (IsStepGone(step.status())) return absl::OkStatus();
    if (!step.ok()) return step.status();
    for (const std::string& key : options.keys) {
      const absl::StatusOr<std::vector<LeafInfo>> leaves = step->Leaves(key);
      if (!leaves.ok()) return leaves.status();
      if (!leaves->empty()) return absl::OkStatus();
    }
  }
  return WithHint(absl::NotFoundError(absl::StrFormat(
                      "no leaf matches `%s`", Escape(options.keys.front()))),
                  "`ckptree ls` lists the keys");
}

}  // namespace

absl::StatusOr<int> RunReport(Session& session) {
  if (absl::Status status = CheckHasPage(); !status.ok()) return status;
  std::string path = session.arguments().Get("out", "");
  if (path == "-") path.clear();
  if (path.empty() && session.terminal().is_terminal) {
    return WithHint(absl::InvalidArgumentError("a page is not for a terminal"),
                    "write it to a file: `ckptree report -o run.html`");
  }
  ReportOptions options;
  options.keys = PlainKeys(session.arguments().All("keys"));
  options.histograms = session.arguments().All("hist");
  if (absl::Status status = CheckNames(options); !status.ok()) return status;
  const auto leaf_steps = session.arguments().Number("leaf-steps");
  if (!leaf_steps.ok()) return leaf_steps.status();
  if (*leaf_steps && **leaf_steps < 2) {
    return absl::InvalidArgumentError(
        absl::StrFormat("`--leaf-steps %d`: 2 or more", **leaf_steps));
  }
  options.leaf_steps = static_cast<std::size_t>(leaf_steps->value_or(0));

  absl::StatusOr<std::vector<StepInfo>> steps =
      FindSteps(session, session.words().empty() ? ".." : session.words()[0],
                session.arguments().Get("branch", ""));
  if (!steps.ok()) return steps.status();
  if (steps->empty()) {
    return WithHint(absl::NotFoundError("no steps there"),
                    "`ckptree log` lists the steps");
  }
  options.steps = *std::move(steps);
  options.name = StoreName(session.directory());
  options.cancelled = Interrupted;
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  if (absl::Status status = CheckKeys(**store, options); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::string> data;
  {
    const Interruptible interruptible;
    data = GatherReport(**store, options);
  }
  if (!data.ok()) return data.status();
  // From here on a signal ends the process: a pipe may wait for its reader.
  if (Interrupted()) return absl::CancelledError("interrupted");
  const absl::StatusOr<std::string> page = MakePage(*data);
  if (!page.ok()) return page.status();
  if (path.empty()) {
    session.out().Write(*page);
    return kExitOk;
  }
  RemoveAbandonedBeside(path);
  absl::StatusOr<NewFile> file = NewFile::Create(path);
  if (!file.ok()) return file.status();
  ByteSink sink(file->descriptor(), path);
  sink.Write(*page);
  if (absl::Status status = sink.Flush(); !status.ok()) return status;
  if (absl::Status status = file->Commit(); !status.ok()) return status;
  session.Note(absl::StrFormat("%s of %s in %s", SizeText(page->size()),
                               CountText(options.steps.size(), "step", "steps"),
                               Escape(path)));
  return kExitOk;
}

}  // namespace ckptree::tools
