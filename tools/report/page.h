// SPDX-License-Identifier: Apache-2.0

// The page of a report: one file of HTML, with everything in it.

#ifndef CKPTREE_TOOLS_REPORT_PAGE_H_
#define CKPTREE_TOOLS_REPORT_PAGE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ckptree::tools {

// The page around what is put in when it is written; made at build time of the
// files in tools/report/page and the chart library.
struct PageParts {
  std::string_view before_sources;  // Up to where it may fetch from.
  std::string_view before_data;     // Up to the data, and whether it is live.
  std::string_view end;
};

// Null where the command was built without the chart library.
const PageParts* EmbeddedPage();

// The page with `data`, as GatherReport() gives it. It fetches nothing, but
// where `version` names these data: then it asks the server that it came from
// for newer ones. kUnimplemented where this command was built without the page;
// the hint says what to install.
absl::StatusOr<std::string> MakePage(std::string_view data,
                                     std::string_view version = "");

// The same without making any; for verbs that are about to begin.
absl::Status CheckHasPage();

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_PAGE_H_
