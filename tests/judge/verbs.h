// SPDX-License-Identifier: Apache-2.0

// What is done to a damaged store, and whether that came out as it has to:
// exit 0 and no word where all that was acknowledged is there, else precisely
// what the damage hit is named.

#ifndef CKPTREE_TESTS_JUDGE_VERBS_H_
#define CKPTREE_TESTS_JUDGE_VERBS_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/judge/files.h"
#include "tests/judge/record.h"

namespace ckptree::testing {

enum class Verb {
  kRead,           // Opens read only; latest, lists and every leaf.
  kWrite,          // Opens for writing; that, and a save, and all of it again.
  kVerify,         // Verify(kDeep).
  kRecover,        // Recover() to a new store.
  kRepair,         // Repair(), in place.
  kVerifyCommand,  // The same by the program.
  kRecoverCommand,
  kRepairCommand,
  kOpen,  // Opens for writing and reads; no save.
};
inline constexpr int kVerbs = 9;
std::string_view VerbName(Verb verb);

// What can be wrong, each a bit.
enum Fault : unsigned {
  kLost = 1 << 0,     // Gone, without being hit.
  kNoRead = 1 << 1,   // Does not open for reading.
  kNoWrite = 1 << 2,  // Does not open for writing, or a save fails.
  kRefused = 1 << 3,  // Verify, recover or repair end with an error.
  kOlder = 1 << 4,    // The latest step is an older one.
  kWrongBytes = 1 << 5,
  kUnnamed = 1 << 6,   // Something is gone, and nobody says so by name.
  kOvertold = 1 << 7,  // Said to be lost, and is there.
  kOther = 1 << 8,     // What was removed is there; files are left; it warns.
  kAborted = 1 << 9,
  kHung = 1 << 10,
  // No fault: after a save it still warns of what it could have mended.
  kUnmended = 1 << 11,
};
inline constexpr int kFaults = 12;
std::string_view FaultName(int bit);

struct Verdict {
  unsigned faults = 0;
  std::string text = {};  // The first of each.

  void Add(Fault fault, std::string_view why);
};

struct DamagedStore {
  // Null: <folder>/store is there already, and stays as the verb leaves it.
  const StoreFiles* files = nullptr;
  const Acknowledged* known = nullptr;
  ChangedFiles changed = {};
  std::vector<std::string> damaged = {};  // Names of files; empty: it is whole.
  std::set<LeafOfStep> may_be_lost = {};
  // Two damages: anything may be gone or refused, if it is named.
  bool several = false;
};

// What two damages at once, or no permission, may cost, by name.
inline constexpr unsigned kAllowedByName =
    kLost | kNoRead | kNoWrite | kRefused | kUnmended;

// On a fresh copy at <folder>/store; nothing else is left in `folder`.
Verdict Judge(const DamagedStore& damaged, const std::string& folder,
              Verb verb);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_VERBS_H_
