// SPDX-License-Identifier: Apache-2.0

// Plays the driver of CUDA (device_cuda_test.py): all memory is of device 3. A
// copy is made when its stream is waited for, and not before; one into memory
// that is not locked is counted. What the driver would refuse is refused.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

using Pointer = unsigned long long;

constexpr int kOk = 0;
constexpr int kInvalid = 1;
constexpr int kNoContext = 201;
constexpr int kFails = 700;

int context;  // Its address is one.
thread_local std::vector<void*> current;

struct Queued {
  void* to;
  Pointer from;
  std::size_t bytes;
};
struct Stream {
  std::vector<Queued> queue;
};

std::mutex mu;
std::condition_variable changed;
std::map<std::uintptr_t, std::size_t> locked;
bool held = false;
int waiting = 0;
std::atomic<int> starts_with{kOk};
std::atomic<long> until_failure{-1};
std::atomic<std::uint64_t> copied{0};
std::atomic<std::uint64_t> not_locked{0};
std::atomic<int> streams{0};

}  // namespace

extern "C" {

// ---- For the test ----

void played_reset() {
  const std::lock_guard lock(mu);
  held = false;
  changed.notify_all();
  starts_with = kOk;
  until_failure = -1;
  copied = not_locked = 0;
}
void played_start_with(int result) { starts_with = result; }
void played_fail_after(long copies) { until_failure = copies; }
// Copies wait until they may.
void played_hold(bool hold) {
  const std::lock_guard lock(mu);
  held = hold;
  changed.notify_all();
}
void played_wait_for_copy() {
  std::unique_lock lock(mu);
  changed.wait(lock, [] { return waiting > 0; });
}
std::uint64_t played_copied() { return copied; }
std::uint64_t played_not_locked() { return not_locked; }
int played_streams() { return streams; }
std::size_t played_locked() {
  const std::lock_guard lock(mu);
  std::size_t bytes = 0;
  for (const auto& [address, size] : locked) bytes += size;
  return bytes;
}

// ---- What the driver has ----

int cuInit(unsigned) { return starts_with; }
int cuGetErrorName(int result, const char** name) {
  *name = result == kFails       ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == kNoContext ? "CUDA_ERROR_INVALID_CONTEXT"
                                 : nullptr;
  return *name == nullptr ? kInvalid : kOk;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 100;
  return ordinal == 3 ? kOk : kInvalid;
}
int cuDevicePrimaryCtxRetain(void** made, int device) {
  *made = &context;
  return device == 103 ? kOk : kInvalid;
}
int cuCtxPushCurrent_v2(void* pushed) {
  current.push_back(pushed);
  return pushed == &context ? kOk : kInvalid;
}
int cuCtxPopCurrent_v2(void** popped) {
  if (current.empty()) return kNoContext;
  *popped = current.back();
  current.pop_back();
  return kOk;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  thread_local int of_thread = 0;
  const int before = of_thread;
  of_thread = *mode;
  *mode = before;
  return kOk;
}
int cuStreamCreate(void** made, unsigned flags) {
  if (current.empty()) return kNoContext;
  if (flags != 1) return kInvalid;
  *made = new Stream;
  ++streams;
  return kOk;
}
int cuMemcpyDtoHAsync_v2(void* to, Pointer from, std::size_t bytes,
                         void* stream) {
  if (current.empty()) return kNoContext;
  if (until_failure >= 0 && until_failure-- <= 0) {
    until_failure = 0;
    return kFails;
  }
  static_cast<Stream*>(stream)->queue.push_back({to, from, bytes});
  return kOk;
}
int cuStreamSynchronize(void* stream) {
  if (current.empty()) return kNoContext;
  std::unique_lock lock(mu);
  ++waiting;
  changed.notify_all();
  changed.wait(lock, [] { return !held; });
  --waiting;
  for (const Queued& copy : static_cast<Stream*>(stream)->queue) {
    const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
    const auto above = locked.upper_bound(to);
    const bool inside =
        above != locked.begin() &&
        to + copy.bytes <= std::prev(above)->first + std::prev(above)->second;
    if (!inside) not_locked += copy.bytes;
    std::memcpy(copy.to, reinterpret_cast<const void*>(copy.from), copy.bytes);
    copied += copy.bytes;
  }
  static_cast<Stream*>(stream)->queue.clear();
  return kOk;
}
int cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned flags) {
  if (current.empty()) return kNoContext;
  if (flags != 1) return kInvalid;
  const std::lock_guard lock(mu);
  return locked.emplace(reinterpret_cast<std::uintptr_t>(memory), bytes).second
             ? kOk
             : kInvalid;
}
int cuMemHostUnregister(void* memory) {
  if (current.empty()) return kNoContext;
  const std::lock_guard lock(mu);
  return locked.erase(reinterpret_cast<std::uintptr_t>(memory)) == 1 ? kOk
                                                                     : kInvalid;
}
int cuPointerGetAttribute(void* result, int attribute, Pointer address) {
  if (address == 0) return kInvalid;
  const int value = attribute == 2 ? 2 : attribute == 9 ? 3 : -1;
  std::memcpy(result, &value, sizeof value);
  return value == -1 ? kInvalid : kOk;
}
}
