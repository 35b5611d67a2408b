// SPDX-License-Identifier: Apache-2.0

// Which checkpoints `ckptree import` is asked for, and the store it makes.

#ifndef CKPTREE_TOOLS_VERBS_IMPORT_STEPS_H_
#define CKPTREE_TOOLS_VERBS_IMPORT_STEPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/files/open_file.h"
#include "tools/line/session.h"
#include "tools/output/table.h"

namespace ckptree::tools {

// A word of the command line, or one step of the folder that a word names.
struct ImportSource {
  std::string path;
  std::optional<std::int64_t> step;  // Of one of several.
};

// What `words` are, of which Python reads those of `kind`. Of a folder of steps
// all have to be of one kind, or kInvalidArgument names the first that is not:
// none is left out. `step`: only this one of a folder.
absl::StatusOr<std::vector<ImportSource>> ImportSources(
    const std::vector<std::string>& words, Foreign kind,
    const std::optional<std::int64_t>& step);

// The store that an import may make.
class NewStore {
 public:
  explicit NewStore(const Session& session);

  // Takes it away where it was made since, and has no step.
  void RemoveIfEmpty(Session& session) const;

 private:
  std::string directory_;  // Empty where something is there already.
  bool had_folder_ = false;
};

// Of the rows of an import those that were saved: "step 7 is saved"; empty:
// none was.
std::string SavedText(const Table& table, const std::string& branch);

// `status` of the import of `path`, by name, with what was saved before it.
absl::Status ImportFailed(const absl::Status& status, const std::string& path,
                          const std::string& saved);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_IMPORT_STEPS_H_
