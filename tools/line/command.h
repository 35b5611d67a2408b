// SPDX-License-Identifier: Apache-2.0

// The commands of `ckptree`: one table drives parsing, help and completion.

#ifndef CKPTREE_TOOLS_LINE_COMMAND_H_
#define CKPTREE_TOOLS_LINE_COMMAND_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/line/arguments.h"
#include "tools/line/session.h"

namespace ckptree::tools {

struct Command {
  std::string_view name;
  std::string_view words;    // "[REV[:PREFIX]]"
  std::string_view summary;  // One line.
  std::string_view details;  // For `help NAME`; may be empty.
  std::span<const FlagSpec> flags;
  bool table = false;  // Understands TableFlags().
  int min_words = 0;
  int max_words = 0;
  absl::StatusOr<int> (*run)(Session&) = nullptr;  // Returns the exit code.
  bool hidden = false;
};

std::span<const Command> Commands();
// Those that take from other stores, files and programs, and give to them.
std::span<const Command> ExchangeCommands();
// By its name, or a word of git's for it.
const Command* FindCommand(std::string_view name);
// The command that `name` is another word for; else `name`.
std::string_view NameOfAlias(std::string_view name);

// Its own flags, those of tables, and those of every command.
std::vector<FlagSpec> FlagsOf(const Command& command);

// Runs a command line without the program's name; prints results to standard
// output, everything else to standard error. Returns the exit code.
int RunCommandLine(std::vector<std::string> words);

// The commands, each in its own file.
absl::StatusOr<int> RunLog(Session& session);
absl::StatusOr<int> RunLs(Session& session);
absl::StatusOr<int> RunShow(Session& session);
absl::StatusOr<int> RunGet(Session& session);
absl::StatusOr<int> RunHistory(Session& session);
absl::StatusOr<int> RunDiff(Session& session);
absl::StatusOr<int> RunBlame(Session& session);
absl::StatusOr<int> RunFind(Session& session);

absl::StatusOr<int> RunStat(Session& session);
absl::StatusOr<int> RunHist(Session& session);
absl::StatusOr<int> RunVerify(Session& session);
absl::StatusOr<int> RunTag(Session& session);
absl::StatusOr<int> RunPin(Session& session);
absl::StatusOr<int> RunRm(Session& session);
absl::StatusOr<int> RunFork(Session& session);
absl::StatusOr<int> RunDu(Session& session);
absl::StatusOr<int> RunGc(Session& session);
absl::StatusOr<int> RunPolicy(Session& session);
absl::StatusOr<int> RunExport(Session& session);
absl::StatusOr<int> RunReport(Session& session);
absl::StatusOr<int> RunServe(Session& session);
absl::StatusOr<int> RunCopy(Session& session);
absl::StatusOr<int> RunBackup(Session& session);
absl::StatusOr<int> RunImport(Session& session);
absl::StatusOr<int> RunDoctor(Session& session);
absl::StatusOr<int> RunSql(Session& session);
absl::StatusOr<int> RunDemo(Session& session);
absl::StatusOr<int> RunRecover(Session& session);
absl::StatusOr<int> RunRepair(Session& session);
absl::StatusOr<int> RunCompletion(Session& session);
absl::StatusOr<int> RunComplete(Session& session);
absl::StatusOr<int> RunHelp(Session& session);
absl::StatusOr<int> RunVersion(Session& session);

// What `ckptree help` prints, without a command and with one.
std::string Overview();
std::string HelpText(const Command& command);
// The same as a manual page; of null: of the program.
std::string ManText(const Command* command);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_COMMAND_H_
