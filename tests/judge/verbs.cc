// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/verbs.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <regex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/judge/kinds.h"
#include "tests/model/store.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, kVerbs> kVerbNames = {
    "read",           "write",           "verify",         "recover", "repair",
    "verify-command", "recover-command", "repair-command", "open"};
constexpr std::array<std::string_view, kFaults> kFaultNames = {
    "lost",    "noread",   "nowrite", "refused", "older", "wrong",
    "unnamed", "overtold", "other",   "abort",   "hang",  "unmended"};

// What a verb said of the store.
struct Said {
  // Exit 0, no finding; nothing where it was not asked.
  std::optional<bool> well = {};
  std::vector<std::string> texts = {};
  std::set<LeafOfStep> leaves = {};  // By name; a leaf "" is the whole step.

  bool Names(std::int64_t key, std::string_view leaf) const {
    if (key != Lack::kOfStore && (leaves.contains({key, std::string(leaf)}) ||
                                  leaves.contains({key, ""}))) {
      return true;
    }
    return std::ranges::any_of(texts, [&](const std::string& text) {
      // Of the store as a whole: any word is a word of it.
      return key == Lack::kOfStore || NamesIt(text, key, leaf);
    });
  }
};

// Commits that the texts say are missing. Nobody knows what was in one of which
// no copy is left: it names one step, tag or removal. Where nobody can tell
// whether there were later ones, it may be the one that a writer was killed
// behind, before its second copy.
std::size_t MissingCommits(const std::vector<std::string>& texts) {
  static const std::regex kSaid(
      "commits? ([0-9]+)(?: to ([0-9]+))? (?:was|were) acknowledged and");
  static const std::regex kDoubt(
      "nobody can tell whether commits after ([0-9]+) are missing");
  std::set<std::uint64_t> commits;
  for (const std::string& text : texts) {
    if (std::smatch doubt; std::regex_search(text, doubt, kDoubt)) {
      commits.insert(std::stoull(doubt[1]) + 1);
    }
    for (std::sregex_iterator it(text.begin(), text.end(), kSaid), end;
         it != end; ++it) {
      const std::uint64_t first = std::stoull((*it)[1]);
      const std::uint64_t last =
          (*it)[2].matched ? std::stoull((*it)[2]) : first;
      for (std::uint64_t i = first; i <= last; ++i) commits.insert(i);
    }
  }
  return commits.size();
}

std::int64_t KeyOf(const std::string& branch, std::int64_t step) {
  return BranchNumber(branch) * kBranchSteps + step;
}

Said SaidBy(const std::vector<RecoveredStep>& steps,
            const std::vector<std::string>& losses, bool complete) {
  Said said = {.well = complete, .texts = losses};
  for (const RecoveredStep& step : steps) {
    const std::int64_t key = KeyOf(step.branch, step.step);
    if (!step.saved) said.leaves.insert({key, ""});
    for (const LostLeaf& leaf : step.lost) {
      said.leaves.insert({key, leaf.name});
    }
  }
  return said;
}

struct Ran {
  int code = -1;
  int signal = 0;
  std::string text;
};

// The program, which has half a minute; `output` is a file for what it says.
Ran RunProgram(const std::vector<std::string>& words,
               const std::string& output) {
  std::vector<std::string> all = {CKPTREE_BINARY};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(30);
    const int out =
        open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(125);
    execv(arguments[0], arguments.data());
    _exit(126);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  Ran ran;
  if (WIFEXITED(status)) ran.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) ran.signal = WTERMSIG(status);
  if (const StoreFiles files = ReadFiles(fs::path(output).parent_path());
      files.bytes.contains("out")) {
    ran.text = files.bytes.at("out");
  }
  return ran;
}

class Judgement {
 public:
  Judgement(const DamagedStore& damaged, std::string folder)
      : damaged_(damaged),
        folder_(std::move(folder)),
        store_(folder_ + "/store"),
        new_(folder_ + "/new"),
        may_be_lost_(damaged.may_be_lost) {
    if (damaged_.files != nullptr) {
      WriteFiles(*damaged_.files, damaged_.changed, store_);
    }
    inode_ = InodeOf(store_);
  }

  Verdict Run(Verb verb) {
    switch (verb) {
      case Verb::kRead:
        Read();
        break;
      case Verb::kWrite:
        Write(/*saves=*/true);
        break;
      case Verb::kOpen:
        Write(/*saves=*/false);
        break;
      case Verb::kVerify:
      case Verb::kVerifyCommand:
        Verify(verb == Verb::kVerifyCommand);
        break;
      case Verb::kRecover:
      case Verb::kRecoverCommand:
        Recover(verb == Verb::kRecoverCommand);
        break;
      case Verb::kRepair:
      case Verb::kRepairCommand:
        Repair(verb == Verb::kRepairCommand);
        break;
    }
    // A repair replaces the directory of the store by another one.
    if (damaged_.files != nullptr) PutBack(folder_, inode_);
    return std::move(verdict_);
  }

