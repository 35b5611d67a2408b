// SPDX-License-Identifier: Apache-2.0

// What speaks to a bucket or to a cluster stands in a module of its own,
// ckptree_s3.so and ckptree_rados.so, which the first address of its kind
// loads: libcurl, librados and what these bring take 20 ms to load, and nearly
// every process that opens a store needs none of them. Where ckptree is a
// static library they are in it instead (CKPTREE_OBJECT_MODULES).

#ifndef CKPTREE_KV_OBJECTS_MODULE_H_
#define CKPTREE_KV_OBJECTS_MODULE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv/object_store.h"
#include "kv/objects/names.h"

namespace ckptree::kv {

// What a module has under kObjectModuleName. Both sides are of one build.
struct ObjectModule {
  const char* version;  // Of the engine that it was built with.
  absl::StatusOr<std::unique_ptr<ObjectStore>> (*open)(
      const std::string& address, const ObjectAddress& parsed,
      const ObjectStoreOptions& options, const Call& call);
};
inline constexpr char kObjectModuleName[] = "CkptreeObjectModule";

// The module for addresses of `scheme`; it stays loaded until the process ends.
// It is looked for by its name as the library or program is that holds this
// code (its RUNPATH), then as the system looks for libraries.
// kFailedPrecondition, with the name of its file and the system's reason: it is
// not there, or a library that it needs is not, or it is of another version.
// Thread-safe.
absl::StatusOr<const ObjectModule*> LoadObjectModule(std::string_view scheme);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_MODULE_H_
