// SPDX-License-Identifier: Apache-2.0

#include "ckptree/local_path.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "core/remote/address_cache.h"
#include "kv/object_store.h"

namespace ckptree {
namespace {

// "gs" of "gs://b/run"; empty where that is no URL.
std::string_view SchemeOf(std::string_view where) {
  const std::size_t end = where.find("://");
  if (end == std::string_view::npos || end == 0) return "";
  const std::string_view scheme = where.substr(0, end);
  if (!absl::ascii_isalpha(static_cast<unsigned char>(scheme[0]))) return "";
  for (const char c : scheme) {
    const bool may_be = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                        c == '+' || c == '-' || c == '.';
    if (!may_be) return "";
  }
  return scheme;
}

// "%20" is a space; what is no such escape stays.
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const end = text.data() + std::min(i + 3, text.size());
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && end - digits == 2 &&
        std::from_chars(digits, end, byte, 16).ptr == end) {
      plain += static_cast<char>(byte);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

absl::StatusOr<std::string> LocalPath(std::string_view where) {
  if (where.empty()) {
    return absl::InvalidArgumentError(
        "the path is empty: give that of the store's directory");
  }
  // The system would take the path to end there.
  if (where.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a path has no zero byte", absl::CHexEscape(std::string(where))));
  }
  const std::string_view scheme = SchemeOf(where);
  if (scheme.empty()) return std::string(where);
  if (absl::AsciiStrToLower(std::string(scheme)) != "file") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a store is made and written in a directory of this machine, not "
        "on '%s': give its path; s3:// and rados:// are for its remote, and "
        "for opening it to read%s",
        kv::ShownAddress(where), scheme,
        scheme == "gs" ? "; gs://, too, where CKPTREE_GS_ENDPOINT is set "
                         "(https://storage.googleapis.com)"
                       : ""));
  }
  if (internal::IsRemoteAddress(std::string(where))) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a store ships to this folder, and by this address it is only "
        "read; what changes a store takes the directory of the process that "
        "writes, or a new one that has this as its remote",
        where));
  }
  std::string path = Unescaped(where.substr(scheme.size() + 3));
  if (path.empty() || path.front() != '/' ||
      path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a file URL of this machine is file:// and an absolute path, as in "
        "file:///runs/lm",
        kv::ShownAddress(where)));
  }
  return path;
}

}  // namespace ckptree
