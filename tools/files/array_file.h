// SPDX-License-Identifier: Apache-2.0

// Files of arrays that other programs wrote: safetensors, npz, npy, GGUF.

#ifndef CKPTREE_TOOLS_FILES_ARRAY_FILE_H_
#define CKPTREE_TOOLS_FILES_ARRAY_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/step.h"

namespace ckptree::tools {

// One array, as the head of its file describes it.
struct FileArray {
  std::string name;     // As in the file.
  LeafInfo leaf;        // Its dtype is kNone where it cannot be read.
  std::string type;     // The file's own word: "F32", "<f4", "Q4_K".
  std::string why_not;  // Where it cannot be read: one clause.
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // From the beginning of its file, or entry.
  bool fortran = false;      // The first dimension is the fastest.
  std::size_t part = 0;      // Which of several files, or of the entries.
};

// What the head of a file says.
struct FileHead {
  std::vector<FileArray> arrays;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// The path of a leaf of that name: itself where it is the text of a path, else
// one key. kFailedPrecondition: it can be no name of a leaf.
absl::StatusOr<Path> PathOfName(const std::string& name);

// `array` with its path and size. Where its type or shape cannot be had it says
// why_not. kFailedPrecondition: its name can be no leaf; kInvalidArgument: its
// sizes do not fit.
absl::Status SetLeaf(FileArray* array, DType dtype, Shape shape);

// That status of SetLeaf(), of a file that is not damaged.
absl::Status Unnamed(const std::string& path, const absl::Status& why);

// One checkpoint in one or several files, open for reading. No array is read
// before it is asked for, and no memory taken for more than the files have.
// Confined to one thread, but for ReadBytes().
class ArrayFile {
 public:
  virtual ~ArrayFile() = default;

  const std::string& path() const { return path_; }
  std::string_view format() const { return format_; }
  const std::vector<FileArray>& arrays() const { return head_.arrays; }
  // What the file says of itself, as text.
  const std::vector<std::pair<std::string, std::string>>& metadata() const {
    return head_.metadata;
  }

  // What several files of one checkpoint say differently by one name, which is
  // not in metadata(): a clause each, with the name and two of the files.
  const std::vector<std::string>& disputed() const { return disputed_; }

  // True where names are paths in a state, as those of a step: `a/b`.
  bool has_paths() const { return has_paths_; }

  // The elements of `box`, dense and row-major. REQUIRES: it fits `array`, and
  // `destination` it. kFailedPrecondition: the array cannot be read.
  absl::Status ReadBox(const FileArray& array, const BoxSpec& box,
                       std::span<std::byte> destination) const;

  // True where bytes of `array` can be had from several threads at once, and
  // in any order, without reading more than them.
  bool ReadsBytes(const FileArray& array) const {
    return reads_bytes_ && !array.fortran;
  }
  // Bytes [offset, offset + size) of it, row-major. REQUIRES: ReadsBytes().
  absl::Status ReadBytes(const FileArray& array, std::uint64_t offset,
                         std::span<std::byte> destination) const {
    return ReadAt(array, offset, destination);
  }

 protected:
  ArrayFile(std::string path, std::string_view format)
      : path_(std::move(path)), format_(format) {}

  // Bytes [offset, offset + size) of the array as it stands in its file.
  virtual absl::Status ReadAt(const FileArray& array, std::uint64_t offset,
                              std::span<std::byte> destination) const = 0;

  FileHead head_;
  std::vector<std::string> disputed_;
  bool reads_bytes_ = true;  // See ReadsBytes().
  bool has_paths_ = false;

 private:
  std::string path_;
  std::string_view format_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_ARRAY_FILE_H_
