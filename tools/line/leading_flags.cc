// SPDX-License-Identifier: Apache-2.0

#include "tools/line/leading_flags.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ckptree::tools {

std::string FlagInFront(const std::vector<std::string>& words,
                        std::span<const FlagSpec> of_every) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-C" || word == "--store" || word == "--color") {
      ++i;  // Its value.
      continue;
    }
    if (word.empty() || word[0] != '-') return "";
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
  for (std::size_t i = 0; i < words->size(); ++i) {
    const std::string& word = (*words)[i];
    if (word == "-C" || word == "--store" || word == "--color") {
      ++i;  // Its value.
    } else if (word.empty() || word[0] != '-') {
      std::string name = word;
      words->erase(words->begin() + static_cast<std::ptrdiff_t>(i));
      return name;
    }
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
