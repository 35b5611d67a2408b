// SPDX-License-Identifier: Apache-2.0

#include "tools/line/leading_flags.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ckptree::tools {
namespace {

bool IsFlagAt(const std::vector<std::string>& words, std::size_t i) {
  return i < words.size() && words[i].starts_with('-');
}

// The place behind the flag at `i`, and its value.
std::size_t Behind(const std::vector<std::string>& words, std::size_t i) {
  const std::string& word = words[i];
  return i + (word == "-C" || word == "--store" || word == "--color" ? 2 : 1);
}

}  // namespace

std::string FlagInFront(const std::vector<std::string>& words,
                        std::span<const FlagSpec> of_every) {
  for (std::size_t i = 0; IsFlagAt(words, i); i = Behind(words, i)) {
    const std::string& word = words[i];
    const std::string name = word.substr(0, word.find('='));
    const bool is_of_every = std::any_of(
        of_every.begin(), of_every.end(), [&](const FlagSpec& flag) {
          return name == "--" + std::string(flag.name) ||
                 word.starts_with(std::string{'-', flag.letter});
        });
    if (!is_of_every) return name;
  }
  return "";
}

std::string TakeCommand(std::vector<std::string>* words) {
  std::size_t at = 0;
  while (IsFlagAt(*words, at)) at = Behind(*words, at);
  if (at < words->size()) {
    const auto place = words->begin() + static_cast<std::ptrdiff_t>(at);
    std::string name = *place;
    words->erase(place);
    return name;
  }
  std::string name = words->empty() ? "help" : "";
  for (const std::string& word : *words) {
    if (word == "--version") name = "version";
    if (name.empty() && (word == "-h" || word == "--help")) name = "help";
  }
  if (!name.empty()) words->clear();
  return name;
}

}  // namespace ckptree::tools
