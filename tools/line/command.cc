// SPDX-License-Identifier: Apache-2.0

#include "tools/line/command.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/line/command_words.h"
#include "tools/line/leading_flags.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/nearest.h"
#include "tools/output/pager.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr FlagSpec kEveryFlags[] = {
    {"store", 'C', "DIR", "the store; else $CKPTREE_STORE, else from here up"},
    {"color", 0, "WHEN", "auto, always or never", "auto|always|never"},
    {"quiet", 'q', "", "no notes and no progress on standard error"},
    {"no-pager", 0, "", "long output, too, goes right to the terminal"},
    {"help", 'h', "", "this text"},
};
constexpr FlagSpec kLsFlags[] = {
    {"stats", 's', "", "also L2 norm, mean, min, max, NaN and Inf"},
    {"all", 'a', "", "also nodes of the tree that hold no value"},
    {"depth", 'd', "N", "fold what is more than N parts deep"},
};
constexpr FlagSpec kShowFlags[] = {
    {"parts", 0, "", "what each rank saved, where several processes did"},
    {"output", 'o', "FORMAT", "table or json", "table|json"},
    {"json", 0, "", "the same as -o json"},
    {"bytes", 0, "", "sizes as exact numbers of bytes"},
};
constexpr FlagSpec kGetFlags[] = {
    {"output", 'o', "FORMAT",
     "text, json, csv, tsv, npy or raw; else as --out ends",
     "text|json|csv|tsv|npy|raw"},
    {"json", 0, "", "the same as -o json"},
    {"out", 0, "FILE", "write there; the file appears whole or not at all"},
    {"full", 0, "", "print every element, however many; a file has them all"},
};
constexpr FlagSpec kVerifyFlags[] = {
    {"quick", 0, "", "records only, no array bytes"},
    {"deep", 0, "", "each file whole, statistics, dead lists, totals"},
};
constexpr FlagSpec kTagFlags[] = {
    {"delete", 'd', "", "remove the tag"},
    {"move", 0, "", "let an existing tag name another step"},
    {"timeout", 0, "SECONDS", "that a trainer has to answer (10)"},
    {"wait", 0, "SECONDS", "the same"},
};
constexpr FlagSpec kPinFlags[] = {
    {"delete", 'd', "", "unpin"},
    {"timeout", 0, "SECONDS", "that a trainer has to answer (10)"},
    {"wait", 0, "SECONDS", "the same"},
};
constexpr FlagSpec kRmFlags[] = {
    {"dry-run", 0, "", "only say what would go"},
    {"tagged", 0, "", "tagged steps, too, and their tags with them"},
    {"yes", 'y', "", "do not ask"},
    {"timeout", 0, "SECONDS", "that a trainer has to answer (10)"},
    {"wait", 0, "SECONDS", "the same"},
};
constexpr FlagSpec kForkFlags[] = {
    {"branch", 'b', "NAME", "the new branch"},
    {"drop", 0, "NAME", "remove this branch with all its steps"},
    {"tagged", 0, "", "with --drop: tagged steps, too, and their tags"},
    {"dry-run", 0, "", "only say what --drop would remove"},
    {"yes", 'y', "", "do not ask"},
    {"timeout", 0, "SECONDS", "that a trainer has to answer (10)"},
    {"wait", 0, "SECONDS", "the same"},
};
constexpr FlagSpec kGcFlags[] = {
    {"dry-run", 0, "", "only say what would be freed"},
    {"budget", 0, "RATE", "bytes a second for writing files again: 200MB/s"},
    {"full", 0, "", "write every file with a dead byte again"},
    {"pack", 0, "", "code what is smaller so, of all saves but the newest"},
    {"output", 'o', "FORMAT", "table or json", "table|json"},
    {"json", 0, "", "the same as -o json"},
    {"bytes", 0, "", "sizes as exact numbers of bytes"},
    {"timeout", 0, "SECONDS", "that a trainer has to answer (10)"},
    {"wait", 0, "SECONDS", "the same"},
};
constexpr FlagSpec kPolicyFlags[] = {
    {"set", 0, "POLICY", "make this the policy"},
    {"dry-run", 0, "", "with --set or --apply: change nothing"},
    {"apply", 0, "", "remove now what the policy does not keep"},
    {"branch", 'b', "NAME", "of this fork"},
    {"yes", 'y', "", "do not ask"},
    {"timeout", 0, "SECONDS", "that a trainer has to answer (10)"},
    {"wait", 0, "SECONDS", "the same"},
};
constexpr FlagSpec kDuFlags[] = {
    {"depth", 'd', "N", "of a step: subtrees down to N parts (1)"},
    {"free", 0, "", "what deleting these steps would free"},
};
constexpr FlagSpec kLogFlags[] = {
    {"branch", 'b', "NAME", "the steps of this fork"},
    {"graph", 0, "", "every branch, drawn, newest save first"},
    {"spark", 0, "", "a line of each metric beneath, as terminals get"},
    {"follow", 'f', "", "go on with each step as it is committed"},
    {"alert", 0, "EXPR", "with -f: say where EXPR holds for a new step"},
    {"stall", 0, "TIME", "with -f: say where no step comes for so long: 10m"},
    {"exec", 0, "CMD", "with -f: run CMD at each alert, without a shell"},
    {"until", 0, "STEP",
     "with -f: end once this step, or a later one, is there"},
};
constexpr FlagSpec kFindFlags[] = {
    {"keys", 'k', "GLOB", "only these; of several any", "", true},
    {"branch", 'b', "NAME", "the steps of this fork"},
};
constexpr FlagSpec kStatFlags[] = {
    {"rev", 0, "REV", "of this step; else of the latest"},
};
constexpr FlagSpec kHistFlags[] = {
    {"bins", 0, "N", "this many (20)"},
};
constexpr FlagSpec kHistoryFlags[] = {
    {"branch", 'b', "NAME", "the steps of this fork"},
    {"spark", 0, "", "a line of the values beneath, as terminals get"},
};
constexpr FlagSpec kDiffFlags[] = {
    {"values", 0, "", "read the arrays: by how much they differ"},
};
constexpr FlagSpec kExportFlags[] = {
    {"format", 0, "FORMAT",
     "safetensors, npz, npy, raw, torch, dcp, orbax; else by the name",
     "safetensors|npz|npy|raw|torch|dcp|orbax"},
    {"keys", 'k', "GLOB", "only these; of several any", "", true},
    {"strip", 0, "PREFIX", "names without this beginning: params"},
    {"rename", 0, "OLD=NEW", "another beginning of names", "", true},
    {"skip", 0, "", "leave out what the format cannot hold, and clashes"},
    {"force", 'f', "", "write over a file that is there"},
};
constexpr FlagSpec kHelpFlags[] = {
    {"man", 0, "", "as a manual page, for `man -l -`"},
    {"man-pages", 0, "DIR", "write the manual pages of all commands there"},
};
constexpr FlagSpec kVersionFlags[] = {
    {"json", 0, "", "for programs"},
};

