// SPDX-License-Identifier: Apache-2.0

#include "core/save/lineage.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace ckptree::internal {

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
  std::replace(command.begin(), command.end(), '\0', ' ');
  add("command", std::move(command));
  std::error_code error;
  add("directory", std::filesystem::current_path(error).string());
  return lineage;
}

}  // namespace ckptree::internal
