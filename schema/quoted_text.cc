// SPDX-License-Identifier: Apache-2.0

#include "schema/quoted_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

namespace ckptree::schema {

std::string Quoted(std::string_view text) {
  static constexpr std::size_t kMaxShown = 100;
  const std::string_view shown = text.substr(0, kMaxShown);
  return absl::StrFormat(
      "'%s%s'", absl::CHexEscape(absl::string_view(shown.data(), shown.size())),
      shown.size() < text.size() ? "..." : "");
}

}  // namespace ckptree::schema
