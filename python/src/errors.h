// SPDX-License-Identifier: Apache-2.0

// Statuses as the exceptions of ckptree/errors.py.

#ifndef CKPTREE_PYTHON_SRC_ERRORS_H_
#define CKPTREE_PYTHON_SRC_ERRORS_H_

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::python {

// All of these need the GIL.

[[noreturn]] void Raise(const absl::Status& status);

inline void Check(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}

template <typename T>
T Take(absl::StatusOr<T> result) {
  if (!result.ok()) Raise(result.status());
  return *std::move(result);
}

// Text of the engine, which may quote bytes that are no UTF-8.
nanobind::str ToText(std::string_view text);
// As os.fsdecode and os.fsencode.
nanobind::str ToFileName(std::string_view name);
std::string FromFileName(nanobind::handle path);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_ERRORS_H_
