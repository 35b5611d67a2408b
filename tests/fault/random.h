// SPDX-License-Identifier: Apache-2.0

// The random numbers of the fault tests: small, seeded, the same everywhere.

#ifndef CKPTREE_TESTS_FAULT_RANDOM_H_
#define CKPTREE_TESTS_FAULT_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

namespace ckptree::testing {

// The seed of this run: $CKPTREE_TEST_SEED, or always the same. Failures are
// repeated with it, soaks go on with the next.
inline std::uint64_t TrialSeed() {
  const char* const wanted = std::getenv("CKPTREE_TEST_SEED");
  return wanted == nullptr ? 20261121 : std::strtoull(wanted, nullptr, 10);
}

// SplitMix64. A copy continues where the original stands: replaying a copy
// repeats what the original will do. Thread-compatible.
class FaultRandom {
 public:
  explicit FaultRandom(std::uint64_t seed) : state_(seed) {}

  std::uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // In [0, bound). REQUIRES: bound > 0.
  std::uint64_t Below(std::uint64_t bound) { return Next() % bound; }
  int Int(int bound) {
    return static_cast<int>(Below(static_cast<std::uint64_t>(bound)));
  }
  bool OneIn(int n) { return Int(n) == 0; }

  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }

  void Fill(std::span<std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); i += 8) {
      std::uint64_t word = Next();
      for (std::size_t j = i; j < bytes.size() && j < i + 8; ++j, word >>= 8) {
        bytes[j] = static_cast<std::byte>(word & 0xff);
      }
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_RANDOM_H_