 private:
  // ---- the rule ----

  // True where an error says what is damaged.
  bool NamesDamage(std::string_view text) const {
    for (const std::string& file : damaged_.damaged) {
      if (text.find(fs::path(file).filename().string()) != text.npos) {
        return true;
      }
    }
    for (const std::string_view word :
         {"commit", "step", "version", "record", "segment", "journal", "HEAD",
          ".sst", ".log", "CURRENT", "MANIFEST"}) {
      if (text.find(word) != text.npos) return true;
    }
    return false;
  }

  void Fails(Fault fault, const std::string& what, const absl::Status& status) {
    verdict_.Add(fault, absl::StrCat(what, ": ", status.ToString()));
    if (!NamesDamage(std::string(status.message()))) {
      verdict_.Add(kUnnamed, absl::StrCat(what, ": ", status.ToString()));
    }
  }

  // After two damages what is left may not say that it is all.
  bool Doubts(const Said& said) const {
    return damaged_.several &&
           std::ranges::any_of(said.texts, [](const std::string& text) {
             return text.find("nobody can tell") != std::string::npos ||
                    text.find("both copies of the journal are gone") !=
                        std::string::npos;
           });
  }

  // Holds what a store lacks against what the damage hit, and against what was
  // said of it.
  void Weigh(const std::vector<Lack>& lacks, const Said& said,
             const std::string& where) {
    std::set<LeafOfStep> gone;
    std::set<std::int64_t> harmed;  // Steps of which more than leaves is gone.
    std::set<std::int64_t> by_commit;
    std::size_t commits = damaged_.several ? MissingCommits(said.texts) : 0;
    bool any = false;
    for (Lack lack : lacks) {
      if (!lack.named && lack.leaf.empty() && lack.key != Lack::kOfStore) {
        if (!by_commit.contains(lack.key) && commits > 0) {
          --commits;
          by_commit.insert(lack.key);
        }
        lack.named = by_commit.contains(lack.key);
      }
      // All steps are there, and which is the latest is not answered.
      if (Doubts(said) && lack.kind == Lack::Kind::kGone &&
          lack.text.find("nobody can say which step it is") !=
              std::string::npos) {
        lack.named = true;
      }
      const std::string text = absl::StrCat(where, ": ", lack.text);
      if (lack.kind == Lack::Kind::kWrong) verdict_.Add(kWrongBytes, text);
      if (lack.kind == Lack::Kind::kExtra) verdict_.Add(kOther, text);
      if (lack.kind == Lack::Kind::kExtra) continue;
      any = true;
      gone.insert({lack.key, lack.leaf});
      if (lack.leaf.empty()) harmed.insert(lack.key);
      if (!lack.named) verdict_.Add(kUnnamed, text);
      if (lack.kind == Lack::Kind::kOlder &&
          !(damaged_.several && lack.named)) {
        verdict_.Add(kOlder, text);
      }
      if (lack.kind != Lack::Kind::kGone) continue;
      if (!lack.leaf.empty() && may_be_lost_.contains({lack.key, lack.leaf})) {
        continue;
      }
      verdict_.Add(kLost, text);
    }
    for (const LeafOfStep& leaf : said.leaves) {
      if (!gone.contains(leaf) && !harmed.contains(leaf.first) &&
          !harmed.contains(Lack::kOfStore)) {
        verdict_.Add(kOvertold,
                     absl::StrFormat("%s: step %s %s is there", where,
                                     StepName(leaf.first), leaf.second));
      }
    }
    if (said.well == true && any) {
      verdict_.Add(kUnnamed, absl::StrCat(where, ": all is well, it says"));
    }
    if (said.well == false && !any && !Doubts(said) && where != "verify") {
      verdict_.Add(kOvertold,
                   absl::StrCat(where, ": not all is well, it says"));
    }
  }

  // A store that was never damaged is silent.
  void Warnings(const Store& store, const std::string& where, bool may) {
    if (may || store.Info().warnings.empty()) return;
    verdict_.Add(
        kOther, absl::StrCat(where, " warns: ", store.Info().warnings.front()));
  }

  static std::vector<Lack> LacksOf(const Store& store,
                                   const Acknowledged& known, Said* said) {
    for (const std::string& warning : store.Info().warnings) {
      said->texts.push_back(warning);
    }
    return Lacks(store, known, [said](std::int64_t key, std::string_view leaf) {
      return said->Names(key, leaf);
    });
  }

