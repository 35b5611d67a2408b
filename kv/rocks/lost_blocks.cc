// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/lost_blocks.h"

#include <sys/stat.h>
#include <sys/types.h>

#include <map>

#include "kv/process_use.h"

namespace ckptree::kv {

std::shared_ptr<LostBlocks> LostBlocks::Of(const std::string& directory) {
  using Place = std::pair<dev_t, ino_t>;
  static absl::Mutex mu(absl::kConstInit);
  static auto* const all = new std::map<Place, std::shared_ptr<LostBlocks>>();
  struct stat found;
  // In a forked child the lock may be that of a thread of the parent.
  if (WasForked() || stat(directory.c_str(), &found) != 0) {
    return std::make_shared<LostBlocks>();
  }
  const absl::MutexLock lock(&mu);
  // Those in which nothing was met, and which nobody has any more.
  std::erase_if(*all, [](const auto& one) {
    return one.second.use_count() == 1 && one.second->empty();
  });
  std::shared_ptr<LostBlocks>& of = (*all)[{found.st_dev, found.st_ino}];
  if (of == nullptr) of = std::make_shared<LostBlocks>();
  return of;
}

void LostBlocks::Add(schema::Space space, std::string_view key) {
  const absl::MutexLock lock(&mu_);
  if (blocks_.size() < kMost) blocks_.emplace(space, key);
  any_.store(true);
}

bool LostBlocks::Has(schema::Space space, std::string_view key) const {
  if (empty()) return false;
  const absl::MutexLock lock(&mu_);
  return blocks_.size() == kMost ||
         blocks_.contains(std::pair(space, std::string(key)));
}

}  // namespace ckptree::kv
