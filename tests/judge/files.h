// SPDX-License-Identifier: Apache-2.0

// The files of a store, as bytes in memory, and damage to them.

#ifndef CKPTREE_TESTS_JUDGE_FILES_H_
#define CKPTREE_TESTS_JUDGE_FILES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckptree::testing {

struct StoreFiles {
  std::map<std::string, std::string> bytes;  // By name below the store.
  std::set<std::string> directories;
};

StoreFiles ReadFiles(const std::string& store);

// `files`, with those in `changed` instead (nothing: it is missing), where any
// store may be now: the directory itself stays the same inode.
using ChangedFiles = std::map<std::string, std::optional<std::string>>;
void WriteFiles(const StoreFiles& files, const ChangedFiles& changed,
                const std::string& store);

// The directory with this inode is <folder>/store again, wherever in `folder` a
// verb has moved it, and nothing else is left there.
void PutBack(const std::string& folder, std::uint64_t inode);
std::uint64_t InodeOf(const std::string& path);  // 0: none.

// "db/000012.sst" -> "db/#.sst".
std::string NamePattern(std::string_view file);

enum class DamageShape {
  kFlip,     // One bit.
  kZero512,  // A sector is zeros.
  kZero4k,
  kForeign512,  // ... is of another file, or nobody's bytes.
  kForeign4k,
  kOld4k,    // ... is as it was before.
  kOldFile,  // All of it is as it was before.
  kCut,
  kGrown,
  kMissing,
  kSwapped,     // Has the place of another file, which has its.
  kDuplicated,  // Is there a second time, under another number.
};
inline constexpr int kShapes = 12;
std::string_view ShapeName(DamageShape shape);
std::optional<DamageShape> ShapeNamed(std::string_view name);

struct Change {
  DamageShape shape = DamageShape::kFlip;
  std::string file = {};
  std::uint64_t at = 0;
  int bit = 0;             // kFlip; kGrown: by how much.
  std::string other = {};  // kSwapped, kDuplicated: a file; kForeign: from it.
  std::uint64_t seed = 0;  // kForeign without `other`.

  std::string Text() const;  // Fields "name=value", apart by spaces.
};
std::optional<Change> ParseChange(std::string_view text);

// Bytes [begin, end) of a file, as it was, that are gone.
struct Hit {
  std::string file;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Damaged {
  ChangedFiles files;
  std::vector<Hit> hits;
  // False: no file is other than it was.
  bool fired = false;
};
Damaged Apply(const StoreFiles& files, const StoreFiles& earlier,
              const std::vector<Change>& changes);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_FILES_H_