  // What is read of a store has no word beyond its warnings and errors.
  void WeighReading(const Store& store, const Acknowledged& known,
                    const std::string& where) {
    Said said;
    Weigh(LacksOf(store, known, &said), said, where);
  }

  // ---- the verbs ----

  void Read() {
    const auto store = OpenStore(store_, 1, nullptr, /*read_only=*/true);
    if (!store.ok()) {
      Fails(kNoRead, "open to read", store.status());
      return;
    }
    Warnings(*store, "open to read", !damaged_.damaged.empty());
    WeighReading(*store, *damaged_.known, "read");
  }

  void Write(bool saves) {
    {
      absl::StatusOr<Store> store = OpenStore(store_, 1);
      if (!store.ok()) {
        Fails(kNoWrite, "open to write", store.status());
        return;
      }
      Warnings(*store, "open to write", !damaged_.damaged.empty());
      WeighReading(*store, *damaged_.known, "write");
      if (!saves || !Save(*store)) return;
    }
    const auto again = OpenStore(store_, 1, nullptr, /*read_only=*/true);
    if (!again.ok()) {
      Fails(kNoWrite, "open after the save", again.status());
      return;
    }
    if (may_be_lost_.empty() && !again->Info().warnings.empty()) {
      verdict_.Add(kUnmended, again->Info().warnings.front());
    }
    WeighReading(*again, after_, "after the save");
  }

  // One more step of the main branch, which is in `after_` from then on. It may
  // share what is lost.
  bool Save(Store& store) {
    after_ = *damaged_.known;
    const std::int64_t latest = after_.Latest(0).value();
    FaultRandom random(4711);
    const ModelStep& base = *after_.state.steps.at(latest);
    auto step = std::make_shared<ModelStep>(NextStep(base, random));
    const std::int64_t key = latest + 1;
    for (const auto& [name, leaf] : step->leaves) {
      const auto there = base.leaves.find(name);
      if (there != base.leaves.end() && may_be_lost_.contains({latest, name})) {
        // Wholly new values are there.
        if (there->second == leaf || !leaf.chunk_shape.empty()) {
          may_be_lost_.insert({key, name});
        }
      }
    }
    absl::Status status = SaveStep(store, key, *step);
    if (status.ok()) status = store.Close();
    if (!status.ok()) {
      Fails(kNoWrite, "save", status);
      return false;
    }
    after_.state.Save(key, std::move(step));
    // The one policy that a trial sets; others keep all there is.
    if (const auto policy = after_.policies.find(0);
        policy != after_.policies.end() && policy->second == "latest(1)") {
      for (const std::int64_t victim :
           after_.state.Victims(0, 1, /*by_policy=*/true)) {
        after_.state.Delete(victim);
      }
    }
    return true;
  }

  void Verify(bool command) {
    Said said;
    if (command) {
      const Ran ran = Program({"-C", store_, "verify", "--deep"});
      if (ran.code > 1) verdict_.Add(kRefused, "verify: " + ran.text);
      said = {.well = ran.code == 0, .texts = {ran.text}};
    }
    const auto store = OpenStore(store_, 1, nullptr, /*read_only=*/true);
    if (!store.ok()) {
      Fails(kNoRead, "open to verify", store.status());
      if (said.well == true) verdict_.Add(kUnnamed, "verify: exit 0");
      return;
    }
    std::vector<std::pair<std::int64_t, std::string>> hurt;
    if (!command) {
      VerifyOptions options;
      options.level = VerifyOptions::Level::kDeep;
      const absl::StatusOr<VerifyReport> report = store->Verify(options);
      if (!report.ok()) {
        Fails(kRefused, "verify", report.status());
        return;
      }
      said.well = true;
      for (const Finding& finding : report->findings) {
        if (finding.severity == Finding::Severity::kWarning) continue;
        said.well = false;
        said.texts.push_back(absl::StrCat(finding.what, " ", finding.leaf));
        for (const std::string& name : finding.selectors) {
          const absl::StatusOr<StepSelector> step = ParseSelector(name);
          if (!step.ok()) continue;
          said.texts.back() += " " + name;
          hurt.push_back({KeyOf(step->branch, step->step), finding.what});
        }
      }
    }
    if (damaged_.damaged.empty() && said.well == false) {
      verdict_.Add(kOvertold, "verify: " + said.texts.front());
    }
    // Here a loss has to be named by the check, not by who reads.
    std::vector<Lack> lacks = LacksOf(*store, *damaged_.known, &said);
    std::set<std::int64_t> lacking;
    for (Lack& lack : lacks) {
      lacking.insert(lack.key);
      lack.named = said.Names(lack.key, lack.leaf);
    }
    Weigh(lacks, said, "verify");
    for (const auto& [key, what] : hurt) {
      if (lacking.contains(key) || lacking.contains(Lack::kOfStore)) continue;
      verdict_.Add(kOvertold,
                   absl::StrFormat("verify: step %s is whole, not: %s",
                                   StepName(key), what));
    }
  }

