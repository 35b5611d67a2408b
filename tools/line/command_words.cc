// SPDX-License-Identifier: Apache-2.0

#include "tools/line/command_words.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/address.h"
#include "tools/line/session.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

bool HasKey(std::string_view word) { return word.find(':') != word.npos; }

// By words of which there is one too many; empty: nobody knows.
std::string WhatWasMeant(std::string_view command, std::string_view syntax,
                         int most, const std::vector<std::string>& words) {
  const auto last = static_cast<std::size_t>(most);
  if (command == "policy") {
    return absl::StrFormat("`ckptree policy --set '%s'`", Escape(words[0]));
  }
  if (command == "fork") {
    return absl::StrFormat("`ckptree fork %s --branch %s`", Escape(words[0]),
                           Escape(words[1]));
  }
  if (command == "diff" && words.size() == 3 && !HasKey(words[0])) {
    return absl::StrFormat(
        "the key stands behind the first step: `ckptree "
        "diff %s:%s %s`",
        Escape(words[0]), Escape(words[2]), Escape(words[1]));
  }
  // `get 100 params/w`, and the other way round.
  const bool takes_key = syntax.find(":KEY") != std::string_view::npos ||
                         syntax.find(":PREFIX") != std::string_view::npos;
  if (most != 1 || !takes_key || HasKey(words[0]) || HasKey(words[last])) {
    return "";
  }
  const bool is_rev = ParseAddress(words[0]).ok();
  return absl::StrFormat("a step and its key are one word: `%s:%s`",
                         Escape(words[is_rev ? 0 : 1]),
                         Escape(words[is_rev ? 1 : 0]));
}

}  // namespace

absl::Status CheckWords(std::string_view command, std::string_view syntax,
                        int least, int most, const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  const auto given = static_cast<int>(words.size());
  if (given < least) {
    return absl::InvalidArgumentError(
        absl::StrFormat("`ckptree %s` needs %s", command, syntax));
  }
  if (given <= most) return absl::OkStatus();
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrFormat("`ckptree %s` cannot take `%s`", command,
                      Escape(words[static_cast<std::size_t>(most)])));
  const std::string meant = WhatWasMeant(command, syntax, most, words);
  return meant.empty() ? refused : WithHint(refused, meant);
}

absl::Status OrWhatWasMeant(std::string_view command, std::string_view syntax,
                            const Arguments& arguments, absl::Status failure) {
  if (!absl::IsInvalidArgument(failure) && !absl::IsNotFound(failure)) {
    return failure;
  }
  for (const std::string_view place : {"DST", "FILE", "NAME", "SRC", "STORE"}) {
    if (syntax.find(place) != std::string_view::npos) return failure;
  }
  const std::vector<std::string>& words = arguments.words();
  if (command == "find" && words.size() == 2 && !ParseRange(words[1]).ok() &&
      words[1].find_first_of("*/") != std::string::npos) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "`%s` is no range of steps", Escape(words[1]))),
                    absl::StrFormat("-k '%s' names leaves", Escape(words[1])));
  }
  for (const std::string& word : words) {
    if (ParseAddress(word).ok() || !IsStore(word)) continue;
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` is a store, and -C stands in front of one", Escape(word))),
        absl::StrFormat("`ckptree %s -C %s`", command, Escape(word)));
  }
  return failure;
}

}  // namespace ckptree::tools
