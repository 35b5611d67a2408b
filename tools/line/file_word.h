// SPDX-License-Identifier: Apache-2.0

// Words of a command line that mean a file of arrays, not a step of a store.

#ifndef CKPTREE_TOOLS_LINE_FILE_WORD_H_
#define CKPTREE_TOOLS_LINE_FILE_WORD_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/files/array_file.h"
#include "tools/line/session.h"
#include "tools/output/array_reader.h"
#include "tools/output/slice.h"

namespace ckptree::tools {

// A file, and the KEY[SLICE] behind it.
struct FileWord {
  std::shared_ptr<const ArrayFile> file;
  std::string key;
};

// FILE[:KEY], where FILE is there and of a kind that ArrayFile knows; or, where
// -C names such a file, or a folder of checkpoint-N, REV[:KEY] of that.
// Nothing: `word` means a step. An error: it means a file, and that is wrong,
// or, where `word` is_rev and cannot be a key, not there.
absl::StatusOr<std::optional<FileWord>> FindFile(const Session& session,
                                                 std::string_view word,
                                                 bool is_rev = true);
// The file that -C or CKPTREE_STORE names; its only or newest one.
absl::StatusOr<std::optional<FileWord>> FileOfStore(const Session& session);

// The arrays that `key` names, with its slice: one by its name, those whose
// names begin with it, or what a pattern matches; all where it is empty.
// kNotFound names the nearest.
struct FileTarget {
  std::vector<FileArray> arrays;
  std::vector<SliceItem> slice;
  std::string slice_text;
};
absl::StatusOr<FileTarget> FindArrays(const ArrayFile& file,
                                      std::string_view key);

// For `verb`, which takes arrays whole: kInvalidArgument where `key` ends in a
// slice.
absl::StatusOr<std::vector<FileArray>> FindWholeArrays(const ArrayFile& file,
                                                       std::string_view key,
                                                       std::string_view verb);

// Reads elements of `array`, which must outlive it, as `file` does.
ArrayReader ReaderOf(const ArrayFile& file, const FileArray& array);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_FILE_WORD_H_
