// SPDX-License-Identifier: Apache-2.0

// What stands behind a slice of a pack in `small` proves that it is the value
// of a certain leaf, where it was found without the record that says so.

#ifndef CKPTREE_SCHEMA_SLICE_PROOF_H_
#define CKPTREE_SCHEMA_SLICE_PROOF_H_

#include <cstdint>

#include "base/digest.h"

namespace ckptree::schema {

inline constexpr std::uint64_t kSliceProofBytes = base::kDigestBytes;

// Smaller ones have none: it would be too much beside them.
inline constexpr std::uint64_t kLeastProvedBytes = 512;

// A leaf of a step that one save wrote as one part.
struct ProvedLeaf {
  std::uint64_t version = 0;
  std::uint16_t part = 0;
  std::uint32_t ordinal = 0;  // In `tree`, which has its type and shape.
  base::Digest tree;
  // Of the whole step: over the values of all its leaves, this one among them.
  base::Digest step;
};

// That bytes with the digest `value` are those of `leaf`, all of it.
base::Digest SliceProof(const ProvedLeaf& leaf, const base::Digest& value);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_SLICE_PROOF_H_
