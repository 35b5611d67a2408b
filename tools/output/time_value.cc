// SPDX-License-Identifier: Apache-2.0

#include "tools/output/time_value.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"

namespace ckptree::tools {
namespace {

// True where `text` begins with `form`, in which 0 stands for any digit and T
// for that letter or a space.
bool Begins(std::string_view text, std::string_view form) {
  return text.size() >= form.size() &&
         std::equal(form.begin(), form.end(), text.begin(), [](char f, char c) {
           return f == '0' ? absl::ascii_isdigit(static_cast<unsigned char>(c))
                  : f == 'T' ? c == 'T' || c == 't' || c == ' '
                             : f == c;
         });
}

}  // namespace

std::optional<absl::Time> ParseTime(std::string_view text) {
  constexpr std::string_view kDate = "0000-00-00";
  if (!Begins(text, kDate)) return std::nullopt;
  std::string full(text.substr(0, kDate.size()));
  std::string_view rest = text.substr(kDate.size());
  full += 'T';
  if (Begins(rest, "T00:00")) {
    full += rest.substr(1, 5);
    rest.remove_prefix(6);
    if (Begins(rest, ":00")) {
      full += rest.substr(0, 3);
      rest.remove_prefix(3);
      if (Begins(rest, ".0")) {
        const std::size_t end =
            std::min(rest.size(), rest.find_first_not_of("0123456789", 1));
        full += rest.substr(0, end);
        rest.remove_prefix(end);
      }
    } else {
      full += ":00";
    }
    if (rest.starts_with(' ')) rest.remove_prefix(1);
  } else {
    full += "00:00:00";
  }
  if (rest.empty() || rest == "Z" || rest == "z") {
    full += 'Z';
  } else if ((rest[0] == '+' || rest[0] == '-') &&
             (Begins(rest.substr(1), "00:00") ||
              Begins(rest.substr(1), "0000")) &&
             rest.size() == (rest.find(':') == rest.npos ? 5 : 6)) {
    full += rest.substr(0, 3);
    full += ':';
    full += rest.substr(rest.size() - 2);
  } else {
    return std::nullopt;
  }
  absl::Time time;
  // Of each field the range, and which days a month has.
  if (!absl::ParseTime(absl::RFC3339_full, full, &time, nullptr)) {
    return std::nullopt;
  }
  return time;
}

}  // namespace ckptree::tools
