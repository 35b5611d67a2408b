// SPDX-License-Identifier: Apache-2.0

#include "python/src/cuda_driver.h"

#include <dlfcn.h>

#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"

namespace ckptree::python {
namespace {

// As the header of the driver has them.
using Result = int;
using Context = void*;
using Stream = void*;
using DevicePointer = unsigned long long;  // NOLINT(google-runtime-int)

constexpr Result kSuccess = 0;
constexpr int kMemoryType = 2;        // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceOrdinal = 9;     // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned kOfDevice = 2;     // CU_MEMORYTYPE_DEVICE
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kPortable = 1;     // CU_MEMHOSTREGISTER_PORTABLE
constexpr int kRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED

}  // namespace

struct CudaDriver::Calls {
  Result (*init)(unsigned);
  Result (*error_name)(Result, const char**);
  Result (*device_get)(int*, int);
  Result (*retain)(Context*, int);
  Result (*push)(Context);
  Result (*pop)(Context*);
  Result (*capture_mode)(int*);
  Result (*make_stream)(Stream*, unsigned);
  Result (*copy)(void*, DevicePointer, std::size_t, Stream);
  Result (*wait)(Stream);
  Result (*register_host)(void*, std::size_t, unsigned);
  Result (*unregister_host)(void*);
  Result (*attribute)(void*, int, DevicePointer);
};

struct CudaDriver::Devices {
  struct One {
    Context context = nullptr;
    std::vector<Stream> idle;  // Of no copy now.
  };

  // Which is enough for memory of the host; null before the first device.
  Context Any() {
    const absl::MutexLock lock(&mu);
    return all.empty() ? nullptr : all.begin()->second.context;
  }

  absl::Mutex mu;
  std::map<int, One> all ABSL_GUARDED_BY(mu);
};

// While it lives, this thread works in a context, and what it does is no part
// of a graph that another thread captures.
class CudaDriver::Here {
 public:
  Here(const Calls& calls, Context context)
      : calls_(calls), pushed_(calls.push(context) == kSuccess) {
    calls_.capture_mode(&mode_);
  }
  Here(const Here&) = delete;
  Here& operator=(const Here&) = delete;
  ~Here() {
    calls_.capture_mode(&mode_);
    Context popped = nullptr;
    if (pushed_) calls_.pop(&popped);
  }

 private:
  const Calls& calls_;
  const bool pushed_;
  int mode_ = kRelaxed;
};

CudaDriver::CudaDriver(std::unique_ptr<Calls> calls)
    : calls_(std::move(calls)), devices_(std::make_unique<Devices>()) {}

CudaDriver::~CudaDriver() = default;

absl::StatusOr<std::shared_ptr<CudaDriver>> CudaDriver::Open(
    const std::string& library) {
  // It stays: others have it, and it has threads.
  void* const loaded =
      dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) return absl::NotFoundError(dlerror());
  auto calls = std::make_unique<Calls>();
  const char* lacks = nullptr;
  const auto find = [&](auto* call, const char* name) {
    void* const found = dlsym(loaded, name);
    if (found == nullptr) lacks = name;
    *call = reinterpret_cast<std::remove_pointer_t<decltype(call)>>(found);
  };
  find(&calls->init, "cuInit");
  find(&calls->error_name, "cuGetErrorName");
  find(&calls->device_get, "cuDeviceGet");
  find(&calls->retain, "cuDevicePrimaryCtxRetain");
  find(&calls->push, "cuCtxPushCurrent_v2");
  find(&calls->pop, "cuCtxPopCurrent_v2");
  find(&calls->capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(&calls->make_stream, "cuStreamCreate");
  find(&calls->copy, "cuMemcpyDtoHAsync_v2");
  find(&calls->wait, "cuStreamSynchronize");
  find(&calls->register_host, "cuMemHostRegister_v2");
  find(&calls->unregister_host, "cuMemHostUnregister");
  find(&calls->attribute, "cuPointerGetAttribute");
  if (lacks != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has no %s", library, lacks));
  }
  std::shared_ptr<CudaDriver> driver(new CudaDriver(std::move(calls)));
  const absl::Status started =
      driver->StatusOf("cuInit", driver->calls_->init(0));
  if (!started.ok()) return started;
  return driver;
}

absl::Status CudaDriver::StatusOf(const char* call, int result) const {
  if (result == kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  if (calls_->error_name(result, &name) != kSuccess || name == nullptr) {
    name = "an error without a name";
  }
  return absl::InternalError(
      absl::StrFormat("%s: %s (%d)", call, name, result));
}

absl::StatusOr<int> CudaDriver::DeviceOf(std::uintptr_t address) {
  unsigned type = 0;
  int device = -1;
  if (calls_->attribute(&type, kMemoryType, address) != kSuccess ||
      type != kOfDevice ||
      calls_->attribute(&device, kDeviceOrdinal, address) != kSuccess) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%#x is not in the memory of a device", address));
  }
  const absl::MutexLock lock(&devices_->mu);
  Devices::One& one = devices_->all[device];
  if (one.context != nullptr) return device;
  int handle = -1;
  absl::Status status =
      StatusOf("cuDeviceGet", calls_->device_get(&handle, device));
  if (status.ok()) {
    status = StatusOf("cuDevicePrimaryCtxRetain",
                      calls_->retain(&one.context, handle));
  }
  if (!status.ok()) {
    devices_->all.erase(device);  // No other call finds one without a context.
    return status;
  }
  return device;
}

absl::Status CudaDriver::Copy(int device, std::uintptr_t source,
                              std::span<std::byte> destination) {
  Context context = nullptr;
  Stream stream = nullptr;
  {
    const absl::MutexLock lock(&devices_->mu);
    Devices::One& one = devices_->all[device];
    context = one.context;
    if (!one.idle.empty()) {
      stream = one.idle.back();
      one.idle.pop_back();
    }
  }
  const Here here(*calls_, context);
  if (stream == nullptr) {
    const absl::Status made =
        StatusOf("cuStreamCreate", calls_->make_stream(&stream, kNonBlocking));
    if (!made.ok()) return made;
  }
  absl::Status status = StatusOf(
      "cuMemcpyDtoHAsync",
      calls_->copy(destination.data(), source, destination.size(), stream));
  // Also behind a failure: nothing may still be copied when this returns.
  status.Update(StatusOf("cuStreamSynchronize", calls_->wait(stream)));
  const absl::MutexLock lock(&devices_->mu);
  devices_->all[device].idle.push_back(stream);
  return status;
}

bool CudaDriver::Lock(std::uintptr_t address, std::size_t nbytes) {
  Context const context = devices_->Any();
  if (context == nullptr) return false;
  const Here here(*calls_, context);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as Python has it.
  void* const memory = reinterpret_cast<void*>(address);
  return calls_->register_host(memory, nbytes, kPortable) == kSuccess;
}

void CudaDriver::Unlock(std::uintptr_t address) {
  Context const context = devices_->Any();
  if (context == nullptr) return;
  const Here here(*calls_, context);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as Python has it.
  calls_->unregister_host(reinterpret_cast<void*>(address));
}

}  // namespace ckptree::python
