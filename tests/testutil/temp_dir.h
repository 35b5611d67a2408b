// SPDX-License-Identifier: Apache-2.0

// A fresh directory, gone with its owner.

#ifndef CKPTREE_TESTS_TESTUTIL_TEMP_DIR_H_
#define CKPTREE_TESTS_TESTUTIL_TEMP_DIR_H_

#include <stdlib.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "gtest/gtest.h"

namespace ckptree::testing {

// Below $TEST_TMPDIR, or /dev/shm, or /tmp. Close what is in it first.
class TempDir {
 public:
  TempDir() : pid_(getpid()) {
    const char* const named = std::getenv("TEST_TMPDIR");
    for (const char* base : {named, "/dev/shm", "/tmp"}) {
      if (base == nullptr || access(base, W_OK) != 0) continue;
      path_ = std::string(base) + "/ckptree-XXXXXX";
      if (mkdtemp(path_.data()) != nullptr) return;
    }
    ADD_FAILURE() << "no place for a temporary directory";
  }
  ~TempDir() {
    if (getpid() != pid_) return;  // A forked child.
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  const pid_t pid_;
  std::string path_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TESTUTIL_TEMP_DIR_H_
