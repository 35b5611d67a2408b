// SPDX-License-Identifier: Apache-2.0

// Takes a step's row out of the catalog, as part of a commit.

#ifndef CKPTREE_CORE_VERSION_STEP_REMOVAL_H_
#define CKPTREE_CORE_VERSION_STEP_REMOVAL_H_

#include "absl/status/status.h"
#include "core/version/catalog.h"
#include "kv/database.h"
#include "schema/step_record.h"

namespace ckptree::internal {

// Into `request`: the step loses its row and its tags. The row moves: the next
// save is compared with this version if it is the tip, and the collector needs
// to know what it was. kFailedPrecondition: pinned; kNotFound.
absl::Status RemoveStep(const kv::Database& database, const Catalog& catalog,
                        const schema::StepRecord& record,
                        kv::CommitRequest* request);

// Whether a save that may do so much takes the place of `old`. kAlreadyExists:
// not without `overwrite`. kFailedPrecondition: it is pinned, or tagged and
// `tagged` does not allow that.
absl::Status MayOverwrite(const Catalog& catalog, const schema::StepRecord& old,
                          bool overwrite, bool tagged);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_STEP_REMOVAL_H_
