// SPDX-License-Identifier: Apache-2.0

// Reads of many leaves at once, without the GIL, which Ctrl-C stops.

#ifndef CKPTREE_PYTHON_SRC_LEAF_READING_H_
#define CKPTREE_PYTHON_SRC_LEAF_READING_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "python/src/step_object.h"
#include "python/src/waiting.h"

namespace ckptree::python {

// Less is read in a moment, and needs no thread of its own.
inline constexpr std::size_t kLongBytes = std::size_t{16} << 20;
inline constexpr std::size_t kLongCount = 1000;

// A bool, int, ... as Python has it.
nanobind::object ToObject(const LeafValue& value);

// Of what is no array. In one pass: far faster than one by one.
absl::StatusOr<std::vector<LeafValue>> ReadValues(
    const Step& step, const std::vector<LeafInfo>& leaves,
    const ReadOptions& options);

// Calls `use` with the step, where that may take long in a thread of its own.
// The result is a status, or has one.
template <typename Use>
auto ReadWith(const StepObject& self, bool is_long, nanobind::handle progress,
              Use&& use) {
  if (!is_long) {
    return self.With(
        [&](const Step& step) { return use(step, ReadOptions()); });
  }
  decltype(use(std::declval<const Step&>(), ReadOptions())) result =
      absl::UnknownError("it was not read");
  RunInterruptibly(
      [&](Work& work) {
        const ReadOptions options = {.cancelled = work.Cancelled(),
                                     .on_progress = work.OnProgress()};
        result = self.store->WithStep(
            *self.open, [&](const Step& step) { return use(step, options); });
      },
      progress, {self.store->cancel()});
  return result;
}

// All in one go, which reads no chunk twice. `bytes`: of all destinations.
void ReadInto(const StepObject& self, const std::vector<ReadRequest>& requests,
              std::size_t bytes, nanobind::handle progress);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_LEAF_READING_H_
