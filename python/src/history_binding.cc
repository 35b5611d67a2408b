// SPDX-License-Identifier: Apache-2.0

// What became of leaves over the steps.

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ckptree/history.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/records.h"
#include "python/src/step_object.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

Records HistoryOf(const std::shared_ptr<OpenStore>& store,
                  const std::string& name, const std::string& branch,
                  std::int64_t first, std::int64_t last) {
  const absl::StatusOr<Path> parsed = Path::Parse(name);
  if (!parsed.ok()) {
    Check(absl::Status(
        parsed.status().code(),
        absl::StrCat("'", name, "': ", parsed.status().message())));
  }
  const Path& path = *parsed;
  HistoryOptions options{.branch = branch, .first = first, .last = last};
  std::optional<absl::StatusOr<std::vector<HistoryEntry>>> entries;
  RunInterruptibly(
      [&](Work& work) {
        options.cancelled = work.Cancelled();
        entries = store->With(
            [&](const Store& open) { return History(open, path, options); });
      },
      nb::none(), {store->cancel()});
  store->release_queue()->Drain();
  return ToDicts(Take(*std::move(entries)));
}

// A comparison of `steps`, which nobody can stop but where one waits for an
// object store: Ctrl-C leaves it, or ends that wait.
template <typename Result, typename Compare>
Result Compared(const std::vector<StepObject>& steps, Compare compare) {
  std::vector<CancelFlag> flags;
  for (const StepObject& step : steps) {
    if (WithoutGil([&] { return step.store->MayReadRemote(); })) {
      flags.push_back(step.store->cancel());
    }
  }
  if (flags.empty()) return Take(LeaveOnSignal(std::move(compare)));
  std::optional<absl::StatusOr<Result>> result;
  RunInterruptibly([&](Work&) { result.emplace(compare()); }, nb::none(),
                   flags);
  return Take(*std::move(result));
}

Record DiffOf(const StepObject& before, const StepObject& after,
              const std::string& glob) {
  Check(ValidateGlob(glob));
  return ToDict(Compared<DiffReport>({before, after}, [before, after, glob] {
    return OpenStore::WithSteps(
        *before.store, *before.open, *after.store, *after.open,
        [&glob](const Step& a, const Step& b) { return Diff(a, b, glob); });
  }));
}

Records BlameOf(const StepObject& self, const std::string& glob) {
  Check(ValidateGlob(glob));
  return ToDicts(Compared<std::vector<BlameEntry>>({self}, [self, glob] {
    return self.store->WithStoreAndStep(
        *self.open, [&glob](const Store& store, const Step& step) {
          return Blame(store, step, glob);
        });
  }));
}

}  // namespace

void BindHistory(nb::module_& m) {
  m.def("history", &HistoryOf, nb::arg("store"), nb::arg("name"),
        nb::arg("branch"), nb::arg("first"), nb::arg("last"));
  m.def("diff", &DiffOf, nb::arg("before"), nb::arg("after"), nb::arg("glob"));
  m.def("blame", &BlameOf, nb::arg("step"), nb::arg("glob"));
}

}  // namespace ckptree::python
