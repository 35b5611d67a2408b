// SPDX-License-Identifier: Apache-2.0

// What a report shows of a store, gathered from its records.

#ifndef CKPTREE_TOOLS_REPORT_REPORT_DATA_H_
#define CKPTREE_TOOLS_REPORT_REPORT_DATA_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/step.h"
#include "ckptree/store.h"

namespace ckptree::tools {

struct ReportOptions {
  // Ascending, of one branch, at least one.
  std::vector<StepInfo> steps = {};
  std::string name = {};  // What the page calls the store.
  // Leaves of these names, any of several; all where it is empty.
  std::vector<std::string> keys = {};
  // In so many steps the leaves are looked at; 0: see choose_steps.h.
  std::size_t leaf_steps = 0;
  // The arrays of these names are read: their histograms. Empty: none.
  std::vector<std::string> histograms = {};
  absl::Time now = absl::Now();
  std::function<bool()> cancelled = [] { return false; };
};

// kInvalidArgument, with a hint: a name among `keys` or `histograms` that can
// mean no leaf.
absl::Status CheckNames(const ReportOptions& options);

// The last part of the path of a store: what it is called.
std::string StoreName(const std::string& directory);

// What the page reads: the length of a JSON text (four bytes, the lowest
// first), the text, and behind it the columns of numbers that the text speaks
// of; deflated as zlib does. tools/report/README.md says what is in it. Reads
// records, and the arrays of `histograms` alone. kCancelled; else errors of the
// store. A step that is removed until then is left out.
absl::StatusOr<std::string> GatherReport(const Store& store,
                                         const ReportOptions& options);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_REPORT_DATA_H_
