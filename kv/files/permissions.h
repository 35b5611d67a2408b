// SPDX-License-Identifier: Apache-2.0

// Whom the files of a store belong to, and who may read them.

#ifndef CKPTREE_KV_FILES_PERMISSIONS_H_
#define CKPTREE_KV_FILES_PERMISSIONS_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"

namespace ckptree::kv {

// Bits for open(2) and mkdir(2), where `permissions` are those that files may
// have: a folder can be entered by whoever may read what is in it.
mode_t FileMode(int permissions);
mode_t FolderMode(int permissions);

// What the process's umask leaves of `mode`: for chmod(2), where somebody else
// made the file. It is read without being changed, which another thread would
// notice.
mode_t WithoutUmask(mode_t mode);

// "alice (uid 1000)".
std::string UserName(uid_t uid);

// kPermissionDenied where it may make nothing there. kFailedPrecondition,
// naming the owner, where what this process makes in
// `directory` would belong to another user than the directory: the owner could
// neither read nor change it. That is asked of the file system, as some show
// everything as one user's.
absl::Status CheckOwner(const std::string& directory);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILES_PERMISSIONS_H_
