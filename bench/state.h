// SPDX-License-Identifier: Apache-2.0

// Trainer state of the benchmarks, and stores to put it into.

#ifndef CKPTREE_BENCH_STATE_H_
#define CKPTREE_BENCH_STATE_H_

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>

#include "absl/strings/str_format.h"
#include "bench/measure.h"
#include "ckptree/ckptree.h"

namespace ckptree::bench {

// `bytes` of page-aligned random bits, fixed seed.
class State {
 public:
  explicit State(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(4096, bytes))),
        bytes_(bytes) {
    std::mt19937_64 random(7);
    for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(memory_.get() + at, &word, sizeof(word));
    }
  }

  std::span<std::byte> bytes() { return {memory_.get(), bytes_}; }

  // Changes one word of each run of `every` bytes.
  void Touch(std::size_t every, std::uint64_t salt) {
    for (std::size_t at = 0; at + sizeof(salt) <= bytes_; at += every) {
      std::memcpy(memory_.get() + at, &salt, sizeof(salt));
    }
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

inline Tensor Floats(std::span<std::byte> bytes) {
  Tensor tensor;
  tensor.dtype = DType::kFloat32;
  tensor.shape = {static_cast<std::int64_t>(bytes.size() / 4)};
  tensor.data = bytes.data();
  tensor.size_bytes = bytes.size();
  return tensor;
}

inline Store FreshStore(const std::string& path) {
  std::filesystem::remove_all(path);
  auto store = Store::Create(path);
  if (!store.ok()) Fail(std::string(store.status().message()));
  return *std::move(store);
}

inline void Check(const absl::Status& status) {
  if (!status.ok()) Fail(std::string(status.message()));
}

inline std::string LeafName(std::size_t leaf) {
  return absl::StrFormat("params/layer_%03d/w_%05d", leaf / 100, leaf);
}

// Saves `state` cut into leaves of `leaf_bytes`; returns the seconds until it
// was committed.
inline double SaveLeaves(Store& store, std::int64_t step, State& state,
                         std::size_t leaf_bytes, Ownership ownership,
                         double* staged_seconds = nullptr) {
  const Stopwatch watch;
  StepBuilder builder = store.Begin(step);
  const std::size_t leaves = state.bytes().size() / leaf_bytes;
  for (std::size_t i = 0; i < leaves; ++i) {
    builder.Put(LeafName(i),
                Floats(state.bytes().subspan(i * leaf_bytes, leaf_bytes)),
                ownership);
  }
  SaveHandle save = std::move(builder).Commit();
  Check(save.WaitStaged(absl::InfiniteDuration()));
  if (staged_seconds != nullptr) *staged_seconds = watch.Seconds();
  Check(save.WaitCommitted(absl::InfiniteDuration()));
  return watch.Seconds();
}

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_STATE_H_
