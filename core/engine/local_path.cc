// SPDX-License-Identifier: Apache-2.0

#include "ckptree/local_path.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "core/engine/source_path.h"
#include "core/remote/remote_address.h"
#include "kv/object_store.h"

namespace ckptree {
namespace {

// Schemes by which other programs name what is in no folder of this machine.
constexpr std::string_view kElsewhere[] = {
    "abfs",  "abfss", "adl",  "az",   "cos",   "file", "ftp",
    "gcs",   "gs",    "hdfs", "http", "https", "oss",  "r2",
    "rados", "s3",    "s3a",  "s3n",  "swift", "wasb", "wasbs"};
constexpr std::string_view kOurs[] = {"file", "gs", "rados", "s3"};

// "gs" of "gs://b/run"; empty where that is no URL. Of the schemes that are
// known also "gs:/b/run", which pathlib makes of it, and of those of addresses
// "gs:b/run", which leaves the slashes out.
std::string_view SchemeOf(std::string_view where) {
  const std::size_t end = where.find(':');
  if (end == std::string_view::npos || end == 0) return "";
  const std::string_view scheme = where.substr(0, end);
  if (!absl::ascii_isalpha(static_cast<unsigned char>(scheme[0]))) return "";
  for (const char c : scheme) {
    const bool may_be = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                        c == '+' || c == '-' || c == '.';
    if (!may_be) return "";
  }
  const std::string_view rest = where.substr(end + 1);
  const std::string lower = absl::AsciiStrToLower(std::string(scheme));
  const bool is_one =
      rest.starts_with("//") || std::ranges::count(kOurs, lower) > 0 ||
      (rest.starts_with('/') && std::ranges::count(kElsewhere, lower) > 0);
  return is_one ? scheme : "";
}

// What is wrong with an address, or a mistyped one, where a path is meant.
absl::Status NoDirectory(const std::string& url, std::string_view scheme) {
  const std::string shown = kv::ShownAddress(url);
  const std::string lower = absl::AsciiStrToLower(std::string(scheme));
  if (internal::IsRemoteAddress(url)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a directory of this machine is meant here, not an address on "
        "'%s': what changes a store is done in the run's own directory, or in "
        "an empty one that has this as its remote",
        shown, scheme));
  }
  if (url.find("://") != scheme.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: an address on '%s' begins with %s://; a directory of this "
        "machine that is called so is ./%s",
        shown, scheme, lower, shown));
  }
  if (lower == "gs") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: an address on '%s' is taken where CKPTREE_GS_ENDPOINT is set "
        "(https://storage.googleapis.com), and begins with gs://; a directory "
        "of this machine is given by its path",
        shown, scheme));
  }
  if (std::ranges::count(kOurs, lower) > 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: '%s' is written in lower case, %s://; a directory of this machine "
        "is given by its path",
        shown, scheme, lower));
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: '%s' is no scheme of an address: these are s3://, rados:// and "
      "file:///, and gs:// where CKPTREE_GS_ENDPOINT is set; a directory of "
      "this machine is given by its path",
      shown, scheme));
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
  const bool is_file = absl::AsciiStrToLower(std::string(scheme)) == "file";
  std::string url(where);
  const std::string_view rest = where.substr(scheme.size() + 1);
  if (rest.starts_with('/') && !rest.starts_with("//")) {
    url = std::string(scheme) + (is_file ? "://" : ":/") + std::string(rest);
  }
  if (!is_file) return NoDirectory(url, scheme);
  if (internal::IsRemoteAddress(url)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a store ships to this folder, and by this address it is only "
        "read; what changes a store takes the directory of the process that "
        "writes, or a new one that has this as its remote",
        url));
  }
  const bool has_slashes = url.find("://") == scheme.size();
  std::string path =
      has_slashes ? Unescaped(url.substr(scheme.size() + 3)) : "";
  if (path.empty() || path.front() != '/' ||
      path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a file URL of this machine is file:// and an absolute path, as in "
        "file:///runs/lm",
        kv::ShownAddress(url)));
  }
  return path;
}

namespace internal {

absl::StatusOr<std::string> SourcePath(const std::string& where) {
  if (!IsRemoteAddress(where)) return LocalPath(where);
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: what is recovered is a directory of this machine; the steps of an "
      "address are copied into a new store",
      kv::ShownAddress(where)));
}

}  // namespace internal

}  // namespace ckptree
