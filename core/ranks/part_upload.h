// SPDX-License-Identifier: Apache-2.0

// The segments of a part on their way between ranks that share no folder: by
// objects, which the commit then names as they are.

#ifndef CKPTREE_CORE_RANKS_PART_UPLOAD_H_
#define CKPTREE_CORE_RANKS_PART_UPLOAD_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/ranks/rank_remote.h"
#include "core/save/part_writer.h"
#include "kv/options.h"
#include "schema/part_handoff.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// In the order of part.segments. What was uploaded before an error is left to
// the cleaner. An error of `check`, which any thread may call, ends it.
absl::StatusOr<std::vector<schema::RemoteLiving>> UploadPart(
    const kv::Options& options, const PartResult& part,
    const RankRemote& remote, const std::function<absl::Status()>& check);

// Fetches what UploadPart() uploaded into `folder`, which is made, as the files
// that the rank had built, durable. kFailedPrecondition: it is of another era;
// kDataLoss: it is not what was uploaded.
absl::Status FetchPart(const kv::Options& options,
                       const schema::PartHandoff& handoff,
                       const std::string& folder, const RankRemote& remote,
                       const std::function<absl::Status()>& check);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_PART_UPLOAD_H_
