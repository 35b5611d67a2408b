// SPDX-License-Identifier: Apache-2.0

// The version of the library; the format on disk has its own number.

#ifndef CKPTREE_VERSION_H_
#define CKPTREE_VERSION_H_

#include <string_view>

#include "ckptree/export.h"

#define CKPTREE_VERSION_MAJOR 0
#define CKPTREE_VERSION_MINOR 1
#define CKPTREE_VERSION_PATCH 0

namespace ckptree {

// "0.1.0"
CKPTREE_EXPORT std::string_view Version();

// The format number that this library writes.
CKPTREE_EXPORT int FormatNumber();

}  // namespace ckptree

#endif  // CKPTREE_VERSION_H_
