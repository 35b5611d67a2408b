// SPDX-License-Identifier: Apache-2.0

// The option `local_keep` of a store by the text of its policy.

#ifndef CKPTREE_PYTHON_SRC_LOCAL_KEEP_OPTION_H_
#define CKPTREE_PYTHON_SRC_LOCAL_KEEP_OPTION_H_

#include <optional>
#include <string>

#include "ckptree/preservation.h"
#include "python/src/errors.h"

namespace ckptree::python {

// Throws where it is the text of no policy. One that names a function is
// refused by the open: text has none.
inline std::optional<Preservation> ToLocalKeep(
    const std::optional<std::string>& text) {
  if (!text.has_value()) return std::nullopt;
  return Take(ParsePreservation(*text));
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_LOCAL_KEEP_OPTION_H_
