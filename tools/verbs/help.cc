// SPDX-License-Identifier: Apache-2.0

// `ckptree help` and `ckptree version`.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "ckptree/version.h"
#include "tools/line/command.h"
#include "tools/output/byte_sink.h"
#include "tools/output/failure.h"
#include "tools/output/new_file.h"

namespace ckptree::tools {
namespace {

constexpr std::string_view kExitCodes =
    "0    done\n"
    "1    a negative answer, no failure: verify, repair or gc met damage,\n"
    "     recover, repair or copy left something out, doctor found a problem,\n"
    "     diff a difference, find nothing\n"
    "2    wrong usage, or it did not work; an object store does not answer\n"
    "3    no such store, step or key\n"
    "4    another process has the store, and nothing was changed\n"
    "5    damaged data of a store, met by any command but these\n"
    "6    a trainer was asked, and did not say whether it was done\n"
    "130  interrupted (143: by SIGTERM, 129: by SIGHUP)\n";

// Each has its file in tools/schemas; a test compares.
constexpr std::pair<std::string_view, std::string_view> kDocuments[] = {
    {"ckptree.log/1", "ckptree log: the steps, newest first"},
    {"ckptree.ls/1", "ckptree ls: the leaves of a step"},
    {"ckptree.ls-folded/1", "ckptree ls --depth: subtrees of a step"},
    {"ckptree.step/1", "ckptree show REV: all about a step"},
    {"ckptree.leaf/2", "ckptree show REV:KEY: all about leaves"},
    {"ckptree.parts/1", "ckptree show REV --parts: what each rank saved"},
    {"ckptree.get/2",
     "ckptree get -o json: values; data is nested as the shape is"},
    {"ckptree.file/1", "ckptree show FILE: a file of arrays, or one of them"},
    {"ckptree.file-get/1", "ckptree get FILE:KEY -o json: values of a file"},
    {"ckptree.file-ls/1", "ckptree ls FILE: the arrays of a file"},
    {"ckptree.file-stat/1",
     "ckptree stat FILE: the statistics of arrays of a file"},
    {"ckptree.history/1", "ckptree history: each value that a leaf had"},
    {"ckptree.diff/1", "ckptree diff: the leaves in which two steps differ"},
    {"ckptree.blame/1", "ckptree blame: which save gave each leaf its value"},
    {"ckptree.find/1", "ckptree find: where a condition held"},
    {"ckptree.stat/1", "ckptree stat: the statistics of arrays"},
    {"ckptree.hist/1",
     "ckptree hist: counts of values by bins; count.REV for each step"},
    {"ckptree.verify/1", "ckptree verify: what a check found"},
    {"ckptree.tag/1", "ckptree tag: the tags"},
    {"ckptree.fork/1", "ckptree fork: the branches, the main one first"},
    {"ckptree.du/1", "ckptree du: what each step costs"},
    {"ckptree.du-subtrees/1",
     "ckptree du REV: what the subtrees of a step cost"},
    {"ckptree.du-free/1", "ckptree du --free: what removing steps would free"},
    {"ckptree.gc/2", "ckptree gc: what a collection did"},
    {"ckptree.gc-dry-run/1", "ckptree gc --dry-run: what there is to free"},
    {"ckptree.policy/1", "ckptree policy: which steps live, and why"},
    {"ckptree.import/1", "ckptree import: what came of each file"},
    {"ckptree.copy/1", "ckptree copy, backup: what came of each step"},
    {"ckptree.doctor/1", "ckptree doctor: what was looked at"},
    {"ckptree.sql/1", "ckptree sql: the rows of a query, by its columns"},
    {"ckptree.recover/1", "ckptree recover: what came of each step"},
    {"ckptree.repair/1", "ckptree repair: what came of each step"},
    {"ckptree.version/1", "ckptree version"},
    {"ckptree.rows/1", "any of these with --columns: rows of them alone"},
};

std::string JsonHelp() {
  std::string text =
      "With --json (or -o json) a verb prints one document. Its member\n"
      "\"schema\" says which shape it has; a shape that changes so that a\n"
      "reader would notice gets another number. The JSON Schema of each is in\n"
      "share/ckptree/schemas, in the sources in tools/schemas. With "
      "--columns\n"
      "it is ckptree.rows/1: the rows have those columns, each as the shape\n"
      "in \"of\" says; -o ndjson prints the rows alone, an object a line, as\n"
      "`ckptree log -f` does with --json, too.\n"
      "Numbers of every type read back as the same double, also from csv and\n"
      "tsv. NaN, Infinity and -Infinity are texts. UTF-8 is exact here; csv\n"
      "and tsv write control characters as \\x1b, so that a terminal is safe;\n"
      "line ends and tabs csv has as they are, in quotes, and tsv as \\n and\n"
      "\\t. A long list is printed as it is read: where that fails on the way\n"
      "the document is not closed, and the exit code is that of the error.\n\n";
  for (const auto& [id, what] : kDocuments) {
    absl::StrAppendFormat(&text, "%-24s %s\n", id, what);
  }
  return text;
}

constexpr std::string_view kRev =
    "Which step (REV):\n"
    "  1200           the step of that number\n"
    "  latest         the one with the highest number\n"
    "  latest~2       two saves earlier; works behind each of these\n"
    "  best:loss:min      the lowest loss; best:acc:max the highest acc\n"
    "  healthy        the latest without NaN and Inf, in arrays and metrics\n"
    "  @released      the step with that tag\n"
    "  trial/1200     on the fork `trial`; also trial/latest, "
    "trial/best:loss:min\n"
    "  1000..2000     from one to the other, both included\n"
    "  -5..-1         the same, counted from the end: -1 is the latest\n\n"
    "Which leaf (KEY), as `ckptree ls` prints it:\n"
    "  params/dense/kernel, opt/[0]/.mu, \"odd name\"/x\n"
    "  ['params']['dense']['kernel']   as jax.tree_util.keystr writes it\n"
    "  params/*/bias, params/**        globs: * in one part, ** any parts; "
    "what\n"
    "                                  matches a subtree takes all below it\n"
    "  re:bias$                        a regular expression\n\n"
    "Which elements (SLICE): NumPy's, [0:10, ::2, -1]. \"[3]\" at the end is\n"
    "first tried as part of the key.\n";

constexpr std::string_view kWhere =
    "Which rows (--where, `find`), as a condition over the columns:\n"
    "  loss<2.8                        < <= > >= == (or =) !=\n"
    "  loss<2 and not (nan>0 or pinned)  also && || !; `not` binds closest,\n"
    "                                  `or` least\n"
    "  key~'params/**'  key!~'re:bias$'  matches a glob or an expression\n"
    "  min==max  l2>2*mean             columns on both sides, + - * /\n"
    "  shape[0]==50257  shape==768     a member of a list; any of them\n"
    "  bytes>4MiB  bytes>1.5GB         units of 1024 and of 1000\n"
    "  dtype==bfloat16  tags=='a b'    a text; in quotes where it is no word\n"
    "  `val/loss`<2                    a column whose name is no word\n"
    "  metrics.nan<1                   a metric that is called as a column\n"
    "  loss==nan  loss<inf             on the right, alone, the numbers\n"
    "  committed>'2026-11-28 23:00'    a time: a date, which is its first\n"
    "                                  moment, or a date, T or a space, and\n"
    "                                  12:30, 12:30:05 or 12:30:05.25; UTC, "
    "as\n"
    "                                  Z says, or with an offset: +02:00\n\n"
    "What has no value is unequal to everything, and no other comparison with "
    "it\n"
    "holds. Of several --where all must hold.\n";

}  // namespace

std::string Overview() {
  std::string text =
      "ckptree: what is in a checkpoint store\n\n"
      "  ckptree [-C STORE] COMMAND [REV[:KEY[SLICE]]] [flags]\n\n";
  for (const Command& command : Commands()) {
    if (command.hidden) continue;
    absl::StrAppendFormat(&text, "  %-11s %s\n", command.name, command.summary);
  }
  text +=
      "\n`ckptree help COMMAND` says more; so do `help rev`, `help where`,\n"
      "`help json` and `help exit-codes`.\n"
      "\n  ckptree log -n 5\n"
      "  ckptree ls latest:params --stats\n"
      "  ckptree get 'latest:params/dense/kernel[0:3]'\n";
  return text;
}

std::string HelpText(const Command& command) {
  std::string text = absl::StrFormat(
      "ckptree %s%s%s [flags]: %s\n", command.name,
      command.words.empty() ? "" : " ", command.words, command.summary);
  if (!command.details.empty()) {
    absl::StrAppendFormat(&text, "\n%s\n", command.details);
  }
  text += "\nFlags:\n";
  for (const FlagSpec& flag : FlagsOf(command)) {
    std::string name = flag.letter == 0 ? std::string("    ")
                                        : absl::StrFormat("-%c, ", flag.letter);
    absl::StrAppendFormat(&name, "--%s", flag.name);
    if (!flag.value.empty()) absl::StrAppendFormat(&name, " %s", flag.value);
    absl::StrAppendFormat(&text, "  %-24s %s\n", name, flag.help);
  }
  text += "\n`ckptree help rev` explains REV, KEY and SLICE.\n";
  return text;
}

namespace {

// ckptree.1, and ckptree-VERB.1 of each command.
absl::Status WriteManPages(const std::string& folder) {
  for (std::size_t i = 0; i <= Commands().size(); ++i) {
    const Command* command = i == 0 ? nullptr : &Commands()[i - 1];
    if (command != nullptr && command->hidden) continue;
    const std::string name = command == nullptr
                                 ? std::string("ckptree")
                                 : absl::StrFormat("ckptree-%s", command->name);
    absl::StatusOr<NewFile> file =
        NewFile::Create(absl::StrFormat("%s/%s.1", folder, name));
    if (!file.ok()) return file.status();
    ByteSink sink(file->descriptor());
    sink.Write(ManText(command));
    if (absl::Status status = sink.Flush(); !status.ok()) return status;
    if (absl::Status status = file->Commit(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> RunHelp(Session& session) {
  if (const auto folder = session.arguments().Find("man-pages")) {
    if (absl::Status status = WriteManPages(*folder); !status.ok()) {
      return WithHint(status, "name a folder that is there");
    }
    return kExitOk;
  }
  if (session.arguments().Has("man")) {
    const Command* command = nullptr;
    if (!session.words().empty()) {
      command = FindCommand(session.words()[0]);
      if (command == nullptr || command->hidden) {
        return WithHint(
            absl::InvalidArgumentError(absl::StrFormat(
                "there is no manual page on `%s`", session.words()[0])),
            "`ckptree help` lists the commands");
      }
    }
    session.out().Write(ManText(command));
    if (session.terminal().is_terminal) {
      session.Note("this is what `man` reads: pipe it into `man -l -`");
    }
    return kExitOk;
  }
  if (session.words().empty()) {
    session.out().Write(Overview());
    return kExitOk;
  }
  const std::string& topic = session.words()[0];
  if (topic == "exit-codes") {
    session.out().Write(kExitCodes);
  } else if (topic == "json") {
    session.out().Write(JsonHelp());
  } else if (topic == "rev") {
    session.out().Write(kRev);
  } else if (topic == "where") {
    session.out().Write(kWhere);
  } else if (const Command* command = FindCommand(topic);
             command != nullptr && !command->hidden) {
    session.out().Write(HelpText(*command));
  } else {
    return WithHint(absl::InvalidArgumentError(
                        absl::StrFormat("there is no help on `%s`", topic)),
                    "`ckptree help` lists the commands; other topics are rev, "
                    "where, json and exit-codes");
  }
  return kExitOk;
}

absl::StatusOr<int> RunVersion(Session& session) {
  if (session.arguments().Has("json")) {
    const Json document = {{"schema", "ckptree.version/1"},
                           {"version", std::string(Version())},
                           {"format", FormatNumber()}};
    session.out().Write(JsonText(document, true) + "\n");
  } else {
    session.out().Write(
        absl::StrFormat("ckptree %s (format %d)\n", Version(), FormatNumber()));
  }
  return kExitOk;
}

}  // namespace ckptree::tools
