// SPDX-License-Identifier: Apache-2.0

// Re-reads a store and says what is damaged, and whom it hurts.

#ifndef CKPTREE_CORE_ENGINE_VERIFIER_H_
#define CKPTREE_CORE_ENGINE_VERIFIER_H_

#include "absl/status/statusor.h"
#include "ckptree/store.h"

namespace ckptree::internal {

class Engine;

// See VerifyOptions. Reads only.
absl::StatusOr<VerifyReport> VerifyOnce(Engine* engine,
                                        const VerifyOptions& options);
// The same, and of a store that this engine does not write to as often as what
// is wrong is another thing than before: a writer in another process commits,
// and takes files away. What was found once alone is a warning.
absl::StatusOr<VerifyReport> Verify(Engine* engine,
                                    const VerifyOptions& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_VERIFIER_H_
