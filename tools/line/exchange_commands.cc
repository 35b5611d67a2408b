// SPDX-License-Identifier: Apache-2.0

// The rows of the table of commands for what goes in and out of stores.

#include <span>

#include "tools/line/command.h"

namespace ckptree::tools {
namespace {

constexpr FlagSpec kCopyFlags[] = {
    {"overwrite", 0, "", "replace steps with other values, move tags"},
    {"dry-run", 0, "", "only say what would be copied"},
    {"verify-all", 0, "", "read back also what was there already"},
    {"wait", 0, "SECONDS", "wait for a program that writes to DST"},
};
constexpr FlagSpec kBackupFlags[] = {
    {"dry-run", 0, "", "only say what would be copied"},
    {"verify-all", 0, "", "read back also what was there already"},
    {"wait", 0, "SECONDS", "wait for a program that writes to DST"},
};

constexpr Command kExchange[] = {
    {"copy", "SRC DST [REV...]", "save steps of a store into another",
     "SRC and DST are stores; DST is made where it is not there. REV is a "
     "step\n"
     "or a range of SRC; without one: all steps, of all branches, and the\n"
     "metadata of the run. Tags, pins and branches come with their steps;\n"
     "policies do not. What steps share in SRC they share in DST.\n\n"
     "Steps that DST has with the same values are left out; one of the same\n"
     "number with others is refused before anything is copied. Every byte is\n"
     "compared with its digest, and what was copied is read back. SRC may "
     "have\n"
     "a live trainer. Each step is one commit: after Ctrl-C or a kill the "
     "same\n"
     "command goes on. Exit code 1: something was left out, and is listed. 5:\n"
     "it is damaged in SRC.\n\n"
     "  ckptree copy /runs/lm /archive/lm\n"
     "  ckptree copy /runs/lm /archive/lm best:loss:min 1000..2000\n"
     "  ckptree copy /runs/lm /archive/lm --dry-run",
     kCopyFlags, true, 2, 1 << 20, RunCopy},
    {"backup", "DST", "save all that is new in the store into another",
     "The same as `ckptree copy STORE DST --overwrite`: after it DST has all\n"
     "steps, tags, pins, branches and metadata of the store, and what was\n"
     "removed from the store since the last backup is still there.\n\n"
     "  ckptree -C /runs/lm backup /archive/lm\n"
     "  ckptree backup /archive/lm --verify-all",
     kBackupFlags, true, 1, 1, RunBackup},
};

}  // namespace

std::span<const Command> ExchangeCommands() { return kExchange; }

}  // namespace ckptree::tools