constexpr Command kCommands[] = {
    {"log", "[RANGE]", "the steps, newest first",
     "RANGE is FIRST..LAST (both included), FIRST.., ..LAST or one step.\n"
     "NEW is what the save wrote, SHARED what it kept from earlier ones.\n\n"
     "--follow looks twice a second; it prints the last ten steps (--limit),\n"
     "then each new one, as a line or, with --json, an object. CMD of --exec\n"
     "is split at spaces, quotes keep words together; it finds CKPTREE_ALERT\n"
     "(the EXPR, or stall), CKPTREE_REV and CKPTREE_STORE in its environment,\n"
     "prints to standard error, and is waited for.\n\n"
     "  ckptree log -n 5\n"
     "  ckptree log 1000..2000 --where 'loss<2.8' --sort loss\n"
     "  ckptree log -o csv --columns step,loss,new_bytes\n"
     "  ckptree log --graph\n"
     "  ckptree log -f --alert 'nan>0 or loss>10' --exec 'notify-send NaN'\n"
     "  ckptree log --branch trial",
     kLogFlags, true, 0, 1, RunLog},
    {"ls", "[REV[:PREFIX]]", "the leaves of a step",
     "PREFIX is a key, a subtree, a glob (params/**/bias) or re:EXPRESSION.\n\n"
     "  ckptree ls\n"
     "  ckptree ls latest:params --stats --sort -l2\n"
     "  ckptree ls 1200 --where 'nan>0'\n"
     "  ckptree ls --depth 1",
     kLsFlags, true, 0, 1, RunLs},
    {"show", "[REV[:KEY]]", "all about a step or a leaf",
     "  ckptree show latest\n"
     "  ckptree show 1200:params/dense/kernel\n"
     "  ckptree show latest --parts\n\n"
     "TOOK of --parts is the time from when a rank came to the save until its\n"
     "part was built: what it came late by is not in it.",
     kShowFlags, false, 0, 1, RunShow},
    {"get", "REV:KEY[SLICE]", "values",
     "SLICE is NumPy's: [0:10, ::2, -1]. Only the chunks it touches are read.\n"
     "Text has the fewest digits that tell the numbers of a type apart; json,\n"
     "csv and tsv have those that read back as the same double.\n"
     "npy: types that NumPy lacks (bfloat16, float8, int4) are written as\n"
     "ml_dtypes does, \"<V2\" or \"|V1\", one element to a byte or two:\n"
     "numpy.load(f).view(ml_dtypes.bfloat16). Behind the head stands which:\n"
     "`import` and `diff` read it.\n\n"
     "  ckptree get 'latest:params/dense/kernel[0:4, -1]'\n"
     "  ckptree get best:loss:min:params/wte -o npy --out wte.npy",
     kGetFlags, false, 1, 1, RunGet},
    {"history", "KEY [RANGE]", "one leaf over the steps",
     "A row for each value that it had, newest first: from STEP TO the last\n"
     "listed step with the same one. Reads no arrays.\n\n"
     "  ckptree history params/dense/kernel\n"
     "  ckptree history lr 1000..2000 -o csv\n"
     "  ckptree history params/wte --where 'nan>0'",
     kHistoryFlags, true, 1, 2, RunHistory},
    {"diff", "REV[:KEY] [REV] | REV..REV",
     "the leaves in which two steps differ",
     "One REV: from the save before it. KEY is a leaf, a subtree or a glob.\n"
     "Reads no arrays but for --values. Exit code 1: they differ. RELATIVE is\n"
     "the L2 norm of the difference over that of BEFORE. Complex elements are\n"
     "|a-b| apart; NaN and Inf are counted in their parts.\n\n"
     "  ckptree diff latest\n"
     "  ckptree diff -2..-1\n"
     "  ckptree diff 1000 2000 --values --sort -relative\n"
     "  ckptree diff 1000 2000\n"
     "  ckptree diff 'latest~5:params/**' latest",
     kDiffFlags, true, 1, 2, RunDiff},
    {"blame",
     "[REV[:KEY]]",
     "which save gave each leaf its value",
     "LISTED: whether that step is still there. Frozen leaves stand out.\n\n"
     "  ckptree blame\n"
     "  ckptree blame latest:params --sort since\n"
     "  ckptree blame --where 'since<1000'",
     {},
     true,
     0,
     1,
     RunBlame},
    {"find", "EXPR [RANGE]", "where a condition held, first and last",
     "A row for each leaf for which EXPR held in any step of RANGE: the first\n"
     "and the last such step, their number, and its statistics in the first.\n"
     "EXPR is a condition (`ckptree help where`) over\n\n"
     "  of a leaf  key kind dtype shape bytes since count l2 mean std min max\n"
     "             nan inf zeros\n"
     "  of a step  step leaves new_bytes logical_bytes pinned tags note, and\n"
     "             its metrics by their names\n"
     "  before it  prev.l2, prev.loss and so on, of one step earlier; of the\n"
     "             first of a fork, of the step that it comes from\n\n"
     "Where it says nothing of leaves, the answer is one row, of steps. Reads\n"
     "no arrays. Exit code 1: nothing was found.\n\n"
     "In one step rows are printed as they are found (in a table once it has\n"
     "1024, or all), in several once LAST and STEPS are known: at the end, "
     "but\n"
     "of up to 256 steps of which each differs in half of its leaves or more,\n"
     "which are read side by side, some leaves at a time. With --columns\n"
     "key,first rows come as they are found.\n\n"
     "  ckptree find 'nan>0 or inf>0'\n"
     "  ckptree find 'l2>2*prev.l2' 1000.. -k 'params/**'\n"
     "  ckptree find 'zeros==count and shape[0]>1'\n"
     "  ckptree find 'loss<2' -b trial",
     kFindFlags, true, 1, 2, RunFind},
    {"stat", "[KEY...]", "the statistics of arrays",
     "KEY is an array, a subtree or a glob; nothing: all. Under the table:\n"
     "how many elements there are, of each type. Everywhere, but in `diff`,\n"
     "each complex element counts as two, its parts, as in NAN and ZEROS.\n"
     "Reads no arrays, but of files: L2 and STD are by the sums in their "
     "records. ~ before STD: few of its digits are\n"
     "right, as it is less than a millionth of the mean; ~?: none are, and\n"
     "CSV has nothing there, JSON null. An L2 of >1e154 or <1e-150: a double\n"
     "does not hold the squares. These marks are for people: CSV and JSON\n"
     "have the numbers alone. Of a file: `stat FILE` or `stat FILE:KEY`.\n\n"
     "  ckptree stat\n"
     "  ckptree stat 'params/**/kernel' --sort -l2\n"
     "  ckptree stat params opt --rev 1200 --where 'zeros>count/2'",
     kStatFlags, true, 0, 1 << 20, RunStat},
    {"hist", "KEY[SLICE] [REV...]", "the values of an array as bars",
     "Steps (the latest; up to 12) stand side by side, over the same bins.\n"
     "A bin has its lower edge, and the last has both, as of numpy.histogram.\n"
     "NaN and Inf are counted beneath. Reads the array.\n\n"
     "  ckptree hist params/dense/kernel\n"
     "  ckptree hist params/dense/bias 100 latest --bins 10\n"
     "  ckptree hist 'params/wte[0]' 1000..1500",
     kHistFlags, true, 1, 1 << 20, RunHist},
    {"verify", "[REV...]", "check the bytes against their digests",
     "Reads what the steps need: rows, arrays, headers and tables of\n"
     "segments, both copies of leaf records, and the journal; --deep also "
     "each\n"
     "file whole. Exit code 1 where anything is damaged.\n\n"
     "  ckptree verify --quick\n"
     "  ckptree verify latest",
     kVerifyFlags, true, 0, 1 << 20, RunVerify},
    {"tag", "[NAME [REV]]", "name a step, or list the names",
     "  ckptree tag\n"
     "  ckptree tag released 12000\n"
     "  ckptree tag --delete released",
     kTagFlags, true, 0, 2, RunTag},
    {"pin", "REV...", "keep steps from being removed",
     "  ckptree pin best:loss:min\n"
     "  ckptree pin --delete 1200",
     kPinFlags, false, 1, 1 << 20, RunPin},
    {"rm", "REV...", "remove steps",
     "Bytes that other steps share stay; the rest is freed at once, but for\n"
     "what lies in files with bytes that stay: `ckptree gc` writes such files\n"
     "again. Pinned steps are refused, tagged ones but for --tagged. A REV may "
     "be a\n"
     "range.\n\n"
     "  ckptree rm 0..900 --dry-run\n"
     "  ckptree rm 1000 -y\n"
     "  ckptree rm trial/1000..2000",
     kRmFlags, false, 1, 1 << 20, RunRm},
    {"fork", "[REV]", "begin a new branch at a step, or list the branches",
     "A branch is a series of saves. A new one goes on from REV (the latest "
     "step)\n"
     "and shares with it what stays the same; its steps have numbers of their\n"
     "own and are called BRANCH/NUMBER everywhere. --drop removes a branch "
     "with "
     "all\n"
     "its steps.\n\n"
     "  ckptree fork\n"
     "  ckptree fork 1200 --branch trial\n"
     "  ckptree log --branch trial\n"
     "  ckptree fork --drop trial",
     kForkFlags, true, 0, 1, RunFork},
    {"du", "[REV...]", "what the steps cost",
     "SIZE is of its values, NEW of those that the save wrote, both before\n"
     "they are coded. UNIQUE of these go when that step alone is removed,\n"
     "the rest is SHARED with others. FREES is what the disk gets back: less\n"
     "where arrays are coded, and more than values: the records that say\n"
     "where they are; of small leaves of one save, which lie together, also\n"
     "those that no step needs; what removed steps left that this one alone\n"
     "holds. So of many tiny leaves UNIQUE may be too much here. With one\n"
     "REV: its subtrees, where it is exact. With --free and any number of\n"
     "REVs, ranges too: what removing them would free.\n\n"
     "  ckptree du\n"
     "  ckptree du latest --depth 2 --sort -unique\n"
     "  ckptree du --free 0..900",
     kDuFlags, true, 0, 1 << 20, RunDu},
    {"gc", "", "free the bytes of removed steps now",
     "Files of which nothing is needed any more are removed. Files of which a\n"
     "quarter or more is dead (--full: anything) are written again without "
     "it,\n"
     "at most --budget bytes a second. A trainer that has the store open does\n"
     "this in the background; --dry-run works beside it. Ctrl-C ends it at "
     "any\n"
     "moment: what was freed stays so. What needs room that a full disk does\n"
     "not have is left out, and said. Exit code 1: damaged files were left\n"
     "alone.\n\n"
     "  ckptree gc --dry-run\n"
     "  ckptree gc --full --budget 200MB/s",
     kGcFlags, false, 0, 0, RunGc},
    {"policy", "", "which steps live, and why",
     "Shows the policy, what it keeps and why, and what removing the rest\n"
     "would free. Steps that a policy does not keep leave with the next save.\n"
     "Pinned and tagged ones stay. A POLICY is one rule or several, joined by\n"
     "| (what any of them keeps) and & (what both keep):\n\n"
     "  latest(3)            the last 3\n"
     "  every(1000)          steps that 1000 divides; last=5: of them the last "
     "5\n"
     "  every(1000, spaced)  the first, and those 1000 or more after the last "
     "one\n"
     "  every(2h)            one each 2 hours\n"
     "  closest(1000)        the step nearest to each multiple of 1000\n"
     "  within(7d)           all of the last 7 days\n"
     "  best(loss, min, 2)   the 2 with the lowest loss, and those without "
     "any;\n"
     "                       not these with unmeasured=drop\n"
     "  healthy              the last one without NaN and Inf; after & all "
     "such\n"
     "  log(8)               dense near now: about 8 for each doubling of the "
     "age\n"
     "  budget(20GB)         the newest that fit\n"
     "  steps(0, 5000)       these\n"
     "  all                  every one\n\n"
     "  ckptree policy\n"
     "  ckptree policy --set 'latest(3) | every(1000)' --dry-run\n"
     "  ckptree policy --set 'latest(3) | best(loss, min, 2) & healthy'\n"
     "  ckptree policy --apply",
     kPolicyFlags, true, 0, 0, RunPolicy},
    {"export", "REV[:PREFIX] FILE", "write arrays to a file of another kind",
     "FILE ends with .safetensors, .npz or, for PyTorch, .pt; --format npy,\n"
     "raw, dcp or orbax makes a folder. REV may be a file of arrays. Keys\n"
     "become names joined by dots; arrays only. What NumPy has no type for is\n"
     "written as `ckptree get -o npy` does. Files of PyTorch and folders of "
     "DCP\n"
     "and Orbax are written through Python, which CKPTREE_PYTHON names, else\n"
     "python3. Whole states go to PyTorch by "
     "ckptree.torch.export_checkpoint().\n"
     "\n"
     "  ckptree export latest:params model.safetensors --strip params\n"
     "  ckptree export latest:params arrays --format npy\n"
     "  ckptree export 1200 all.safetensors --skip --rename opt=optimizer",
     kExportFlags, false, 2, 2, RunExport},
    {"completion",
     "bash|zsh|fish",
     "a script that completes commands and keys",
     "  ckptree completion bash > "
     "~/.local/share/bash-completion/completions/ckptree\n"
     "  ckptree completion zsh  > a file _ckptree in a folder of $fpath\n"
     "  ckptree completion fish > ~/.config/fish/completions/ckptree.fish",
     {},
     false,
     1,
     1,
     RunCompletion},
    {"help", "[COMMAND|exit-codes|json|rev|where]",
     "this list, or all about one command", "", kHelpFlags, false, 0, 1,
     RunHelp},
    {"version", "", "the version of ckptree and of the format", "",
     kVersionFlags, false, 0, 0, RunVersion},
    {"__complete", "", "", "", {}, false, 0, 1 << 20, RunComplete, true},
};

