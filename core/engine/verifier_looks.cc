// SPDX-License-Identifier: Apache-2.0

// Of a verification beside a writer: what is damage, and what was a moment.

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/engine/engine.h"
#include "core/engine/verifier.h"
#include "core/process/out_of_reach.h"

namespace ckptree::internal {
namespace {

constexpr int kMostLooks = 8;

// What is wrong, in the words of a finding or of how the look ended.
using Wrong = std::set<std::string>;

// The steps that it hurts may be more at the next look.
std::string NameOf(const Finding& finding) {
  const std::string_view what = finding.what;
  return std::string(what.substr(0, what.rfind(" (hurts step ")));
}

bool IsWarning(const Finding& finding) {
  return finding.severity == Finding::Severity::kWarning;
}

Wrong WrongIn(const absl::StatusOr<VerifyReport>& report) {
  if (!report.ok()) return {report.status().ToString()};
  Wrong wrong;
  for (const Finding& finding : report->findings) {
    if (!IsWarning(finding)) wrong.insert(NameOf(finding));
  }
  return wrong;
}

// What there is now. Of files that are gone without a commit Refresh() does not
// hear; where they cannot be listed, the check says so.
absl::Status LookAgain(Engine* engine) {
  engine->database().SeeFiles().IgnoreError();
  return engine->Refresh();
}

void WarnOfAllBut(const Wrong& known, VerifyReport* report) {
  for (Finding& finding : report->findings) {
    if (IsWarning(finding) || known.contains(NameOf(finding))) continue;
    finding.severity = Finding::Severity::kWarning;
    absl::StrAppend(&finding.what,
                    "; no look before the last one found this: a writer may "
                    "have changed files at that moment, so verify once more");
  }
}

}  // namespace

absl::StatusOr<VerifyReport> Verify(Engine* engine,
                                    const VerifyOptions& options) {
  if (engine->database().following())
    CKPTREE_RETURN_IF_ERROR(LookAgain(engine));
  if (!engine->address().empty()) {
    // What is wrong with the commits there is found by the check.
    const absl::Status refreshed = engine->Refresh();
    if (!absl::IsDataLoss(refreshed)) CKPTREE_RETURN_IF_ERROR(refreshed);
  }
  absl::StatusOr<VerifyReport> report = VerifyOnce(engine, options);
  if (engine->writer() != nullptr) return report;
  // A writer in another process may have come or gone since, and taken
  // files away: damage is what is found twice in a row, the second time in the
  // files that there are by then.
  Wrong before;
  Wrong wrong = WrongIn(report);
  for (int look = 1; look < kMostLooks; ++look) {
    if (wrong.empty() || absl::IsCancelled(report.status()) ||
        OutOfReach(report.status()).has_value() || !LookAgain(engine).ok()) {
      return report;
    }
    report = VerifyOnce(engine, options);
    before = std::exchange(wrong, WrongIn(report));
    if (std::ranges::includes(before, wrong)) return report;
  }
  if (report.ok()) WarnOfAllBut(before, &*report);
  return report;
}

}  // namespace ckptree::internal
