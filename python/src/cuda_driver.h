// SPDX-License-Identifier: Apache-2.0

// Copies out of the memory of devices of CUDA.

#ifndef CKPTREE_PYTHON_SRC_CUDA_DRIVER_H_
#define CKPTREE_PYTHON_SRC_CUDA_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::python {

// The few calls of the driver that this needs ("CUDA Driver API" of NVIDIA),
// found in its library when it is opened: nothing of CUDA is there when the
// extension is built, and a framework that has arrays on a device has loaded
// it.
//
// It works in the primary context of a device, as frameworks do, on streams of
// its own, which wait for no other and let none wait. Thread-safe; none of its
// calls needs the GIL. A process that was forked has no driver: its calls fail.
class CudaDriver {
 public:
  // kNotFound: there is no such library. kFailedPrecondition: it does not
  // start, or lacks a call.
  static absl::StatusOr<std::shared_ptr<CudaDriver>> Open(
      const std::string& library);

  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;
  // Leaves streams and contexts to the exit of the process: frameworks take the
  // driver down before, in an order of their own.
  ~CudaDriver();

  // The number of the device that has `address` in its memory, by the driver's
  // count. kInvalidArgument: no device has.
  absl::StatusOr<int> DeviceOf(std::uintptr_t address);

  // Fills `destination` from the memory of a device that DeviceOf() gave;
  // returns when the bytes are there. What was queued on other streams is not
  // waited for. kInternal, with the driver's word, where it fails.
  absl::Status Copy(int device, std::uintptr_t source,
                    std::span<std::byte> destination);

  // Locks pages of the host, which all devices then copy to at their full
  // speed. False where the driver refuses: it is memory all the same.
  bool Lock(std::uintptr_t address, std::size_t nbytes);
  void Unlock(std::uintptr_t address);

 private:
  struct Calls;
  struct Devices;
  class Here;

  explicit CudaDriver(std::unique_ptr<Calls> calls);

  absl::Status StatusOf(const char* call, int result) const;

  const std::unique_ptr<Calls> calls_;
  const std::unique_ptr<Devices> devices_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_CUDA_DRIVER_H_
