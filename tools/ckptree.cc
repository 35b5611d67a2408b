// SPDX-License-Identifier: Apache-2.0

// The `ckptree` command.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <clocale>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tools/line/command.h"

namespace {

// Where a shell closed one of the first three, a file would be opened under its
// number, and written to as if it were the output. The engine holds them, too,
// but so that output is lost without a word; here it is an error, also by the
// name /dev/stdout.
void HoldStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one.
    if (descriptor == STDERR_FILENO) {
      static_cast<void>(::open("/dev/null", O_WRONLY));
    } else {
      static_cast<void>(::open("/", O_PATH));
    }
  }
}

// Memory that a command gives back it mostly asks for again at once, and what
// is touched for the first time takes longer than to use it. The heap of each
// thread grows by large steps: each is a system call, during which no other
// thread can touch memory for the first time; what nobody touches is not there.
void KeepFreedMemory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 8 << 20);
#endif
}

// A long list is megabytes of it. Where the kernel gives large pages to those
// who ask, the next that the heap of this thread hands out are of such: it is
// made to grow, and has all back, by then described.
void AskForLargePages() {
#if defined(__GLIBC__) && defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kLargePage = 2 << 20;
  constexpr std::size_t kBytes = 24 << 20;  // No mapping of its own.
  void* const heap = std::malloc(kBytes);
  if (heap == nullptr) return;
  const auto at = reinterpret_cast<std::uintptr_t>(heap);
  const std::uintptr_t begin = (at + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t end = (at + kBytes) / kLargePage * kLargePage;
  // Without them it is as it was.
  static_cast<void>(
      ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
  std::free(heap);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  KeepFreedMemory();
  AskForLargePages();
  HoldStandardDescriptors();
  std::setlocale(LC_CTYPE, "");
  return ckptree::tools::RunCommandLine(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