void PrintError(const absl::Status& status) {
  std::fputs(ErrorText(status).c_str(), stderr);
}

// Flushes; the exit code, or what the failed output means.
int Finish(ByteSink* out, Pager* pager, int code) {
  const absl::Status flushed = out->Flush();
  if (pager->started()) {
    // Who leaves it early has seen enough.
    pager->Wait();
    return code;
  }
  if (out->broken_pipe()) {
    // As every other program ends whose reader left.
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  if (flushed.ok()) return code;
  PrintError(flushed);
  return ExitCodeOf(flushed);
}

// What a program reads, and what does not end, is never paged.
bool MayPage(std::string_view name, const std::vector<std::string>& words) {
  if (name == "__complete" || name == "completion") return false;
  return std::none_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "--no-pager" || word == "-f" || word == "--follow";
  });
}

absl::Status UnknownCommand(std::string_view name, std::string_view in_front) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    if (!command.hidden) names.emplace_back(command.name);
  }
  const std::string nearest = Nearest(name, names);
  if (!in_front.empty() && nearest.empty()) {
    return WithHint(
        absl::InvalidArgumentError(
            absl::StrFormat("`%s` stands in front of `%s`, which is no command",
                            Escape(in_front), Escape(name))),
        "in front of the command stand -C, --color, -q and --no-pager; what "
        "is of a command stands behind it, and `ckptree help COMMAND` lists "
        "it");
  }
  return WithHint(
      absl::InvalidArgumentError(
          nearest.empty()
              ? absl::StrFormat("unknown command `%s`", Escape(name))
              : absl::StrFormat("unknown command `%s`. Did you mean `%s`?",
                                Escape(name), nearest)),
      "`ckptree help` lists the commands");
}

