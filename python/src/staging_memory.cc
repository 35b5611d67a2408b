// SPDX-License-Identifier: Apache-2.0

#include "python/src/staging_memory.h"

#include <nanobind/nanobind.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "python/src/bindings.h"
#include "python/src/python_function.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

constexpr std::size_t kHugePage = 2 << 20;

struct Lock {
  PythonFunction lock;    // (address, nbytes) -> bool: whether it is locked.
  PythonFunction unlock;  // (address)
};

struct Locks {
  absl::Mutex mu;
  std::optional<Lock> lock ABSL_GUARDED_BY(mu);
  // What is locked, and by whom.
  std::unordered_map<void*, PythonFunction> locked ABSL_GUARDED_BY(mu);
};

// Never destroyed: the engine's threads may outlive the statics.
Locks& All() {
  static auto* const locks = new Locks;
  return *locks;
}

void* Allocate(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Advice: a refusal costs time only.
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  std::optional<Lock> lock;
  {
    const absl::MutexLock held(&All().mu);
    lock = All().lock;
  }
  if (!lock.has_value()) return memory;
  bool locked = false;
  try {
    lock->lock.Call(
        [&] {
          return nb::make_tuple(reinterpret_cast<std::uintptr_t>(memory),
                                bytes);
        },
        [&](nb::handle result) { locked = nb::cast<bool>(result); });
  } catch (const std::exception&) {
    // It is memory all the same.
  }
  if (locked) {
    const absl::MutexLock held(&All().mu);
    All().locked.emplace(memory, lock->unlock);
  }
  return memory;
}

void Free(void* memory, std::size_t bytes) {
  std::optional<PythonFunction> unlock;
  {
    const absl::MutexLock held(&All().mu);
    const auto it = All().locked.find(memory);
    if (it != All().locked.end()) {
      unlock = std::move(it->second);
      All().locked.erase(it);
    }
  }
  if (unlock.has_value()) {
    try {
      unlock->Call(
          [&] {
            return nb::make_tuple(reinterpret_cast<std::uintptr_t>(memory));
          },
          [](nb::handle) {});
    } catch (const std::exception&) {
      // The interpreter ends, and with it the process.
    }
  }
  munmap(memory, bytes);
}

}  // namespace

HostAllocator StagingMemory() { return {Allocate, Free}; }

void BindStagingMemory(nb::module_& m) {
  m.def(
      "lock_staging",
      // Objects: the stub of a callable would be without types.
      [](nb::object lock, nb::object unlock) {
        Lock given{PythonFunction(nb::cast<nb::callable>(std::move(lock))),
                   PythonFunction(nb::cast<nb::callable>(std::move(unlock)))};
        const absl::MutexLock held(&All().mu);
        All().lock = std::move(given);
      },
      nb::arg("lock"), nb::arg("unlock"));
}

}  // namespace ckptree::python
