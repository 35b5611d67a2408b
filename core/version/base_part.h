// SPDX-License-Identifier: Apache-2.0

// One part of a version in memory, with the records of its leaves.

#ifndef CKPTREE_CORE_VERSION_BASE_PART_H_
#define CKPTREE_CORE_VERSION_BASE_PART_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/digest.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"
#include "schema/tree.h"

namespace ckptree::internal {

// A leaf's record and where it stands.
struct BaseLeaf {
  schema::LeafRecord record;
  base::Digest value_digest;  // schema::ValueDigest(record)
  schema::Space place = schema::Space::kLeaves;
  std::uint64_t version = 0;
  std::uint32_t source = 0;         // Ordinal in that version's tree.
  std::uint32_t encoded_bytes = 0;  // Of the stored record.
};

// Immutable once made; several may share their leaves.
struct BasePart {
  base::Digest tree;
  std::shared_ptr<const std::vector<schema::TreeEntry>> entries;
  // By ordinal.
  std::vector<std::shared_ptr<const BaseLeaf>> leaves;
  schema::LeafMap map;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_BASE_PART_H_
