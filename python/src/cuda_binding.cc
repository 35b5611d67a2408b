// SPDX-License-Identifier: Apache-2.0

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "python/src/bindings.h"
#include "python/src/cuda_driver.h"
#include "python/src/errors.h"
#include "python/src/interpreter_lock.h"

namespace nb = nanobind;

namespace ckptree::python {

void BindCuda(nb::module_& m) {
  nb::class_<CudaDriver>(m, "CudaDriver", "Copies out of devices of CUDA.")
      .def(
          "device_of",
          [](CudaDriver& driver, std::uintptr_t address) {
            return Take(driver.DeviceOf(address));
          },
          nb::arg("address"))
      // The driver takes its time with pages: others run Python in between.
      .def("lock", &CudaDriver::Lock, nb::arg("address"), nb::arg("nbytes"),
           nb::call_guard<Unlocked>())
      .def("unlock", &CudaDriver::Unlock, nb::arg("address"),
           nb::call_guard<Unlocked>());
  m.def(
      "cuda_driver",
      [](const std::string& library) {
        return Take(CudaDriver::Open(library));
      },
      nb::arg("library"));
}

}  // namespace ckptree::python
