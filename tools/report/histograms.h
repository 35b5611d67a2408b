// SPDX-License-Identifier: Apache-2.0

// The distribution of the values of arrays, step by step, for a report.

#ifndef CKPTREE_TOOLS_REPORT_HISTOGRAMS_H_
#define CKPTREE_TOOLS_REPORT_HISTOGRAMS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/store.h"
#include "tools/output/table.h"
#include "tools/report/number_pack.h"

namespace ckptree::tools {

// Of each array of real numbers whose name matches one of `globs`, of at most
// 64 such arrays of the newest of `steps`, in at most 32 of these. Reads the
// arrays. kNotFound: nothing matches; kCancelled.
absl::StatusOr<Json> HistogramsOf(const Store& store,
                                  const std::vector<StepInfo>& steps,
                                  const std::vector<std::string>& globs,
                                  const std::function<bool()>& cancelled,
                                  NumberPack* pack);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_HISTOGRAMS_H_
