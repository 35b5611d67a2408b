// SPDX-License-Identifier: Apache-2.0

// The option `coding` of a store by its name in Python.

#ifndef CKPTREE_PYTHON_SRC_CODING_OPTION_H_
#define CKPTREE_PYTHON_SRC_CODING_OPTION_H_

#include <string_view>

#include "ckptree/options.h"

namespace ckptree::python {

// `name` is "none", "planes" or "auto": the package has checked it.
inline Coding ToCoding(std::string_view name) {
  if (name == "planes") return Coding::kPlanes;
  return name == "auto" ? Coding::kAuto : Coding::kNone;
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_CODING_OPTION_H_
