// SPDX-License-Identifier: Apache-2.0

// Matchers for absl::Status and absl::StatusOr.

#ifndef CKPTREE_TESTS_TESTUTIL_STATUS_MATCHERS_H_
#define CKPTREE_TESTS_TESTUTIL_STATUS_MATCHERS_H_

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptree::testing {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  if (StatusOf(arg).ok()) return true;
  *result_listener << StatusOf(arg);
  return false;
}

// Of this code, whatever the message.
MATCHER_P(StatusIs, code, "has this status code") {
  *result_listener << StatusOf(arg);
  return StatusOf(arg).code() == code;
}

// Of this code, with a message that matches.
MATCHER_P2(StatusIs, code, message, "has this status code and message") {
  *result_listener << StatusOf(arg);
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(
             message, std::string(StatusOf(arg).message()), result_listener);
}

MATCHER_P(IsOkAndHolds, value, "is OK and holds a value that matches") {
  if (!arg.ok()) {
    *result_listener << arg.status();
    return false;
  }
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace ckptree::testing

#define EXPECT_OK(expression) \
  EXPECT_THAT(expression, ::ckptree::testing::IsOk())
#define ASSERT_OK(expression) \
  ASSERT_THAT(expression, ::ckptree::testing::IsOk())

// Evaluates `expression`, an absl::StatusOr, and assigns its value; fails the
// test otherwise.
#define ASSERT_OK_AND_ASSIGN(lhs, expression) \
  ASSERT_OK_AND_ASSIGN_(CKPTREE_TEST_CAT_(value_or_, __LINE__), lhs, expression)
#define ASSERT_OK_AND_ASSIGN_(variable, lhs, expression) \
  auto variable = (expression);                          \
  ASSERT_OK(variable);                                   \
  lhs = std::move(variable).value()
#define CKPTREE_TEST_CAT_(a, b) CKPTREE_TEST_CAT2_(a, b)
#define CKPTREE_TEST_CAT2_(a, b) a##b

#endif  // CKPTREE_TESTS_TESTUTIL_STATUS_MATCHERS_H_
