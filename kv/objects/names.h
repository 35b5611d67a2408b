// SPDX-License-Identifier: Apache-2.0

// What objects may be called, and addresses of stores.

#ifndef CKPTREE_KV_OBJECTS_NAMES_H_
#define CKPTREE_KV_OBJECTS_NAMES_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/object_store.h"

namespace ckptree::kv {

// kInvalidArgument unless it is as ObjectStore has it.
absl::Status CheckObjectName(std::string_view name);
// Likewise of the beginning of a name, which may be empty.
absl::Status CheckObjectPrefix(std::string_view prefix);

// 32 lower-case hexadecimal digits.
absl::Status CheckWriteId(std::string_view write_id);

// Of what PutIfAbsent is given, in every store.
absl::Status CheckConditionalPut(const std::string& name,
                                 std::string_view bytes,
                                 std::string_view write_id);

// One page of `names`, which ascend: what begins with `prefix` and sorts after
// `after`, as `head` finds it; what is deleted in the meantime is left out.
absl::StatusOr<ObjectPage> PageOf(
    const std::vector<std::string>& names, std::string_view prefix,
    std::string_view after,
    absl::FunctionRef<
        absl::StatusOr<std::optional<ObjectInfo>>(const std::string& name)>
        head);

struct ObjectAddress {
  std::string scheme;  // file, s3, gs, rados
  std::string place;   // A bucket, a pool; empty for a file.
  std::string path;    // A prefix, a namespace, an absolute folder.
};
// kInvalidArgument, which shows no more of it than the scheme where it could
// hold a secret.
absl::StatusOr<ObjectAddress> ParseObjectAddress(const std::string& address);
// As PlainAddress().
std::string TextOf(const ObjectAddress& address);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_NAMES_H_
