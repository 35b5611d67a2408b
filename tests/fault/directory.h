// SPDX-License-Identifier: Apache-2.0

// A fresh directory in memory, gone with its owner.

#ifndef CKPTREE_TESTS_FAULT_DIRECTORY_H_
#define CKPTREE_TESTS_FAULT_DIRECTORY_H_

#include <string>
#include <string_view>

namespace ckptree::testing {

// Below $TEST_TMPDIR, or /dev/shm, or the system's place for such. Removed by
// the destructor (also in a child that runs it: children use _exit).
class TrialDirectory {
 public:
  TrialDirectory();
  ~TrialDirectory();
  TrialDirectory(const TrialDirectory&) = delete;
  TrialDirectory& operator=(const TrialDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string store() const { return path_ + "/store"; }
  std::string scratch() const { return path_ + "/scratch"; }

  // Empties it; `scratch` is there again.
  void Clear() const;

 private:
  std::string path_;
};

// Every file and directory of `from`, as a copy: new inodes.
void CopyStore(std::string_view from, std::string_view to);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_DIRECTORY_H_
