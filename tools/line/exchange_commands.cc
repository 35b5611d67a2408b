// SPDX-License-Identifier: Apache-2.0

// The rows of the table of commands for what goes in and out of stores, and for
// pages of them.

#include <span>
#include <string_view>

#include "tools/line/command.h"

namespace ckptree::tools {
namespace {

constexpr FlagSpec kCopyFlags[] = {
    {"overwrite", 0, "", "replace steps with other values, move tags"},
    {"dry-run", 0, "", "only say what would be copied"},
    {"verify-all", 0, "", "read back also what was there already"},
    {"coding", 0, "NAME",
     "of arrays in DST: none, planes or auto; else planes at an address",
     "none|planes|auto"},
    {"wait", 0, "SECONDS", "wait for a program that writes to DST"},
    {"take-over", 0, "", "of an address: end whoever wrote there last"},
};
constexpr FlagSpec kBackupFlags[] = {
    {"dry-run", 0, "", "only say what would be copied"},
    {"verify-all", 0, "", "read back also what was there already"},
    {"coding", 0, "NAME",
     "of arrays in DST: none, planes or auto; else planes at an address",
     "none|planes|auto"},
    {"wait", 0, "SECONDS", "wait for a program that writes to DST"},
    {"take-over", 0, "", "of an address: end whoever wrote there last"},
};

constexpr FlagSpec kImportFlags[] = {
    {"step", 0, "N", "its number; of a folder of several: only this one"},
    {"branch", 'b', "NAME", "save to this fork"},
    {"under", 0, "KEY", "put the arrays there: params"},
    {"new", 0, "", "leave out steps that are there"},
    {"skip", 0, "", "leave out arrays and metadata that cannot be saved"},
    {"wait", 0, "SECONDS", "wait for a trainer that has the store"},
};

constexpr FlagSpec kReportFlags[] = {
    {"out", 'o', "FILE", "write there; the file appears whole or not at all"},
    {"branch", 'b', "NAME", "the steps of this fork"},
    {"keys", 'k', "GLOB", "only these leaves; of several any", "", true},
    {"hist", 0, "GLOB", "read these arrays: histograms over steps", "", true},
    {"leaf-steps", 0, "N", "look at the leaves of so many steps"},
};
constexpr FlagSpec kServeFlags[] = {
    {"port", 0, "N", "this port (8642); 0: any that is free"},
    {"host", 0, "ADDRESS", "listen there; else only this machine can ask"},
    {"token-file", 0, "FILE", "its first line is the token; else a new one"},
    {"branch", 'b', "NAME", "the steps of this fork"},
    {"keys", 'k', "GLOB", "only these leaves; of several any", "", true},
    {"hist", 0, "GLOB", "read these arrays: histograms over steps", "", true},
};

constexpr FlagSpec kRepairFlags[] = {
    {"yes", 'y', "", "do it; without this nothing is changed"},
    {"dry-run", 0, "", "change nothing, as without --yes"},
    {"wait", 0, "SECONDS", "wait for a trainer that has the store"},
};

constexpr Command kExchange[] = {
    {"report", "[RANGE]", "one HTML file that shows the run",
     "Charts of steps, metrics and leaves, a table of leaves, the diff of any\n"
     "two steps, and what each subtree costs: open it in a browser, mail it.\n"
     "It fetches nothing and needs no server. From records alone, but for\n"
     "--hist. Where leaves times steps are many, the leaves are those of\n"
     "some steps (--leaf-steps): the first, the newest, and what has a tag,\n"
     "a pin, NaN or Inf before others.\n\n"
     "  ckptree report -o run.html\n"
     "  ckptree report 1000.. -o run.html --hist 'params/**/kernel'\n"
     "  ckptree report -b trial -k 'params/**' > trial.html",
     kReportFlags, false, 0, 1, RunReport},
    {"serve", "", "the report, live, and metrics for Prometheus",
     "Prints the address of the page, which shows each new step as it is\n"
     "committed; /metrics is for Prometheus, with the token as its bearer\n"
     "token. It reads this store and nothing else, and answers who has the\n"
     "token. What it sends is not encrypted: reach it from elsewhere through\n"
     "a tunnel, as `ssh -L 8642:127.0.0.1:8642`. Ctrl-C ends it.\n\n"
     "  ckptree serve\n"
     "  ckptree serve --port 0 -k 'params/**'\n"
     "  ckptree serve --token-file /run/secrets/ckptree",
     kServeFlags, false, 0, 0, RunServe},
    {"import", "FILE...", "save files of arrays as steps",
     "FILE is a .safetensors, .npz, .npy or .gguf file, the index of several\n"
     "(.safetensors.index.json), a folder of one of these, or a folder of\n"
     "folders whose names end with their steps: checkpoint-500. The store is\n"
     "made where there is none. Names of arrays become keys: `layers.0.w` is\n"
     "one key, `params/w` two. What a file says of itself is the step's "
     "custom\n"
     "metadata. Quantised types of GGUF are not read.\n\n"
     "Files of PyTorch (.pt, .pth, .bin, .ckpt), folders of DCP and of Orbax,\n"
     "and folders that have any of these are read through Python, which\n"
     "CKPTREE_PYTHON names, else python3: whole states, with optimizers and\n"
     "scalars. Of several steps those that are there are left as they are;\n"
     "--under names the item of a state of PyTorch. One checkpoint of Orbax\n"
     "whose name has no number is step 0.\n\n"
     "  ckptree -C /runs/lm import model.safetensors --step 0\n"
     "  ckptree -C /runs/lm import /old/output --new\n"
     "  ckptree -C /runs/lm import step_100.npz step_200.npz --under params",
     kImportFlags, true, 1, 1 << 20, RunImport},
    {"copy", "SRC DST [REV...]", "save steps of a store into another",
     "SRC and DST are stores, or addresses of such (s3://bucket/run); DST is\n"
     "made where it is not there, and one in an object store by way of a\n"
     "folder in the cache, where all of it has to have room. REV is a step\n"
     "or a range of SRC; without one: all steps, of all branches, and the\n"
     "metadata of the run. Tags, pins and branches come with their steps;\n"
     "policies do not. What steps share in SRC they share in DST, but for\n"
     "steps of several branches whose origin DST does not get, as of one that\n"
     "was removed: each of these branches begins there with all of its "
     "bytes.\n\n"
     "Steps that DST has with the same values are left out; one of the same\n"
     "number with others is refused before anything is copied. Every byte is\n"
     "compared with its digest, and what was copied is read back. SRC may "
     "have\n"
     "a live trainer. Each step is one commit: after Ctrl-C or a kill the "
     "same\n"
     "command goes on. --take-over is for an address where another writer may\n"
     "be alive. Exit code 1: something was left out, and is listed. 2: it is\n"
     "in the remote of SRC, which does not answer. 5: it is damaged in SRC.\n\n"
     "  ckptree copy /runs/lm /archive/lm\n"
     "  ckptree copy /runs/lm /archive/lm --coding planes\n"
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
    {"demo",
     "DIR",
     "make a small store to try everything on",
     "Twenty steps of a small model with NaN in one of them, a frozen layer,\n"
     "tags, a pin and a branch; the same on every machine. DIR must not be\n"
     "there, or be empty.\n\n"
     "  ckptree demo /tmp/demo",
     {},
     false,
     1,
     1,
     RunDemo},
    {"doctor",
     "",
     "what is, or soon will be, wrong around the store",
     "Looks at the store, the free space and how long it lasts at the rate of\n"
     "the last saves, the file system, what an fsync takes, the limit of open\n"
     "files, policies, leftovers of killed programs, clock and versions; and\n"
     "asks the object store that a directory is shipped to, for some seconds:\n"
     "whether it answers, may be written (two scratch objects, for moments),\n"
     "and has all. Each problem names what to do; that an address cannot be\n"
     "read is one. Exit code 1: there is a problem.\n\n"
     "  ckptree doctor\n"
     "  ckptree doctor --json",
     {},
     true,
     0,
     0,
     RunDoctor},
    {"sql",
     "QUERY",
     "ask in SQL about steps, leaves, statistics, metrics, tags",
     "QUERY is one SELECT of SQLite's over these tables, which are read from\n"
     "records as they are asked for:\n\n"
     "  steps    branch step version base begun staged committed leaves\n"
     "           changed_leaves logical_bytes new_bytes nan inf\n"
     "           nonfinite_leaves pinned tags digest note saved_by\n"
     "  metrics  branch step name value nan\n"
     "  tags     name branch step\n"
     "  leaves   branch step key kind dtype shape tie_to\n"
     "  stats    branch step key dtype shape count l2 mean std min max nan "
     "inf\n"
     "           zeros bytes since digest tie_to\n\n"
     "A tie is another name of a leaf: in stats it has what that leaf has.\n"
     "`tie_to is null` counts each array once.\n\n"
     "A value that is NaN is NULL, as avg() and max() leave it out then; nan\n"
     "says where. Blobs are printed as hex(), their digits. branch is '' for "
     "the main one. `step = N` and `key = K` are\n"
     "looked up; all else reads the records of every step. Times are texts\n"
     "of one width, in UTC: 2026-11-28T18:47:22.000Z. They sort as they are;\n"
     "julianday() takes others, too, and compares with them. Nothing can be\n"
     "written, and no file opened, by a QUERY.\n\n"
     "  ckptree sql \"select step, l2 from stats where key = 'params/wte'\"\n"
     "  ckptree sql \"select * from metrics where name = 'loss'\" -o csv\n"
     "  ckptree sql \"select * from steps where committed > '2026-11-28T23'\"\n"
     "  ckptree sql 'select key, max(nan) from stats group by key'",
     {},
     true,
     1,
     1,
     RunSql},
    {"recover",
     "STORE NEW_STORE",
     "save what is left of a damaged store",
     "Saves every step of STORE that can be read into NEW_STORE, without the\n"
     "leaves that cannot: arrays and values, metrics, note, custom metadata,\n"
     "tags and pins. Lost leaves are listed with the reason, and the step's\n"
     "note says how many. Exit code 0: nothing is lost. 1: something is, and\n"
     "is listed.\n\n"
     "STORE is never changed. It may lack any of its files; nobody may be\n"
     "writing to it. Where it does not open whole, a database is put together\n"
     "beside NEW_STORE, of links to its files or, on another file system, of\n"
     "copies. Commits of which nothing is left are listed; where rows had to\n"
     "be taken from the index, steps that had been removed may come back. An\n"
     "array is held in memory as a whole.\n\n"
     "NEW_STORE appears when all is saved. Until then everything is in the\n"
     "folder NEW_STORE.recovering, which goes away on Ctrl-C and on errors; a\n"
     "second Ctrl-C, or a kill, leaves it to the next recovery there.\n\n"
     "  ckptree recover /runs/lm /runs/lm-recovered",
     {},
     true,
     2,
     2,
     RunRecover},
    {"repair", "STORE", "say what is wrong with a store; --yes mends it",
     "Reads all of STORE and says what is wrong, which steps are whole, which\n"
     "leaves are lost, and what --yes would do. Nobody may be writing to it.\n"
     "Without --yes nothing is changed.\n\n"
     "Where one of two copies is damaged, it is made anew from the other, as\n"
     "the next open for writing would: nothing is lost. All else is rebuilt:\n"
     "what can be read is saved into a new store, as `ckptree recover` does\n"
     "it, and that takes the place of STORE. The damaged store is kept beside\n"
     "it as STORE.damaged. That needs as much space again, and more where\n"
     "branches share what a removed step had (`ckptree help copy`); the new\n"
     "store is made in the folder STORE.repairing.\n\n"
     "Ctrl-C leaves STORE as it was. After a kill, repair it again: that ends\n"
     "what was begun. Exit code 0: nothing is wrong, or all was repaired. 1:\n"
     "something is wrong, or something is lost; all of it is listed. 2: "
     "nothing\n"
     "that was looked at is wrong, and not all was, as an object store is "
     "away.\n\n"
     "  ckptree repair /runs/lm\n"
     "  ckptree repair /runs/lm --yes",
     kRepairFlags, true, 1, 1, RunRepair},
};

}  // namespace

std::string_view NameOfAlias(std::string_view name) {
  // As hands know them that are used to git.
  constexpr std::string_view kAliases[][2] = {
      {"cat-file", "get"}, {"ls-tree", "ls"}, {"branch", "fork"},
      {"fsck", "verify"},  {"prune", "gc"},   {"status", "doctor"},
      {"grep", "find"},    {"clone", "copy"}, {"whatchanged", "history"},
  };
  for (const auto& [alias, command] : kAliases) {
    if (name == alias) return command;
  }
  return name;
}

std::span<const Command> ExchangeCommands() { return kExchange; }

}  // namespace ckptree::tools
