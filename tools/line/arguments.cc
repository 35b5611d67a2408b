// SPDX-License-Identifier: Apache-2.0

#include "tools/line/arguments.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/nearest.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

absl::Status UnknownFlag(std::string_view given,
                         std::span<const FlagSpec> flags) {
  const std::string name(given.substr(0, given.find('=')));
  std::vector<std::string> names;
  for (const FlagSpec& flag : flags) {
    names.push_back("--" + std::string(flag.name));
  }
  const std::string nearest = name.size() > 2 ? Nearest(name, names) : "";
  if (nearest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("unknown flag `%s`", Escape(name)));
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "unknown flag `%s`. Did you mean `%s`?", Escape(name), nearest));
}

bool IsChoice(std::string_view choices, std::string_view value) {
  while (true) {
    const std::size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

}  // namespace

absl::StatusOr<Arguments> Arguments::Parse(std::span<const FlagSpec> flags,
                                           std::vector<std::string> words) {
  Arguments arguments;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();

  std::vector<std::string> positional;
  std::vector<std::pair<const FlagSpec*, CLI::Option*>> options;
  for (const FlagSpec& flag : flags) {
    std::string name = "--" + std::string(flag.name);
    if (flag.letter != 0) name += std::string(",-") + flag.letter;
    CLI::Option* option =
        flag.value.empty() ? app.add_flag(name) : app.add_option(name);
    option->multi_option_policy(flag.many ? CLI::MultiOptionPolicy::TakeAll
                                          : CLI::MultiOptionPolicy::TakeLast);
    // An expression or a glob in brackets is no list.
    if (!flag.value.empty()) option->expected(1)->delimiter('\0');
    options.emplace_back(&flag, option);
  }
  const std::vector<std::string> typed = words;
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::ArgumentMismatch& error) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a flag lacks its value: %s", Escape(error.what())));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(Escape(error.what()));
  }
  // Words are taken from what is left: as an option of CLI11's a word in
  // brackets would be split at its commas.
  bool all_words = false;
  for (const std::string& rest : app.remaining()) {
    if (!all_words && rest == "--") {
      all_words = true;
    } else if (!all_words && rest.size() > 1 && rest[0] == '-' &&
               // Of `-j5..` CLI11 leaves `-5..`, which nobody gave.
               (!IsRangeFromEnd(rest) ||
                std::find(typed.begin(), typed.end(), rest) == typed.end())) {
      return UnknownFlag(rest, flags);
    } else {
      positional.push_back(rest);
    }
  }
  arguments.words_ = std::move(positional);
  for (const auto& [flag, option] : options) {
    if (option->count() == 0) continue;
    std::vector<std::string> values = {"true"};
    if (!flag->value.empty()) {
      if (flag->many) {
        values = option->results();
      } else {
        values[0] = option->as<std::string>();
      }
    } else if (const std::string given = option->results().back();
               given != "true") {
      return absl::InvalidArgumentError(absl::StrFormat(
          "`--%s=%s`: this flag takes no value; whoever means no leaves it out",
          flag->name, Escape(given)));
    }
    const std::string& value = values.back();
    if (!flag->choices.empty() && !IsChoice(flag->choices, value)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("`--%s %s`: choose one of %s", flag->name,
                          Escape(value), flag->choices));
    }
    arguments.flags_[std::string(flag->name)] = std::move(values);
  }
  // The two names that some flags have.
  if (const auto output = arguments.Find("output");
      arguments.Has("json") && output.has_value() && *output != "json") {
    return absl::InvalidArgumentError(absl::StrFormat(
        "`--json` and `-o %s` are two formats: give one", Escape(*output)));
  }
  if (const auto wait = arguments.Find("wait");
      wait.has_value() && wait != arguments.Find("timeout").value_or(*wait)) {
    return absl::InvalidArgumentError(
        "`--timeout` and `--wait` are one flag: give one");
  }
  return arguments;
}

bool Arguments::Has(std::string_view flag) const {
  return flags_.find(flag) != flags_.end();
}

std::optional<std::string> Arguments::Find(std::string_view flag) const {
  const auto found = flags_.find(flag);
  if (found == flags_.end()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Arguments::All(std::string_view flag) const {
  const auto found = flags_.find(flag);
  if (found == flags_.end()) return {};
  return found->second;
}

std::string Arguments::Get(std::string_view flag,
                           std::string_view otherwise) const {
  return Find(flag).value_or(std::string(otherwise));
}

absl::Status Arguments::CheckNoEmptyWord(std::string_view command) const {
  if (std::ranges::find(words_, "") == words_.end()) return absl::OkStatus();
  return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                      "`ckptree %s` cannot take an empty word", command)),
                  "is a variable of the shell not set? What may be left out is "
                  "left out whole");
}

absl::StatusOr<std::optional<std::int64_t>> Arguments::Number(
    std::string_view flag) const {
  const std::optional<std::string> text = Find(flag);
  if (!text) return std::optional<std::int64_t>();
  std::int64_t value = 0;
  if (!absl::SimpleAtoi(*text, &value) || value < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "`--%s %s`: a whole number from 0 on is needed", flag, Escape(*text)));
  }
  return std::optional<std::int64_t>(value);
}

bool IsRangeFromEnd(std::string_view word) {
  if (!word.starts_with('-')) return false;
  const std::size_t end = word.find_first_not_of("0123456789", 1);
  return end != word.npos && end > 1 && word.substr(end).starts_with("..");
}

void ExpandLimit(std::span<const FlagSpec> flags,
                 std::vector<std::string>* words) {
  bool is_value = false;
  for (std::string& word : *words) {
    if (std::exchange(is_value, false)) continue;
    if (word == "--") return;
    is_value =
        std::any_of(flags.begin(), flags.end(), [&word](const FlagSpec& flag) {
          return !flag.value.empty() &&
                 (word == "--" + std::string(flag.name) ||
                  (flag.letter != 0 && word == std::string{'-', flag.letter}));
        });
    if (word.size() > 1 && word[0] == '-' &&
        word.find_first_not_of("0123456789", 1) == std::string::npos) {
      word = "--limit=" + word.substr(1);
    }
  }
}

}  // namespace ckptree::tools
