// SPDX-License-Identifier: Apache-2.0

#include "python/src/direct_copy.h"

#include <nanobind/stl/shared_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "python/src/cuda_driver.h"
#include "python/src/python_function.h"

namespace nb = nanobind;

namespace ckptree::python {

CopyFn DirectCopy(nb::handle direct) {
  auto driver = nb::cast<std::shared_ptr<CudaDriver>>(direct.attr("driver"));
  const int device = nb::cast<int>(direct.attr("device"));
  const auto address = nb::cast<std::uintptr_t>(direct.attr("address"));
  std::optional<PythonFunction> check;
  if (const nb::object given = direct.attr("check"); !given.is_none()) {
    check.emplace(nb::cast<nb::callable>(given));
  }
  return [driver = std::move(driver), device, address,
          check = std::move(check)](
             std::uint64_t offset,
             std::span<std::byte> destination) -> absl::Status {
    const auto look = [&] {
      if (!check.has_value()) return;
      check->Call([] { return nb::tuple(); }, [](nb::handle) {});
    };
    look();
    absl::Status copied = driver->Copy(device, address + offset, destination);
    if (copied.ok()) look();
    return copied;
  };
}

}  // namespace ckptree::python
