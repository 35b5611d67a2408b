// SPDX-License-Identifier: Apache-2.0

// Segments of a directory that are elsewhere, too.

#ifndef CKPTREE_KV_SPARE_SEGMENTS_H_
#define CKPTREE_KV_SPARE_SEGMENTS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ckptree::kv {

// Thread-safe.
class SpareSegments {
 public:
  virtual ~SpareSegments() = default;

  // A file with all bytes of a segment of kChunks, compared with its digest.
  // Whoever opened it removes it.
  struct Copy {
    std::string path;
    std::string first_key;
    std::string last_key;
  };
  // Of the segment in whose range `key` is. kNotFound: there is none elsewhere.
  virtual absl::StatusOr<Copy> Fetch(std::string_view key) = 0;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_SPARE_SEGMENTS_H_
