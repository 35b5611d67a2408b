// SPDX-License-Identifier: Apache-2.0

// Which versions a disk keeps that does not keep all of them.

#ifndef CKPTREE_CORE_VERSION_KEPT_VERSIONS_H_
#define CKPTREE_CORE_VERSION_KEPT_VERSIONS_H_

#include <cstdint>
#include <set>

namespace ckptree::internal {

struct KeptVersions {
  std::set<std::uint64_t> versions;
  // Those above it are kept, too: whoever chose did not see them yet.
  std::uint64_t newest = 0;

  bool Has(std::uint64_t version) const {
    return version > newest || versions.contains(version);
  }
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_KEPT_VERSIONS_H_
