// SPDX-License-Identifier: Apache-2.0

// What a save is compared with: one part of the tip of its branch, in memory.

#ifndef CKPTREE_CORE_VERSION_BASE_PART_H_
#define CKPTREE_CORE_VERSION_BASE_PART_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/digest.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"
#include "schema/step_record.h"
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

// Immutable once made; saves share the leaves that did not change.
struct BasePart {
  base::Digest tree;
  std::shared_ptr<const std::vector<schema::TreeEntry>> entries;
  // By ordinal.
  std::vector<std::shared_ptr<const BaseLeaf>> leaves;
  schema::LeafMap map;
  // Map bytes written since all leaf records were written together.
  std::uint64_t map_bytes = 0;
};

// The tip of a branch. Version 0 has no parts.
struct BaseState {
  std::uint64_t version = 0;
  std::map<std::uint16_t, schema::PartRecord> table;  // All parts, by number.
  // Those that were read: all of them, or, where other processes compare their
  // parts with it, none.
  std::map<std::uint16_t, std::shared_ptr<const BasePart>> parts;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_BASE_PART_H_
