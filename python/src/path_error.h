// SPDX-License-Identifier: Apache-2.0

// Exceptions that name the path of the value they are about.

#ifndef CKPTREE_PYTHON_SRC_PATH_ERROR_H_
#define CKPTREE_PYTHON_SRC_PATH_ERROR_H_

#include <nanobind/nanobind.h>

#include <string_view>

#include "python/src/key_path.h"

namespace ckptree::python {

// ValueError.
[[noreturn]] void RaiseAt(const Parts& path, std::string_view what);

// Throws errors.at_path(name of `path`, the exception) instead.
[[noreturn]] void RethrowAt(const Parts& path, nanobind::python_error& raised);

template <typename Call>
nanobind::object WithPath(const Parts& path, Call&& call) {
  try {
    return call();
  } catch (nanobind::python_error& raised) {
    RethrowAt(path, raised);
  }
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_PATH_ERROR_H_
