// SPDX-License-Identifier: Apache-2.0

// The version of the library; the format on disk has its own number.
//
// Versions below 1.0 may change this interface with the middle number. Stores
// are another matter: every version reads what earlier versions wrote.

#ifndef CKPTREE_VERSION_H_
#define CKPTREE_VERSION_H_

#include <string_view>

#include "ckptree/export.h"

#define CKPTREE_VERSION_MAJOR 0
#define CKPTREE_VERSION_MINOR 1
#define CKPTREE_VERSION_PATCH 0

namespace ckptree {

// "0.1.0": of the library that is linked, which may be another one than the
// macros say, of the headers that were compiled.
CKPTREE_EXPORT std::string_view Version();

// The format number that this library writes. It refuses stores of higher
// numbers, by kFailedPrecondition, and changes nothing in them.
CKPTREE_EXPORT int FormatNumber();

}  // namespace ckptree

#endif  // CKPTREE_VERSION_H_
