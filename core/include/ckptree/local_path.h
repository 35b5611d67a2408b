// SPDX-License-Identifier: Apache-2.0

// Where a store is: a directory of this machine.
//
// Paths come from command lines and configurations, and some of them name a
// bucket. A folder called "gs:" that holds a whole run, on a disk that goes
// away with the machine, is what a check of the scheme avoids.

#ifndef CKPTREE_LOCAL_PATH_H_
#define CKPTREE_LOCAL_PATH_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "ckptree/export.h"

namespace ckptree {

// The path that is meant: `where` itself, or of "file:///a%20b" that is
// "/a b". kInvalidArgument, by the name of its scheme, for every other URL
// ("gs://b/run"), and for one that lacks slashes ("s3:/b", "file:rel"): no
// folder is made that is called so. Who wants such a folder says "./s3:/b".
//
// Every call of this library that takes a directory asks here.
CKPTREE_EXPORT absl::StatusOr<std::string> LocalPath(std::string_view where);

}  // namespace ckptree

#endif  // CKPTREE_LOCAL_PATH_H_
