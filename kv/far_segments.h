// SPDX-License-Identifier: Apache-2.0

// Segments whose files are elsewhere, and are read from there.

#ifndef CKPTREE_KV_FAR_SEGMENTS_H_
#define CKPTREE_KV_FAR_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Where the value of a block of `chunks` stands in the file of its segment.
struct BlockInFile {
  std::uint32_t n = 0;  // The end of its key.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const BlockInFile&, const BlockInFile&) = default;
};

// Of a file of `chunks` that a SegmentWriter made: all blocks, header and table
// among them, by `n`. kDataLoss: it is not such a file.
absl::StatusOr<std::vector<BlockInFile>> BlocksInFile(const Options& options,
                                                      const std::string& path);

struct FarSegment {
  schema::Space space = schema::Space::kChunks;  // kLeaves or kChunks.
  std::string first_key;
  std::string last_key;
  std::string name;  // For people.
  std::uint64_t bytes = 0;
  // Of kChunks, by `n`. Empty: nobody knows.
  std::vector<BlockInFile> blocks;
};
using FarSegmentPtr = std::shared_ptr<const FarSegment>;

// Segments of a database that are elsewhere (Options::far). None of them is
// changed; some may come, and go once no row names them.
//
// Thread-safe.
class FarSegments {
 public:
  virtual ~FarSegments() = default;

  // False: there is none now. Quick.
  virtual bool any() = 0;
  // Those there are now.
  virtual std::vector<FarSegmentPtr> List() = 0;
  // The one in whose range `key` is; null: there is none.
  virtual FarSegmentPtr Find(schema::Space space, std::string_view key) = 0;
  // The one in whose range `key` is, else the first one behind it; null: there
  // is none.
  virtual FarSegmentPtr FindFrom(schema::Space space, std::string_view key) = 0;

  // Fills `into` with the bytes from `offset` on: one request. Nothing is
  // checked but that there are as many. kDataLoss where the file is gone.
  virtual absl::Status Read(const FarSegment& segment, std::uint64_t offset,
                            std::span<std::byte> into) = 0;

  // A file here, with all bytes of the segment, compared with its digest.
  // `goes`: whoever opened it removes the name. `hold`: what it takes is given
  // back once nobody has that, nor the file open.
  struct Copy {
    std::string path;
    bool goes = false;
    std::shared_ptr<const void> hold = nullptr;
  };
  virtual absl::StatusOr<Copy> Fetch(const FarSegment& segment) = 0;
  // Until each `true` had its `false`, Fetch() fetches what was kept before,
  // too, and says what is wrong with what is there.
  virtual void Doubt(bool doubt) = 0;
  // OK, or why what is elsewhere cannot be looked at now.
  virtual absl::Status Answers() { return absl::OkStatus(); }
  // Reads all of it and compares it with its digest, past what is here.
  virtual absl::Status Check(const FarSegment& segment) = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_FAR_SEGMENTS_H_
