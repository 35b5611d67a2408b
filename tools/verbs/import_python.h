// SPDX-License-Identifier: Apache-2.0

// `ckptree import` of what only Python reads.

#ifndef CKPTREE_TOOLS_VERBS_IMPORT_PYTHON_H_
#define CKPTREE_TOOLS_VERBS_IMPORT_PYTHON_H_

#include "absl/status/statusor.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// True where a word of the command line is such a file or folder.
bool IsForPython(const Session& session);

// The verb then: Python saves the whole states, optimizers and scalars too. It
// returns the exit code. kInvalidArgument: flags that Python does not have, or
// words of several kinds.
absl::StatusOr<int> ImportByPython(Session& session);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_IMPORT_PYTHON_H_
