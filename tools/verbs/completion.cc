// SPDX-License-Identifier: Apache-2.0

// `ckptree completion`, and the hidden command that its scripts ask.

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// Each hands the words up to the cursor to `ckptree __complete --`, which
// prints a candidate a line. A name that a store has may be any text, also one
// that a shell would run: each candidate is quoted for the place where it is
// put, and left out where that cannot be.
constexpr std::string_view kBash =
    R"(# bash completion of ckptree
_ckptree() {
  local line="${COMP_LINE:0:COMP_POINT}" words=() word="" plain="" quote=""
  local i char candidate cut="" signs="()\"'\\ \$\`&|;<>!#"
  # Words as the shell takes them, and the last one without its quotes.
  for (( i = 0; i < ${#line}; ++i )); do
    char="${line:i:1}"
    if [[ -n "$quote" && "$char" == "$quote" ]]; then
      quote="" word+="$char"
    elif [[ "$char" == "\\" && "$quote" != "'" ]]; then
      (( ++i ))
      word+="$char${line:i:1}" plain+="${line:i:1}"
    elif [[ -z "$quote" && "$char" == [\"\'] ]]; then
      quote="$char" word+="$char"
    elif [[ -z "$quote" && "$char" == [[:space:]] ]]; then
      [[ -n "$word" ]] && words+=("$word")
      word="" plain=""
    else
      word+="$char" plain+="$char"
    fi
  done
  # Readline cuts words at colons: what stands before is not to be repeated.
  [[ -z "$quote" && "$COMP_WORDBREAKS" == *:* && "$plain" == *:* ]] &&
    cut="${plain%:*}:"
  # A quote that is of the word itself stands behind one that is not.
  [[ "$plain" == [\"\']* ]] && words+=("'$plain") || words+=("$plain")
  COMPREPLY=()
  while IFS= read -r candidate; do
    candidate="${candidate#"$cut"}"
    if [[ "$quote" == '"' ]]; then
      # Between these quotes nothing keeps it from the history.
      [[ "$candidate" == *!* ]] && continue
      candidate="${candidate//\\/\\\\}"
      candidate="${candidate//\"/\\\"}"
      candidate="${candidate//\$/\\\$}"
      candidate="${candidate//\`/\\\`}"
    elif [[ "$quote" == "'" ]]; then
      # What comes behind would not be quoted.
      [[ "$candidate" == *\'* ]] && continue
    elif [[ "$candidate" == *["$signs"]* ]]; then
      printf -v candidate %q "$candidate"
    fi
    COMPREPLY+=("$candidate")
  done < <(ckptree __complete -- "${words[@]:1}" 2>/dev/null)
  # Readline takes a quote at the end for the one that closes the word.
  [[ ${#COMPREPLY[@]} -eq 1 && ( "${COMPREPLY[0]}" == *[:/] ||
    "$quote${COMPREPLY[0]}" == \"*\" ) ]] && compopt -o nospace
}
complete -o default -F _ckptree ckptree
)";

constexpr std::string_view kZsh = R"(#compdef ckptree
_ckptree() {
  local -a candidates given
  local word
  given=("${(@Q)words[2,CURRENT-1]}")
  word="${(Q)PREFIX}"
  # A quote that is of the word itself stands behind one that is not.
  [[ "$word" == [\"\']* ]] && word="'$word"
  candidates=("${(@f)$(ckptree __complete -- "${(@)given}" "$word" \
    2>/dev/null)}")
  if [[ -n "$candidates" ]]; then
    compadd -S '' -- "${(@)candidates}"
  else
    _files
  fi
}
if [[ "$funcstack[1]" = _ckptree ]]; then _ckptree "$@"; else
  compdef _ckptree ckptree
fi
)";

constexpr std::string_view kFish = R"(# fish completion of ckptree
function __ckptree_complete
  set -l words (commandline -opc) (commandline -ct)
  ckptree __complete -- $words[2..-1] 2>/dev/null
end
complete -c ckptree -a '(__ckptree_complete)'
)";

// Candidates for `word`; each once, in order.
class Candidates {
 public:
  explicit Candidates(std::string word) : word_(std::move(word)) {}

  void Add(const std::string& candidate) {
    if (!candidate.starts_with(word_)) return;
    // A line end would make two of it, and other signs that are not shown move
    // the cursor of whoever is shown the list.
    if (Escape(candidate) != candidate) return;
    // A name in the place of a word would be taken for a flag.
    if (word_.empty() && candidate.starts_with('-')) return;
    if (seen_.insert(candidate).second) text_ += candidate + "\n";
  }
  const std::string& word() const { return word_; }
  const std::string& text() const { return text_; }

 private:
  std::string word_;
  std::set<std::string> seen_;
  std::string text_;
};

void AddFlags(const Command& command, Candidates* candidates) {
  for (const FlagSpec& flag : FlagsOf(command)) {
    candidates->Add("--" + std::string(flag.name));
  }
}

// True for flags whose value is the name of a branch that is there.
bool NamesBranch(const Command& command, std::string_view flag) {
  if (command.name == "fork") return flag == "--drop";
  return flag == "--branch" || flag == "-b";
}

absl::Status AddBranches(Session& session, Candidates* candidates) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<BranchInfo>> branches = (*store)->Branches();
  if (!branches.ok()) return branches.status();
  for (const BranchInfo& branch : *branches) {
    if (!branch.name.empty()) candidates->Add(branch.name);
  }
  return absl::OkStatus();
}

// The next part of the keys of `step` that go on as `key` does, behind
// `before`.
absl::Status AddKeysOf(const Step& step, const std::string& before,
                       const std::string& key, Candidates* candidates) {
  const absl::StatusOr<std::vector<LeafInfo>> leaves = step.Leaves();
  if (!leaves.ok()) return leaves.status();
  for (const LeafInfo& leaf : *leaves) {
    if (!leaf.name.starts_with(key)) continue;
    const std::size_t slash = leaf.name.find('/', key.size());
    candidates->Add(before + (slash == std::string::npos
                                  ? leaf.name
                                  : leaf.name.substr(0, slash + 1)));
  }
  return absl::OkStatus();
}

// Of REV:KEY, behind its colon.
absl::Status AddKeys(Session& session, Candidates* candidates) {
  const std::string& word = candidates->word();
  const absl::StatusOr<Address> address = ParseAddress(word);
  if (!address.ok()) return address.status();
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  return AddKeysOf(*step, word.substr(0, word.size() - address->key.size()),
                   address->key, candidates);
}

// Of a KEY alone: those of the latest step.
absl::Status AddLatestKeys(Session& session, Candidates* candidates) {
  const absl::StatusOr<Step> step = session.OpenStep(Latest());
  if (!step.ok()) return step.status();
  return AddKeysOf(*step, "", candidates->word(), candidates);
}

absl::Status AddTags(Session& session, Candidates* candidates) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<TagInfo>> tags = (*store)->Tags();
  if (!tags.ok()) return tags.status();
  for (const TagInfo& tag : *tags) candidates->Add(tag.name);
  return absl::OkStatus();
}

// True where `word` is beyond its REV; "best:" is still in it.
bool InKey(std::string_view word) {
  const std::size_t slash = word.find_first_of("/:@");
  if (slash != std::string_view::npos && word[slash] == '/') {
    word.remove_prefix(slash + 1);
  }
  const std::size_t colon = word.find(':');
  return colon != std::string_view::npos &&
         !(word.starts_with("best:") &&
           word.find(':', 5) == std::string_view::npos);
}

absl::Status AddSteps(Session& session, bool with_keys,
                      Candidates* candidates) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  // A branch that was begun is gone on with; before that, branches are offered.
  const std::string& word = candidates->word();
  const std::size_t slash = word.find_first_of("/:@");
  std::string branch, prefix;
  if (slash != std::string::npos && word[slash] == '/') {
    branch = word.substr(0, slash);
    prefix = branch + "/";
  }
  const absl::StatusOr<std::vector<StepInfo>> steps = (*store)->Steps(branch);
  if (!steps.ok()) return steps.status();
  const char* colon = with_keys ? ":" : "";
  std::set<std::string> metrics;
  candidates->Add(absl::StrFormat("%slatest%s", prefix, colon));
  // People mostly ask for the newest; a screenful is enough.
  constexpr std::size_t kMostSteps = 200;
  std::size_t shown = 0;
  for (auto info = steps->rbegin(); info != steps->rend(); ++info) {
    if (shown++ < kMostSteps) {
      candidates->Add(absl::StrFormat("%s%d%s", prefix, info->step, colon));
    }
    for (const std::string& tag : info->tags) {
      candidates->Add(absl::StrFormat("@%s%s", tag, colon));
    }
    for (const auto& [name, value] : info->metrics) metrics.insert(name);
  }
  for (const std::string& name : metrics) {
    candidates->Add(prefix + "best:" + name + ":max" + colon);
    candidates->Add(prefix + "best:" + name + ":min" + colon);
  }
  if (!prefix.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<BranchInfo>> branches = (*store)->Branches();
  if (!branches.ok()) return branches.status();
  for (const BranchInfo& other : *branches) {
    if (!other.name.empty()) candidates->Add(other.name + "/");
  }
  return absl::OkStatus();
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    if (end != 0 && !text.empty()) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

void AddChoices(std::string_view choices, Candidates* candidates) {
  for (const std::string_view choice : Split(choices, '|')) {
    candidates->Add(std::string(choice));
  }
}

// A word as the line has it, before the shell took its quote away.
std::string WithoutQuote(std::string word) {
  if (!word.empty() && (word[0] == '"' || word[0] == '\'')) word.erase(0, 1);
  return word;
}

// A path as the line has it: with a variable or `~` in front, and in quotes.
std::string PathOf(std::string word) {
  const bool plain = !word.starts_with('\'');
  word = WithoutQuote(std::move(word));
  if (!word.empty() && (word.back() == '"' || word.back() == '\'')) {
    word.pop_back();
  }
  std::string name, rest;
  if (plain && word.starts_with("~") && (word.size() == 1 || word[1] == '/')) {
    name = "HOME", rest = word.substr(1);
  } else if (plain && word.starts_with('$')) {
    const bool braces = word.starts_with("${");
    const std::size_t first = braces ? 2 : 1;
    std::size_t end = first;
    while (end < word.size() &&
           (absl::ascii_isalnum(static_cast<unsigned char>(word[end])) ||
            word[end] == '_')) {
      ++end;
    }
    name = word.substr(first, end - first);
    rest = word.substr(std::min(word.size(), end + (braces ? 1 : 0)));
  }
  const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
  return value == nullptr ? word : value + rest;
}

// What stands before the word to complete.
struct Line {
  std::string name;
  const Command* command = nullptr;
  const FlagSpec* before = nullptr;  // The word is the value of this flag.
  std::size_t given = 0;             // Words of the command so far.
  std::vector<std::string> store;    // "-C" and the store, where one is named.
};

const FlagSpec* FindFlag(std::string_view word,
                         const std::vector<FlagSpec>& flags) {
  for (const FlagSpec& flag : flags) {
    if (word == "--" + std::string(flag.name) ||
        (flag.letter != 0 && word == std::string("-") + flag.letter)) {
      return &flag;
    }
  }
  return nullptr;
}

Line ReadLine(const std::vector<std::string>& words) {
  // Before the command there are those flags alone that every command has.
  static const std::vector<FlagSpec> every = FlagsOf(*FindCommand("demo"));
  static std::vector<FlagSpec> own;
  Line line;
  for (const std::string& word : words) {
    const std::vector<FlagSpec>& flags = line.command == nullptr ? every : own;
    if (line.before != nullptr) {
      if (line.before->name == "store") line.store = {"-C", PathOf(word)};
      line.before = nullptr;
    } else if (word.starts_with("--store=")) {
      line.store = {"-C", PathOf(word.substr(8))};
    } else if (word.starts_with("-C") && word.size() > 2) {
      line.store = {"-C", PathOf(word.substr(2))};
    } else if (word.starts_with('-') && !IsRangeFromEnd(word)) {
      const FlagSpec* flag = FindFlag(word, flags);
      if (flag != nullptr && !flag->value.empty()) line.before = flag;
    } else if (line.name.empty()) {
      line.name = word;
      line.command = FindCommand(word);
      if (line.command != nullptr) own = FlagsOf(*line.command);
    } else {
      // Its steps are those of SRC.
      if (line.given == 0 && line.command != nullptr &&
          line.command->name == "copy") {
        line.store = {"-C", PathOf(word)};
      }
      ++line.given;
    }
  }
  return line;
}

// What the word after `given` others is, by the help of `command`.
std::string_view WordOf(const Command& command, std::size_t given) {
  const std::vector<std::string_view> words = Split(command.words, ' ');
  if (given < words.size()) return words[given];
  return !words.empty() && words.back().find("...") != std::string_view::npos
             ? words.back()
             : std::string_view();
}

}  // namespace

absl::StatusOr<int> RunCompletion(Session& session) {
  const std::string& shell = session.words()[0];
  if (shell == "bash") {
    session.out().Write(kBash);
  } else if (shell == "zsh") {
    session.out().Write(kZsh);
  } else if (shell == "fish") {
    session.out().Write(kFish);
  } else {
    return absl::InvalidArgumentError(
        absl::StrFormat("`%s`: choose bash, zsh or fish", shell));
  }
  return kExitOk;
}

absl::StatusOr<int> RunComplete(Session& session) {
  std::vector<std::string> words = session.words();
  if (words.empty()) words.emplace_back();
  Candidates candidates(WithoutQuote(words.back()));
  words.pop_back();
  const Line line = ReadLine(words);
  const std::string& word = candidates.word();
  if (line.command == nullptr) {
    if (line.name.empty() && line.before == nullptr) {
      for (const Command& known : Commands()) {
        if (!known.hidden) candidates.Add(std::string(known.name));
      }
    }
  } else if (line.before == nullptr && word.starts_with('-')) {
    AddFlags(*line.command, &candidates);
  } else if (line.before != nullptr && !line.before->choices.empty()) {
    AddChoices(line.before->choices, &candidates);
  } else if (line.before == nullptr && line.command->name == "completion") {
    AddChoices("bash|zsh|fish", &candidates);
  } else if (line.before == nullptr && line.command->name == "help") {
    for (const Command& known : Commands()) {
      if (!known.hidden) candidates.Add(std::string(known.name));
    }
  } else {
    const std::string_view wanted =
        line.before == nullptr ? WordOf(*line.command, line.given)
        : NamesBranch(*line.command, "--" + std::string(line.before->name))
            ? "BRANCH"
            : line.before->value;
    const bool rev = wanted.find("REV") != wanted.npos ||
                     wanted.find("RANGE") != wanted.npos;
    const bool with_keys = rev && wanted.find(':') != wanted.npos;
    const bool tag =
        wanted.find("NAME") != wanted.npos && line.command->name == "tag";
    const bool key = !rev && wanted.find("KEY") != wanted.npos;
    const bool branch = wanted == "BRANCH";
    // What is none of these is a file, or of no list: the shell's own.
    if (!rev && !tag && !key && !branch) return kExitOk;
    absl::StatusOr<Arguments> arguments =
        Arguments::Parse(FlagsOf(*line.command), line.store);
    if (!arguments.ok()) return arguments.status();
    Session asked(*std::move(arguments), &session.out());
    // Without a store there is nothing to offer: no error at a prompt.
    (branch                     ? AddBranches(asked, &candidates)
     : tag                      ? AddTags(asked, &candidates)
     : key                      ? AddLatestKeys(asked, &candidates)
     : with_keys && InKey(word) ? AddKeys(asked, &candidates)
                                : AddSteps(asked, with_keys, &candidates))
        .IgnoreError();
  }
  session.out().Write(candidates.text());
  return kExitOk;
}

}  // namespace ckptree::tools
