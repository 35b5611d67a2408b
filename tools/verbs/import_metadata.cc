// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/import_metadata.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "schema/limits.h"
#include "schema/utf8.h"
#include "tools/output/failure.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr auto kMost = std::size_t{schema::kMaxCustomMetadataBytes};

std::string JsonOf(const ArrayFile& file, const Json::object_t& said) {
  return JsonText(
      {{"imported",
        {{"format", file.format()},
         {"file", std::filesystem::path(file.path()).filename().string()},
         {"metadata", said}}}},
      false);
}

// The name of the longest of them.
std::string Longest(const Json::object_t& said) {
  std::string name;
  std::size_t most = 0;
  for (const auto& [key, value] : said) {
    const std::size_t bytes =
        key.size() + value.get_ref<const Json::string_t&>().size();
    if (bytes >= most) name = key, most = bytes;
  }
  return name;
}

absl::Status Refused(const ArrayFile& file, const std::string& why) {
  return WithHint(absl::FailedPreconditionError(absl::StrFormat(
                      "%s: its metadata %s", Escape(file.path()), why)),
                  "--skip leaves it out");
}

}  // namespace

absl::StatusOr<ImportedMetadata> MetadataOf(const ArrayFile& file, bool skip) {
  ImportedMetadata made;
  for (const std::string& why : file.disputed()) {
    if (!skip) return Refused(file, "differs: " + why);
    made.left_out.push_back(why);
  }
  // A file has each name once, and finding one takes as long as there are.
  Json::object_t said;
  for (const auto& [key, value] : file.metadata()) {
    if (schema::IsUtf8(key) && schema::IsUtf8(value)) {
      said.emplace_back(key, value);
      continue;
    }
    const std::string why =
        absl::StrFormat("`%s` is no UTF-8", Escape(key.substr(0, 60)));
    if (!skip) return Refused(file, why);
    made.left_out.push_back(why);
  }
  made.json = JsonOf(file, said);
  while (made.json.size() > kMost && !said.empty()) {
    const std::string name = Longest(said);
    const std::string why = absl::StrFormat(
        "`%s`: with it they take %d bytes, and %d is the most that a step has",
        Escape(name.substr(0, 60)), made.json.size(), kMost);
    if (!skip) return Refused(file, why);
    made.left_out.push_back(why);
    said.erase(name);
    made.json = JsonOf(file, said);
  }
  return made;
}

}  // namespace ckptree::tools
