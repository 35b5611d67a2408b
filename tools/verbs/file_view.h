// SPDX-License-Identifier: Apache-2.0

// The verbs that look, on a file of arrays instead of a step.

#ifndef CKPTREE_TOOLS_VERBS_FILE_VIEW_H_
#define CKPTREE_TOOLS_VERBS_FILE_VIEW_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/line/file_word.h"
#include "tools/line/session.h"

namespace ckptree::tools {

// Each returns the exit code.
absl::StatusOr<int> LsFile(Session& session, const FileWord& word);
absl::StatusOr<int> ShowFile(Session& session, const FileWord& word);
absl::StatusOr<int> GetFromFile(Session& session, const FileWord& word);
absl::StatusOr<int> StatFile(Session& session, const FileWord& word);
// Two of a file and a step, or two files. Nothing: a step.
absl::StatusOr<int> DiffFiles(Session& session,
                              const std::optional<FileWord>& before,
                              const std::optional<FileWord>& after);

// What `get` writes, and where.
struct GetOutput {
  std::string
      format;         // As --json or -o says, else as `file` ends, else "text".
  std::string file;   // Empty: standard output.
  bool full = false;  // All elements, also of a large array as text.
};

// kInvalidArgument: the name of the file ends as those of another format, or
// what is binary would go to a terminal.
absl::StatusOr<GetOutput> OutputOfGet(const Session& session);

// Where arrays were abridged that somebody may take for whole.
void NoteAbridged(Session& session);

// kInvalidArgument for a flag that a verb has for steps alone.
absl::Status CheckFileFlags(const Session& session,
                            std::initializer_list<std::string_view> refused);

// Of all elements; reads them.
absl::StatusOr<Statistics> StatisticsOf(const ArrayFile& file,
                                        const FileArray& array);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_FILE_VIEW_H_
