// SPDX-License-Identifier: Apache-2.0

// What an entry of a step's tree is: an array, a small value, or a node.
//
// The tree {"w": array, "opt": (3, None)} has four entries: the array "w", the
// tuple "opt", the int "opt/[0]" and the None "opt/[1]". The dict at the top is
// no entry, because it follows from the keys below it.

#ifndef CKPTREE_ENTRY_KIND_H_
#define CKPTREE_ENTRY_KIND_H_

#include <cstdint>
#include <string_view>

#include "ckptree/export.h"

namespace ckptree {

// ON DISK: never renumber or reuse one. Kinds below 32 are leaves: they have a
// value.
enum class EntryKind : std::uint8_t {
  kArray = 1,
  kBool = 2,     // The value is one byte, 0 or 1.
  kInt = 3,      // 8 bytes, little-endian, two's complement.
  kFloat = 4,    // 8 bytes, little-endian, binary64.
  kComplex = 5,  // Two of these: real and imaginary part.
  kStr = 6,      // UTF-8.
  kBytes = 7,
  kJson = 8,   // JSON text in UTF-8.
  kProto = 9,  // A serialised message; the tag is its full name.
  kFile = 10,  // The content of a file.

  // Nodes have no value. A step lists only those that do not follow from the
  // paths below them: empty ones, and those that are not a plain dict (of dict
  // keys), list (of indices) or object (of attributes).
  kNone = 32,
  kDict = 33,
  kList = 34,
  kTuple = 35,
  kNamedTuple = 36,  // The tag is its name and fields, "Name(a,b)".
  kObject = 37,      // The tag is what the caller says it is.
  kCustom = 38,

  // A leaf that shares the value of another leaf of its step.
  kTie = 64,
};

// True for kinds that have a value of their own. A tie is not among them.
constexpr bool IsLeaf(EntryKind kind) {
  return static_cast<std::uint8_t>(kind) < 32;
}

// "array", "bool", "int", "float", "complex", "str", "bytes", "json", "proto",
// "file", "none", "dict", "list", "tuple", "namedtuple", "object", "custom",
// "tie"; "unknown" for every other number.
CKPTREE_EXPORT std::string_view Name(EntryKind kind);

}  // namespace ckptree

#endif  // CKPTREE_ENTRY_KIND_H_
