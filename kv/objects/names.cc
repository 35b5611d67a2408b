// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/names.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kv/object_store.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kMaxName = 200;
constexpr std::size_t kNamesOfPage = 1000;

bool IsNameLetter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '_' || c == '-' || c == '/';
}

absl::Status CheckParts(std::string_view name, bool whole) {
  if (name.size() > kMaxName || !std::ranges::all_of(name, IsNameLetter)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(std::string(name.substr(0, kMaxName))),
        "' cannot be, or begin, the name of an object: those here have "
        "letters, digits, '.', '_', '-' and '/', at most ",
        kMaxName, " in all"));
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const bool open = !whole && end == name.size();
    if ((part.empty() && !open) || part.starts_with(".")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the name '", std::string(name),
          "' of an object has a part that is empty or begins with a dot"));
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

// "%20", which stands for another byte in a URL of a file.
bool HasEscape(std::string_view path) {
  for (std::size_t at = path.find('%'); at != std::string_view::npos;
       at = path.find('%', at + 1)) {
    const std::string_view digits = path.substr(at + 1, 2);
    if (digits.size() == 2 && std::ranges::all_of(digits, [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
        })) {
      return true;
    }
  }
  return false;
}

// Without slashes that name nothing.
std::string PlainFolder(std::string_view path) {
  std::string plain;
  for (const char c : path) {
    if (c != '/' || !plain.ends_with('/')) plain += c;
  }
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

}  // namespace

absl::Status CheckObjectName(std::string_view name) {
  return CheckParts(name, /*whole=*/true);
}

absl::Status CheckObjectPrefix(std::string_view prefix) {
  return CheckParts(prefix, /*whole=*/false);
}

absl::Status CheckWriteId(std::string_view write_id) {
  if (write_id.size() == 32 && std::ranges::all_of(write_id, [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c)) ||
               (c >= 'a' && c <= 'f');
      })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "a write id is 32 lower-case hexadecimal digits");
}

absl::Status CheckConditionalPut(const std::string& name,
                                 std::string_view bytes,
                                 std::string_view write_id) {
  CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
  CKPTREE_RETURN_IF_ERROR(CheckWriteId(write_id));
  if (bytes.size() <= ObjectStore::kMaxConditionalBytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is too large to be created conditionally"));
}

absl::StatusOr<ObjectPage> PageOf(
    const std::vector<std::string>& names, std::string_view prefix,
    std::string_view after,
    absl::FunctionRef<
        absl::StatusOr<std::optional<ObjectInfo>>(const std::string& name)>
        head) {
  ObjectPage page;
  for (const std::string& name : names) {
    if (!name.starts_with(prefix) || name <= after) continue;
    if (page.objects.size() == kNamesOfPage) {
      page.more = true;
      break;
    }
    CKPTREE_ASSIGN_OR_RETURN(std::optional<ObjectInfo> info, head(name));
    if (info.has_value()) page.objects.push_back(*std::move(info));
  }
  return page;
}

std::string ShownAddress(std::string_view address) {
  const std::size_t slashes = address.find("://");
  if (slashes == std::string_view::npos) return std::string(address);
  const std::size_t begin = slashes + 3;
  const std::string_view rest = address.substr(begin);
  const std::size_t at = rest.substr(0, rest.find_first_of("/?#")).rfind('@');
  if (at == std::string_view::npos) return std::string(address);
  return absl::StrCat(std::string(address.substr(0, begin)), "***",
                      std::string(rest.substr(at)));
}

absl::StatusOr<ObjectAddress> ParseObjectAddress(const std::string& address) {
  const std::size_t colon = address.find("://");
  if (colon == std::string::npos) {
    // It could be a secret, so it is not shown.
    return absl::InvalidArgumentError(
        "that is no address of an object store: those are like "
        "s3://bucket/prefix, rados://pool/namespace or file:///folder");
  }
  ObjectAddress parsed;
  parsed.scheme = address.substr(0, colon);
  std::string_view rest = std::string_view(address).substr(colon + 3);
  if (parsed.scheme != "file" && parsed.scheme != "s3" &&
      parsed.scheme != "gs" && parsed.scheme != "rados") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", ShownAddress(address),
                     "': an address begins with file://, s3:// or rados://"));
  }
  if (parsed.scheme == "file") {
    if (!rest.starts_with("/")) {
      return absl::InvalidArgumentError(
          absl::StrCat("the address '", ShownAddress(address),
                       "' names no absolute folder: file:///..."));
    }
    if (rest.find('\0') != std::string_view::npos) {
      return absl::InvalidArgumentError(
          "the address of a folder has no zero byte");
    }
    // Whoever writes it would not find what is at the name that it stands for.
    if (HasEscape(rest)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the address '", address,
          "' has an escape, as '%20' for a space: the folder is named as it "
          "is, so write the letter itself"));
    }
    parsed.path = PlainFolder(rest);
    return parsed;
  }
  // user:secret@host, ?X-Amz-Signature=: it is not shown.
  if (rest.find_first_of("@?#:%") != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an address ", parsed.scheme,
        "://... holds no user, secret, port or parameter; credentials come "
        "from the environment, the endpoint from an option"));
  }
  const std::size_t slash = rest.find('/');
  parsed.place = rest.substr(0, slash);
  if (slash != std::string_view::npos) {
    while (rest.ends_with("/") && rest.size() > slash + 1) {
      rest.remove_suffix(1);
    }
    parsed.path = rest.substr(slash + 1);
  }
  if (parsed.place.empty() ||
      parsed.place.find("..") != std::string_view::npos ||
      !std::ranges::all_of(parsed.place, IsNameLetter)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the address '", address, "' names no ",
                     parsed.scheme == "rados" ? "pool" : "bucket"));
  }
  if (!parsed.path.empty()) {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(parsed.path));
  }
  return parsed;
}

std::string TextOf(const ObjectAddress& address) {
  std::string text = absl::StrCat(address.scheme, "://", address.place);
  if (!address.place.empty() && !address.path.empty()) text += '/';
  return text + address.path;
}

std::string PlainAddress(const std::string& address) {
  const absl::StatusOr<ObjectAddress> parsed = ParseObjectAddress(address);
  return parsed.ok() ? TextOf(*parsed) : address;
}

}  // namespace ckptree::kv
