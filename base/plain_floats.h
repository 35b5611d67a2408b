// SPDX-License-Identifier: Apache-2.0

#ifndef CKPTREE_BASE_PLAIN_FLOATS_H_
#define CKPTREE_BASE_PLAIN_FLOATS_H_

#include <cstdint>

namespace ckptree::base {

// While it lives the floating-point arithmetic of its thread rounds to nearest
// and keeps subnormal numbers, as IEEE 754 says. A program may have set it
// otherwise (torch.set_flush_denormal(), a library linked with -ffast-math),
// and threads begin with what their maker had. On other machines than x86-64
// and AArch64 nothing is done.
class PlainFloats {
 public:
  PlainFloats() : before_(Get()) {
    if ((before_ & kOther) != 0) Set(before_ & ~kOther);
  }
  ~PlainFloats() {
    if ((before_ & kOther) != 0) Set(Get() | (before_ & kOther));
  }
  PlainFloats(const PlainFloats&) = delete;
  PlainFloats& operator=(const PlainFloats&) = delete;

 private:
#if defined(__SSE2__)
  // Flush to zero, subnormals are zeros, and how to round: of MXCSR.
  static constexpr std::uint64_t kOther = 0x8000 | 0x0040 | 0x6000;
  static std::uint64_t Get() { return __builtin_ia32_stmxcsr(); }
  static void Set(std::uint64_t to) {
    __builtin_ia32_ldmxcsr(static_cast<unsigned>(to));
  }
#elif defined(__aarch64__)
  // FZ, FZ16, and how to round: of FPCR.
  static constexpr std::uint64_t kOther = (std::uint64_t{1} << 24) |
                                          (std::uint64_t{1} << 19) |
                                          (std::uint64_t{3} << 22);
  static std::uint64_t Get() {
    std::uint64_t is = 0;
    asm volatile("mrs %0, fpcr" : "=r"(is));
    return is;
  }
  static void Set(std::uint64_t to) { asm volatile("msr fpcr, %0" ::"r"(to)); }
#else
  static constexpr std::uint64_t kOther = 0;
  static std::uint64_t Get() { return 0; }
  static void Set(std::uint64_t) {}
#endif

  const std::uint64_t before_;
};

}  // namespace ckptree::base

#endif  // CKPTREE_BASE_PLAIN_FLOATS_H_
