// SPDX-License-Identifier: Apache-2.0

// Which paths and URLs are those of stores in an object store.

#ifndef CKPTREE_CORE_REMOTE_REMOTE_ADDRESS_H_
#define CKPTREE_CORE_REMOTE_REMOTE_ADDRESS_H_

#include <string>

#include "absl/status/status.h"

namespace ckptree::internal {

// Whether a store is meant that is in an object store: s3://..., rados://...,
// gs://... where that is taken, or file:///folder where that is the folder of
// one.
bool IsRemoteAddress(const std::string& where);

// kInvalidArgument, with what to do, where a directory that has no store is one
// that a store ships to: a store made in there would begin anew beside the
// steps that are meant.
absl::Status CheckHoldsNoObjects(const std::string& directory);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_REMOTE_ADDRESS_H_
