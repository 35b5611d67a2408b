// SPDX-License-Identifier: Apache-2.0

// What an entry of a tree may be, by itself.

#ifndef CKPTREE_SCHEMA_TREE_ENTRY_H_
#define CKPTREE_SCHEMA_TREE_ENTRY_H_

#include "schema/tree.h"

namespace ckptree::schema {

// What is wrong with `entry`, its path aside, or null where nothing is.
const char* EntryFault(const TreeEntry& entry);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_TREE_ENTRY_H_
