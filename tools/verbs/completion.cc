// SPDX-License-Identifier: Apache-2.0

// `ckptree completion`, and the hidden command that its scripts ask.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/output/failure.h"

namespace ckptree::tools {
namespace {

// Each hands the words up to the cursor to `ckptree __complete --`, which
// prints a candidate a line.
constexpr std::string_view kBash =
    R"(# bash completion of ckptree
_ckptree() {
  local line="${COMP_LINE:0:COMP_POINT}" words candidate
  read -r -a words <<< "$line"
  [[ "$line" == *" " ]] && words+=("")
  # Readline cuts words at colons: what stands before is not to be repeated.
  local current="${words[-1]}" cut=""
  [[ "$COMP_WORDBREAKS" == *:* && "$current" == *:* ]] && cut="${current%:*}:"
  COMPREPLY=()
  while IFS= read -r candidate; do
    COMPREPLY+=("${candidate#"$cut"}")
  done < <(ckptree __complete -- "${words[@]:1}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[:/] ]] &&
    compopt -o nospace
}
complete -o default -F _ckptree ckptree
)";

constexpr std::string_view kZsh = R"(#compdef ckptree
_ckptree() {
  local -a candidates
  candidates=("${(@f)$(ckptree __complete -- "${(@)words[2,CURRENT]}" \
    2>/dev/null)}")
  if [[ -n "$candidates" ]]; then
    compadd -Q -S '' -- $candidates
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
    if (candidate.starts_with(word_) && seen_.insert(candidate).second) {
      text_ += candidate + "\n";
    }
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

// The next part of the keys that go on as the word does.
absl::Status AddKeys(Session& session, Candidates* candidates) {
  const std::string& word = candidates->word();
  const absl::StatusOr<Address> address = ParseAddress(word);
  if (!address.ok()) return address.status();
  const std::string rev = word.substr(0, word.size() - address->key.size());
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  const absl::StatusOr<std::vector<LeafInfo>> leaves = step->Leaves();
  if (!leaves.ok()) return leaves.status();
  for (const LeafInfo& leaf : *leaves) {
    if (!leaf.name.starts_with(address->key)) continue;
    const std::size_t slash = leaf.name.find('/', address->key.size());
    candidates->Add(rev + (slash == std::string::npos
                               ? leaf.name
                               : leaf.name.substr(0, slash + 1)));
  }
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
  Candidates candidates(words.back());
  words.pop_back();
  // A store named before the cursor is the one to ask.
  std::string name;
  std::vector<std::string> store;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if ((words[i] == "-C" || words[i] == "--store") && i + 1 < words.size()) {
      store = {"-C", words[++i]};
    } else if (name.empty() && !words[i].starts_with('-')) {
      name = words[i];
    }
  }
  const Command* command = FindCommand(name);
  const std::string& word = candidates.word();
  const std::string before = words.empty() ? "" : words.back();
  const bool of_branch = command != nullptr && NamesBranch(*command, before);
  if (command == nullptr) {
    for (const Command& known : Commands()) {
      if (!known.hidden && name.empty()) {
        candidates.Add(std::string(known.name));
      }
    }
  } else if (word.starts_with('-')) {
    AddFlags(*command, &candidates);
  } else if (command->name == "completion") {
    for (const char* shell : {"bash", "zsh", "fish"}) candidates.Add(shell);
  } else if (command->name == "help") {
    for (const Command& known : Commands()) {
      if (!known.hidden) candidates.Add(std::string(known.name));
    }
  } else if (of_branch ||
             command->words.find("REV") != std::string_view::npos ||
             command->words.find("RANGE") != std::string_view::npos) {
    absl::StatusOr<Arguments> arguments =
        Arguments::Parse(FlagsOf(*command), store);
    if (!arguments.ok()) return arguments.status();
    Session asked(*std::move(arguments), &session.out());
    const bool with_keys = command->words.find(":") != std::string_view::npos;
    // Without a store there is nothing to offer: no error at a prompt.
    (of_branch     ? AddBranches(asked, &candidates)
     : InKey(word) ? AddKeys(asked, &candidates)
                   : AddSteps(asked, with_keys, &candidates))
        .IgnoreError();
  }
  session.out().Write(candidates.text());
  return kExitOk;
}

}  // namespace ckptree::tools
