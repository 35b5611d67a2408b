// SPDX-License-Identifier: Apache-2.0

// The option `coding` of a store by its name in Python.

#ifndef CKPTREE_PYTHON_SRC_CODING_OPTION_H_
#define CKPTREE_PYTHON_SRC_CODING_OPTION_H_

#include <optional>
#include <string>

#include "ckptree/options.h"

namespace ckptree::python {

// `name` is None, "none", "planes" or "auto": the package has checked it.
inline std::optional<Coding> ToCoding(const std::optional<std::string>& name) {
  if (!name.has_value()) return std::nullopt;
  if (*name == "planes") return Coding::kPlanes;
  return *name == "auto" ? Coding::kAuto : Coding::kNone;
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_CODING_OPTION_H_
