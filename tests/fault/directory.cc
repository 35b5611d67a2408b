// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/directory.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace ckptree::testing {

namespace fs = std::filesystem;

TrialDirectory::TrialDirectory() {
  const char* wanted = std::getenv("TEST_TMPDIR");
  std::error_code error;
  std::string parent = fs::temp_directory_path().string();
  if (fs::is_directory("/dev/shm", error)) parent = "/dev/shm";
  if (wanted != nullptr) parent = wanted;
  path_ = parent + "/ckptree_trial.XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) {
    std::perror(path_.c_str());
    std::abort();
  }
  Clear();
}

TrialDirectory::~TrialDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TrialDirectory::Clear() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    fs::remove_all(entry.path());
  }
  fs::create_directory(scratch());
}

void CopyStore(std::string_view from, std::string_view to) {
  fs::remove_all(fs::path(to));
  fs::copy(fs::path(from), fs::path(to), fs::copy_options::recursive);
}

}  // namespace ckptree::testing
