// SPDX-License-Identifier: Apache-2.0

#include "core/save/lineage.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kv/object_store.h"

namespace ckptree::internal {
namespace {

constexpr char kMask[] = "***";
constexpr std::string_view kSecretWords[] = {
    "key",       "secret", "secrets",    "token",      "password",
    "passwords", "passwd", "credential", "credentials"};

// The name of an option or a variable: api-key, apiKey, HF_TOKEN; but not
// tokenizer or max-tokens.
bool NamesSecret(std::string_view name) {
  if (name.find(' ') != std::string_view::npos) return false;
  const std::string lower = absl::AsciiStrToLower(std::string(name));
  const std::vector<std::string> words =
      absl::StrSplit(lower, absl::ByAnyChar("-_./:"));
  return std::ranges::any_of(words, [](const std::string& word) {
    return std::ranges::any_of(kSecretWords, [&](std::string_view secret) {
      return word.ends_with(secret);
    });
  });
}

}  // namespace

std::string WithoutSecrets(const std::vector<std::string>& words) {
  std::vector<std::string> shown;
  bool value_is_secret = false;
  for (const std::string& word : words) {
    const bool is_option = word.starts_with("-");
    if (value_is_secret && !is_option) {
      shown.emplace_back(kMask);
      value_is_secret = false;
      continue;
    }
    // --api-key=VALUE, API_KEY=VALUE, db.password=VALUE
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool secret =
        (is_option || equals != std::string::npos) && NamesSecret(name);
    value_is_secret = secret && equals == std::string::npos;
    shown.push_back(secret && equals != std::string::npos
                        ? absl::StrCat(name, "=", kMask)
                        : kv::ShownAddress(word));
  }
  return absl::StrJoin(shown, " ");
}

std::vector<std::pair<std::string, std::string>> ProcessLineage() {
  static constexpr std::size_t kMaxText = 4096;
  std::vector<std::pair<std::string, std::string>> lineage;
  const auto add = [&lineage](const char* name, std::string text) {
    if (text.empty()) return;
    text.resize(std::min(text.size(), kMaxText));
    lineage.emplace_back(name, std::move(text));
  };
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) == 0) add("host", host);
  add("pid", std::to_string(getpid()));
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string command((std::istreambuf_iterator<char>(file)),
                      std::istreambuf_iterator<char>());
  // Arguments end with a zero byte each.
  while (!command.empty() && command.back() == '\0') command.pop_back();
  add("command", WithoutSecrets(absl::StrSplit(command, '\0')));
  std::error_code error;
  add("directory", std::filesystem::current_path(error).string());
  return lineage;
}

}  // namespace ckptree::internal
