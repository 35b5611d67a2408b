// SPDX-License-Identifier: Apache-2.0

// Files and folders that are there whole or not at all.
//
// They are written beside their name, under `NAME.PID.ckptree.tmp`, which is
// locked (flock) as long as its process lives. So what a process that was
// killed left can be told from what another one still writes, on this host, in
// another container, and, of files, on another host of an NFS; a number of a
// process would not tell that.

#ifndef CKPTREE_TOOLS_OUTPUT_NEW_FILE_H_
#define CKPTREE_TOOLS_OUTPUT_NEW_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::tools {

// What becomes of another file that has the name when ours gets it. kKeep: it
// stays, and Commit() is an error, also where it came at the last moment.
enum class Others { kReplace, kKeep };

// A file that is written beside its name, synced, renamed, and the name synced.
// What is no regular file (a pipe, /dev/null) is written in place. Without
// Commit() nothing is left, also after an interrupt.
class NewFile {
 public:
  static absl::StatusOr<NewFile> Create(const std::string& name);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  int descriptor() const { return descriptor_; }
  absl::Status Commit(Others others = Others::kReplace);

 private:
  NewFile(std::string path, std::string temporary, int descriptor);

  std::string path_;
  std::string temporary_;  // Empty: written in place.
  int descriptor_ = -1;
};

// A folder beside `path` in which anything may be made; it goes away with all
// that is in it. Commit() gives it, or one file or folder in it, the name.
class NewFolder {
 public:
  static absl::StatusOr<NewFolder> Create(const std::string& path);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder();

  std::string operator/(const std::string& name) const {
    return temporary_ + "/" + name;
  }
  // `name`: what in it gets the name; empty: the folder itself.
  absl::Status Commit(const std::string& name = "",
                      Others others = Others::kReplace);

 private:
  NewFolder(std::string path, std::string temporary, int descriptor);

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

// Removes what processes that have ended left beside `path`, of whatever target
// in that folder. What cannot be locked, and what has another name, stays.
void RemoveAbandonedBeside(const std::string& path);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_NEW_FILE_H_
