// SPDX-License-Identifier: Apache-2.0

// A file system behind a network that fails to look for a name in a way of its
// own (ESTALE): an error, where RocksDB's own file system ends the process.

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace {

// 0: none fails; 1: the next one, and with `stays` all behind it.
std::atomic<int> calls_left = 0;
std::atomic<bool> stays = false;
std::atomic<int> failed = 0;

}  // namespace

// In place of the one of the C library, for all of this program.
extern "C" int access(const char* path, int mode) noexcept {
  if (std::string_view(path).find("/store") != std::string_view::npos &&
      calls_left > 0 && ((stays && calls_left == 1) || --calls_left == 0)) {
    ++failed;
    errno = ESTALE;
    return -1;
  }
  return static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}

namespace ckptree::kv {
namespace {

using StaleTest = KvTest;

TEST_F(StaleTest, ALookForANameThatFailsIsAnError) {
  {
    ASSERT_OK_AND_ASSIGN(const auto database, Create());
    ASSERT_OK(database->Close());
  }
  int refused = 0;
  for (const bool stay : {false, true}) {
    stays = stay;
    for (const Mode mode : {Mode::kRead, Mode::kReadWrite}) {
      for (int nth = 1; nth < 100; ++nth) {
        const int before = failed;
        calls_left = nth;
        const absl::Status opened = Open(mode).status();
        calls_left = 0;
        if (!opened.ok()) {
          ++refused;
          EXPECT_TRUE(stay);  // One that fails once is tried again.
        }
        EXPECT_OK(Open(mode));
        if (failed == before) break;
      }
    }
  }
  EXPECT_GE(failed, 4);
  EXPECT_GE(refused, 1);
}

}  // namespace
}  // namespace ckptree::kv