// Where memory is not to be had that is an error as any other.
absl::StatusOr<int> RunWithin(const Command& command, Session& session) {
  try {
    return command.run(session);
  } catch (const std::bad_alloc&) {
    return NotEnoughMemory();
  } catch (const std::length_error&) {
    return NotEnoughMemory();
  }
}

absl::StatusOr<int> Run(const Command& command, std::vector<std::string> words,
                        ByteSink* out) {
  if (command.table) ExpandLimit(FlagsOf(command), &words);
  absl::StatusOr<Arguments> arguments =
      Arguments::Parse(FlagsOf(command), std::move(words));
  if (!arguments.ok()) return arguments.status();
  if (arguments->Has("help")) {
    out->Write(HelpText(command));
    return kExitOk;
  }
  // What is completed may be empty yet.
  if (!command.hidden) {
    CKPTREE_RETURN_IF_ERROR(arguments->CheckNoEmptyWord(command.name));
  }
  const absl::Status fits =
      CheckWords(command.name, command.words, command.min_words,
                 command.max_words, *arguments);
  if (!fits.ok()) {
    return OrWhatWasMeant(command.name, command.words, *arguments, fits);
  }
  Session session(*std::move(arguments), out);
  for (const std::string_view over_steps :
       {"backup", "blame", "copy", "diff", "du", "find", "hist", "history",
        "report", "sql", "stat", "verify"}) {
    if (command.name == over_steps) session.HoldListed();
  }
  absl::StatusOr<int> code = RunWithin(command, session);
  if (code.ok()) return code;
  if (session.ByAddress()) return AtAddress(code.status());
  return OrWhatWasMeant(command.name, command.words, session.arguments(),
                        code.status());
}

}  // namespace