  Ran Program(const std::vector<std::string>& words) {
    fs::create_directories(folder_ + "/said");
    const Ran ran = RunProgram(words, folder_ + "/said/out");
    if (ran.signal == SIGALRM) {
      verdict_.Add(kHung, words[0]);
    } else if (ran.signal != 0) {
      verdict_.Add(kAborted, absl::StrFormat("%s: signal %d: %s", words[0],
                                             ran.signal, ran.text));
    }
    return ran;
  }

  void Recover(bool command) {
    Said said;
    bool made = true;
    if (command) {
      const Ran ran = Program({"recover", store_, new_, "--json"});
      if (ran.code > 1 || ran.signal != 0) {
        verdict_.Add(kRefused, "recover: " + ran.text);
      }
      said = {.well = ran.code == 0, .texts = {ran.text}};
      made = fs::exists(new_);
    } else {
      const absl::StatusOr<RecoverReport> report =
          ckptree::Recover(store_, new_);
      if (!report.ok()) {
        Fails(kRefused, "recover", report.status());
        made = false;
        said.well = false;
      } else {
        said = SaidBy(report->steps, report->losses, report->complete());
        made = report->made;
        if (!made) verdict_.Add(kLost, "recover: not one step");
      }
    }
    if (!made && said.well == true) {
      verdict_.Add(kUnnamed, "recover: exit 0, no store");
    }
    if (made) {
      const auto store = OpenStore(new_, 1, nullptr, /*read_only=*/true);
      if (!store.ok()) {
        Fails(kNoRead, "open of the recovered store", store.status());
      } else {
        Warnings(*store, "recovered", false);
        Weigh(LacksOf(*store, *damaged_.known, &said), said, "recover");
      }
    }
    for (const auto& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name != "store" && name != "new" && name != "said") {
        verdict_.Add(kOther, "recover leaves " + name);
      }
    }
    CheckUntouched();
  }

  void CheckUntouched() {
    const StoreFiles now = ReadFiles(store_);
    std::map<std::string, std::string> expected = damaged_.files->bytes;
    for (const auto& [name, bytes] : damaged_.changed) {
      if (bytes) {
        expected[name] = *bytes;
      } else {
        expected.erase(name);
      }
    }
    if (now.bytes != expected) {
      verdict_.Add(kOther, "recover changes the store");
    }
  }

  void Repair(bool command) {
    Said said;
    if (command) {
      const Ran ran = Program({"repair", store_, "--yes", "--json"});
      if (ran.code > 1 || ran.signal != 0) {
        verdict_.Add(kRefused, "repair: " + ran.text);
        return;
      }
      said = {.well = ran.code == 0, .texts = {ran.text}};
    } else {
      RepairOptions options;
      options.execute = true;
      const absl::StatusOr<RepairReport> report =
          ckptree::Repair(store_, options);
      if (!report.ok()) {
        Fails(kRefused, "repair", report.status());
        return;
      }
      const bool nothing = report->action == RepairReport::Action::kNothing;
      if (!nothing && !report->done) verdict_.Add(kRefused, "repair: not done");
      said = SaidBy(report->steps, report->losses,
                    nothing || (report->done && report->complete()));
    }
    absl::StatusOr<Store> store = OpenStore(store_, 1);
    if (!store.ok()) {
      Fails(kNoWrite, "open of the repaired store", store.status());
      return;
    }
    Warnings(*store, "repaired", false);
    Weigh(LacksOf(*store, *damaged_.known, &said), said, "repair");
    Save(*store);
  }

  const DamagedStore& damaged_;
  const std::string folder_;
  const std::string store_;
  const std::string new_;
  std::set<LeafOfStep> may_be_lost_;
  std::uint64_t inode_ = 0;
  Acknowledged after_;
  Verdict verdict_;
};

}  // namespace

std::string_view VerbName(Verb verb) {
  return kVerbNames[static_cast<std::size_t>(verb)];
}

std::string_view FaultName(int bit) {
  return kFaultNames[static_cast<std::size_t>(bit)];
}

void Verdict::Add(Fault fault, std::string_view why) {
  if ((faults & fault) != 0) return;
  faults |= fault;
  int bit = 0;
  while ((fault >> bit) != 1) ++bit;
  absl::StrAppend(&text, text.empty() ? "" : " || ",
                  std::string(FaultName(bit)), ": ",
                  std::string(why.substr(0, 300)));
}

Verdict Judge(const DamagedStore& damaged, const std::string& folder,
              Verb verb) {
  return Judgement(damaged, folder).Run(verb);
}

}  // namespace ckptree::testing
