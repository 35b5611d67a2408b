// SPDX-License-Identifier: Apache-2.0

// `ckptree import` of what only Python reads.

#ifndef CKPTREE_TOOLS_VERBS_IMPORT_PYTHON_H_
#define CKPTREE_TOOLS_VERBS_IMPORT_PYTHON_H_

#include "absl/status/statusor.h"
#include "tools/files/open_file.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// What the first word of the command line that is such a file or folder is;
// kNone where none is.
Foreign ForeignAmong(const Session& session);

// The verb where that is `kind`: Python saves the whole states, optimizers and
// scalars too. It returns the exit code. kInvalidArgument: flags that Python
// does not have, or words of several kinds.
absl::StatusOr<int> ImportByPython(Session& session, Foreign kind);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_IMPORT_PYTHON_H_
