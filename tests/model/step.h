// SPDX-License-Identifier: Apache-2.0

// What a step must hold, kept outside the store.

#ifndef CKPTREE_TESTS_MODEL_STEP_H_
#define CKPTREE_TESTS_MODEL_STEP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "ckptree/ckptree.h"
#include "tests/fault/random.h"

namespace ckptree::testing {

struct ModelLeaf {
  enum class Kind { kArray, kBool, kInt, kFloat, kStr, kBytes, kJson, kTie };

  Kind kind = Kind::kArray;
  DType dtype = DType::kNone;  // Arrays.
  Shape shape;                 // Arrays.
  std::string bytes;   // Arrays: raw; numbers: as in memory; text: itself.
  std::string target;  // Ties: the name of a leaf.

  // In how many boxes it is put; no part of what is stored.
  int boxes = 1;
  // Empty: as the engine likes it; no part of what is stored either.
  Shape chunk_shape = {};

  // By what is stored.
  friend bool operator==(const ModelLeaf& a, const ModelLeaf& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.shape == b.shape &&
           a.bytes == b.bytes && a.target == b.target;
  }
};

struct ModelStep {
  std::map<std::string, ModelLeaf> leaves;  // By canonical name.
  std::map<std::string, double> metrics;
  std::string custom;  // JSON text.
  std::string note;

  friend bool operator==(const ModelStep&, const ModelStep&) = default;
};

// A few leaves of every kind, tiny.
ModelStep TinyStep(FaultRandom& random);

// `leaves` arrays of `bytes` random bytes each.
ModelStep ArrayStep(FaultRandom& random, int leaves, std::int64_t bytes);

// An array of float32, as weights are, and its bfloat16 copy: each above 1 MiB.
ModelStep PairStep(FaultRandom& random);
// The bfloat16 copy of an array of float32.
ModelLeaf RoundedCopyOf(const ModelLeaf& master);

// `base` with random changes: values, shapes, leaves that come and go. Where
// `large`, one array above 1 MiB is new, and at times a bfloat16 copy of it.
ModelStep Changed(const ModelStep& base, FaultRandom& random, bool large);

// Puts everything into `builder`; arrays are read until the save is staged.
void PutAll(const ModelStep& model, StepBuilder& builder);

// The first difference between the stored step and the model, by name; nothing
// where every leaf, kind, shape and byte is equal. A read error is one, too.
std::optional<std::string> Difference(const Step& step, const ModelStep& model);

// As above, of one random box of one random array.
std::optional<std::string> BoxDifference(const Step& step,
                                         const ModelStep& model,
                                         FaultRandom& random);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_MODEL_STEP_H_
