// SPDX-License-Identifier: Apache-2.0

// The part that this process saved last, for the next save to be compared with.

#ifndef CKPTREE_CORE_SAVE_PART_MEMORY_H_
#define CKPTREE_CORE_SAVE_PART_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/digest.h"
#include "core/version/compact_part.h"

namespace ckptree::internal {

// Versions are never used twice: what is kept of a save that was not committed
// is never asked for.
//
// Thread-safe.
class PartMemory {
 public:
  void Keep(std::uint64_t version, std::uint16_t part,
            std::shared_ptr<const CompactPart> content) {
    const absl::MutexLock lock(&mu_);
    kept_[part] = {version, std::move(content)};
  }

  // Whether the paths that other ranks save, told with `version`, may be others
  // than those that its base has: the last call was of another digest, or of a
  // save that is not that base.
  bool AreNews(std::uint16_t part, std::uint64_t base, std::uint64_t version,
               const base::Digest& elsewhere) {
    const absl::MutexLock lock(&mu_);
    auto& [told, last] = elsewhere_[part];
    const bool news = told != base || last != elsewhere;
    told = version;
    last = elsewhere;
    return news;
  }

  // Null where it is not that one.
  std::shared_ptr<const CompactPart> Find(std::uint64_t version,
                                          std::uint16_t part) const {
    const absl::MutexLock lock(&mu_);
    const auto it = kept_.find(part);
    return it == kept_.end() || it->second.first != version ? nullptr
                                                            : it->second.second;
  }

 private:
  mutable absl::Mutex mu_;
  std::map<std::uint16_t,
           std::pair<std::uint64_t, std::shared_ptr<const CompactPart>>>
      kept_ ABSL_GUARDED_BY(mu_);
  std::map<std::uint16_t, std::pair<std::uint64_t, base::Digest>> elsewhere_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_PART_MEMORY_H_
