// SPDX-License-Identifier: Apache-2.0

// The two macros of this project.

#ifndef CKPTREE_BASE_STATUS_MACROS_H_
#define CKPTREE_BASE_STATUS_MACROS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates `expr`, an absl::Status, and returns it from the calling function
// unless it is OK.
#define CKPTREE_RETURN_IF_ERROR(expr)                                 \
  do {                                                                \
    if (absl::Status ckptree_status = (expr); !ckptree_status.ok()) { \
      return ckptree_status;                                          \
    }                                                                 \
  } while (false)

// Evaluates `expr`, an absl::StatusOr; assigns its value to `lhs` (which may
// declare a variable) or returns its status.
#define CKPTREE_ASSIGN_OR_RETURN(lhs, expr) \
  CKPTREE_ASSIGN_OR_RETURN_(CKPTREE_CAT_(ckptree_or_, __LINE__), lhs, expr)
#define CKPTREE_ASSIGN_OR_RETURN_(var, lhs, expr) \
  auto var = (expr);                              \
  if (!var.ok()) return std::move(var).status();  \
  lhs = std::move(var).value()
#define CKPTREE_CAT_(a, b) CKPTREE_CAT2_(a, b)
#define CKPTREE_CAT2_(a, b) a##b

#endif  // CKPTREE_BASE_STATUS_MACROS_H_
