// SPDX-License-Identifier: Apache-2.0

// Stores to be damaged: one of each kind, made the same way each time.

#ifndef CKPTREE_TESTS_JUDGE_KINDS_H_
#define CKPTREE_TESTS_JUDGE_KINDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fault/random.h"
#include "tests/judge/record.h"
#include "tests/model/step.h"

namespace ckptree::testing {

// Leaves up to kRecordBytes stand in records, of which nothing may be lost.
// Arrays are of kPayloadBytes or more, and random: their bytes are found again
// in the files.
inline constexpr std::size_t kRecordBytes = 64;
inline constexpr std::size_t kPayloadBytes = 1000;

// `arrays` arrays of some 1 to 6 KB and a leaf of every other kind.
ModelStep SmallStep(FaultRandom& random, int arrays = 4);
// `base` after a while of training: no byte that changed is as it was before.
ModelStep NextStep(const ModelStep& base, FaultRandom& random);

// "small", "large", ...
std::vector<std::string> KindNames();

struct MadeStore {
  Acknowledged known;
  std::string error;  // Why it could not be made.
};

// Makes it in `directory`, which is not there; into `earlier` goes a copy of
// its files from before the last of them were written. The same `seed` makes
// the same content; with an empty `directory` that alone is made.
MadeStore MakeKind(const std::string& kind, std::uint64_t seed,
                   const std::string& directory, const std::string& earlier);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_KINDS_H_
