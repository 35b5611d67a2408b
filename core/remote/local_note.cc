// SPDX-License-Identifier: Apache-2.0

#include "core/remote/local_note.h"

#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kv/conditional_put.h"
#include "kv/file_system.h"
#include "kv/store_directory.h"

namespace ckptree::internal {
namespace {

constexpr std::size_t kMostBytes = 16 << 10;
constexpr char kNoteHead[] = "ckptree remote 1";

// A copy of a directory is another one.
absl::StatusOr<std::string> PlaceOf(const std::string& directory) {
  struct stat found;
  if (stat(directory.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, "asking of " + directory);
  }
  return absl::StrFormat("%d:%d", found.st_dev, found.st_ino);
}

}  // namespace

absl::StatusOr<LocalNote> ReadLocalNote(const kv::Options& options,
                                        const std::string& directory) {
  const std::string path = kv::Join(directory, kv::kRemoteName);
  const absl::StatusOr<std::string> text =
      kv::ReadFile(options, path, kMostBytes);
  LocalNote fresh{kv::NewWriteId(), "", ""};
  if (absl::IsNotFound(text.status())) return fresh;
  CKPTREE_RETURN_IF_ERROR(text.status());
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  const bool has_address = lines.size() == 6;
  if ((lines.size() != 5 && !has_address) || lines[0] != kNoteHead ||
      lines[1].size() != 32 || !lines.back().empty()) {
    return absl::DataLossError(absl::StrFormat(
        "%s is not what this engine writes there; where nothing of the store "
        "waits to be shipped it may be removed",
        path));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::string place, PlaceOf(directory));
  if (lines[2] != place) return fresh;
  return LocalNote{lines[1], lines[3], has_address ? lines[4] : ""};
}

absl::Status WriteLocalNote(const kv::Options& options,
                            const std::string& directory,
                            const LocalNote& note) {
  const std::string path = kv::Join(directory, kv::kRemoteName);
  CKPTREE_ASSIGN_OR_RETURN(const std::string place, PlaceOf(directory));
  const std::string temporary = kv::Join(directory, kv::kRemoteTemporaryName);
  CKPTREE_RETURN_IF_ERROR(kv::WriteFile(
      options, temporary,
      absl::StrFormat("%s\n%s\n%s\n%s\n%s\n", kNoteHead, note.local, place,
                      absl::StrReplaceAll(note.fenced, {{"\n", " "}}),
                      note.address)));
  CKPTREE_RETURN_IF_ERROR(kv::RenameFile(options, temporary, path));
  return kv::SyncDirectory(options, directory);
}

}  // namespace ckptree::internal
