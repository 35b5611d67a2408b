// SPDX-License-Identifier: Apache-2.0

#include "tools/report/page.h"

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "tools/output/failure.h"

namespace ckptree::tools {

absl::Status CheckHasPage() {
  if (EmbeddedPage() != nullptr) return absl::OkStatus();
  return WithHint(
      absl::UnimplementedError("this ckptree was built without reports: "
                               "Chart.js was not found then"),
      "install the Debian package libjs-chart.js and build it again");
}

absl::StatusOr<std::string> MakePage(std::string_view data,
                                     std::string_view version) {
  if (absl::Status status = CheckHasPage(); !status.ok()) return status;
  const PageParts& parts = *EmbeddedPage();
  const bool live = !version.empty();
  // Base64: nothing that a store holds can be read as HTML.
  const std::string coded =
      absl::Base64Escape(absl::string_view(data.data(), data.size()));
  std::string page;
  page.reserve(parts.before_sources.size() + parts.before_data.size() +
               parts.end.size() + coded.size() + version.size() + 64);
  page += parts.before_sources;
  page += live ? "'self'" : "'none'";
  page += parts.before_data;
  page += live ? "live:" : "file";
  page += version;
  page += ' ';
  page += coded;
  page += parts.end;
  return page;
}

}  // namespace ckptree::tools