std::span<const Command> Commands() {
  // One list, with those of another file behind `export`.
  static const std::vector<Command> all = [] {
    std::vector<Command> commands;
    for (const Command& command : kCommands) {
      commands.push_back(command);
      if (command.name != "export") continue;
      const std::span<const Command> more = ExchangeCommands();
      commands.insert(commands.end(), more.begin(), more.end());
    }
    return commands;
  }();
  return all;
}

const Command* FindCommand(std::string_view name) {
  name = NameOfAlias(name);
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::vector<FlagSpec> FlagsOf(const Command& command) {
  std::vector<FlagSpec> flags(command.flags.begin(), command.flags.end());
  if (command.table) {
    flags.insert(flags.end(), TableFlags().begin(), TableFlags().end());
  }
  flags.insert(flags.end(), std::begin(kEveryFlags), std::end(kEveryFlags));
  return flags;
}

int RunCommandLine(std::vector<std::string> words) {
  HandleSignals();
  const std::string in_front = FlagInFront(words, kEveryFlags);
  const std::string name = TakeCommand(&words);
  Pager pager(MayPage(name, words));
  ByteSink out(STDOUT_FILENO, [&pager](std::string_view text) {
    return pager.DescriptorFor(text);
  });
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    PrintError(name.empty()
                   ? WithHint(absl::InvalidArgumentError("no command given"),
                              "`ckptree help` lists the commands")
                   : UnknownCommand(name, in_front));
    return kExitFailure;
  }
  absl::StatusOr<int> code = Run(*command, std::move(words), &out);
  if (code.ok()) return Finish(&out, &pager, *code);

  absl::Status status = code.status();
  if (absl::IsInvalidArgument(status)) {
    status = WithHint(
        status, absl::StrFormat("`ckptree help %s` shows how", command->name));
  }
  // What was printed before the failure stays in front of it.
  const int failure = Finish(&out, &pager, ExitCodeOf(status));
  if (Interrupted()) return ExitCodeOfInterrupt();
  PrintError(status);
  return failure;
}

}  // namespace ckptree::tools
