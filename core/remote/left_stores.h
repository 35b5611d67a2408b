// SPDX-License-Identifier: Apache-2.0

// What lies at an address: a store, nothing, or the objects of a store whose
// object `store`, which names it, is gone.

#ifndef CKPTREE_CORE_REMOTE_LEFT_STORES_H_
#define CKPTREE_CORE_REMOTE_LEFT_STORES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

struct LeftStore {
  std::string uuid;      // 32 hexadecimal digits.
  bool commits = false;  // It has some.
};

struct AtAddress {
  std::optional<schema::RemoteStore> store;  // The one that is named.
  std::vector<LeftStore> left;               // Where none is named.

  bool Has(const std::string& uuid) const;
  // The one whose name can be put back; null: there is none, or several.
  const LeftStore* TheOne() const;
};

// One request where a store is named, a second one where none is; where stores
// are left there, one more for each, and one.
absl::StatusOr<AtAddress> LookAtAddress(kv::ObjectStore& store,
                                        const kv::Call& call);

// All whose objects are there, whichever is named, but no more than some: a
// request for each, and one, and one for each thousand objects of others.
absl::StatusOr<std::vector<LeftStore>> ListStores(kv::ObjectStore& store,
                                                  const kv::Call& call);
// Of those the ones that are not `uuid`, which is 16 bytes.
std::vector<std::string> StrangersTo(const std::string& uuid,
                                     const std::vector<LeftStore>& stores);
// Of a store that is named there, and of which no commit is: lists once, and is
// kFailedPrecondition, with what to do, where objects of another one are.
absl::Status CheckNoOther(kv::ObjectStore& store, const std::string& uuid,
                          const kv::Call& call);

// Which stores are left there, and what to do. REQUIRES: some are.
absl::Status NameIsGone(const std::string& address, const AtAddress& found);

// Whether a folder that is an object store has commits of some store.
bool HasLeftStore(const std::string& folder);

// Names the one that is left there again; false: another process has named
// one since. REQUIRES: there is such a one, and the object store creates
// conditionally.
absl::StatusOr<bool> PutNameBack(kv::ObjectStore& store, const AtAddress& found,
                                 const kv::Call& call);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_LEFT_STORES_H_
