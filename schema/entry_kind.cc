// SPDX-License-Identifier: Apache-2.0

#include "ckptree/entry_kind.h"

namespace ckptree {

std::string_view Name(EntryKind kind) {
  switch (kind) {
    case EntryKind::kArray:
      return "array";
    case EntryKind::kBool:
      return "bool";
    case EntryKind::kInt:
      return "int";
    case EntryKind::kFloat:
      return "float";
    case EntryKind::kComplex:
      return "complex";
    case EntryKind::kStr:
      return "str";
    case EntryKind::kBytes:
      return "bytes";
    case EntryKind::kJson:
      return "json";
    case EntryKind::kProto:
      return "proto";
    case EntryKind::kFile:
      return "file";
    case EntryKind::kNone:
      return "none";
    case EntryKind::kDict:
      return "dict";
    case EntryKind::kList:
      return "list";
    case EntryKind::kTuple:
      return "tuple";
    case EntryKind::kNamedTuple:
      return "namedtuple";
    case EntryKind::kObject:
      return "object";
    case EntryKind::kCustom:
      return "custom";
    case EntryKind::kTie:
      return "tie";
  }
  return "unknown";
}

}  // namespace ckptree
