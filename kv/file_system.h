// SPDX-License-Identifier: Apache-2.0

// kv's own file operations, through the file system of the options.

#ifndef CKPTREE_KV_FILE_SYSTEM_H_
#define CKPTREE_KV_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"

namespace ckptree::kv {

// Writes a new file, or over an old one, and syncs it (not its directory).
absl::Status WriteFile(const Options& options, const std::string& path,
                       std::string_view content);

// As what was made ahead is.
bool AllZero(std::string_view bytes);

// At most `max_bytes` from the start of the file, and of the zeros that these
// end in at most `max_zeros`: of what was made ahead. kNotFound without it.
absl::StatusOr<std::string> ReadFile(const Options& options,
                                     const std::string& path,
                                     std::size_t max_bytes,
                                     std::size_t max_zeros = SIZE_MAX);

// What the file has from `offset` on, opened anew each time: at most
// `max_bytes`. kNotFound without it; nothing where it is not that long.
absl::StatusOr<std::string> ReadFileFrom(const Options& options,
                                         const std::string& path,
                                         std::uint64_t offset,
                                         std::size_t max_bytes);
// Adds to the end of the file, made where it is not there. Not durable: for
// what another process is to see, and nobody after a crash.
absl::Status AppendToFile(const Options& options, const std::string& path,
                          std::string_view content);

// Cuts the file down to its first `size` bytes. OK where it is not there.
absl::Status CutFile(const Options& options, const std::string& path,
                     std::uint64_t size);

absl::StatusOr<std::uint64_t> FileSize(const Options& options,
                                       const std::string& path);
absl::Status RenameFile(const Options& options, const std::string& from,
                        const std::string& to);
// Both names change places, in one step. kUnimplemented where the file system
// cannot do that, or is one of the caller's: nothing was done.
absl::Status ExchangeFiles(const Options& options, const std::string& a,
                           const std::string& b);
// OK where it is already gone.
absl::Status RemoveFile(const Options& options, const std::string& path);
// OK where it is there.
absl::Status MakeDirectory(const Options& options, const std::string& path);
// Names in it, sorted; none where it is gone.
absl::StatusOr<std::vector<std::string>> ListDirectory(const Options& options,
                                                       const std::string& path);
// With all that is in it. OK where it is gone.
absl::Status RemoveTree(const Options& options, const std::string& path);
// Makes the bytes of a file that is there durable; OK where it is gone.
absl::Status SyncFile(const Options& options, const std::string& path);
// Makes the names in it durable.
absl::Status SyncDirectory(const Options& options, const std::string& path);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FILE_SYSTEM_H_
