// SPDX-License-Identifier: Apache-2.0

// A status that says more, and is what it was for programs.

#ifndef CKPTREE_BASE_STATUS_TEXT_H_
#define CKPTREE_BASE_STATUS_TEXT_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace ckptree::base {

// Debian's absl::string_view is a type of its own. For absl::StrCat, which what
// is said of a failure is put together by where there may be no memory:
// absl::StrFormat ends the process then.
inline absl::string_view ForAbsl(std::string_view text) {
  return {text.data(), text.size()};
}

// `status` with another message and, where `code` is given, another code; its
// payloads stay. REQUIRES: neither is OK.
inline absl::Status WithText(const absl::Status& status, absl::StatusCode code,
                             absl::string_view text) {
  absl::Status said(code, text);
  status.ForEachPayload(
      [&said](absl::string_view url, const absl::Cord& payload) {
        said.SetPayload(url, payload);
      });
  return said;
}
inline absl::Status WithText(const absl::Status& status,
                             absl::string_view text) {
  return WithText(status, status.code(), text);
}

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_STATUS_TEXT_H_
