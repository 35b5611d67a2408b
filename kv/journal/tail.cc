// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/tail.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/journal/preface.h"
#include "kv/monotonic.h"
#include "kv/store_directory.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

// A preface and a record both begin with what is no zero.
constexpr std::size_t kFront = 8;
constexpr absl::Duration kLookAgain = absl::Seconds(1);

}  // namespace

JournalTail::JournalTail(const Options& options, const std::string& directory)
    : options_(options), directory_(Join(directory, kJournalName)) {}

JournalTail::~JournalTail() = default;

void JournalTail::Start(const JournalContent& content) {
  watched_.clear();
  looked_ = kv::MonotonicNow();
  if (content.end_file == 0) return;
  watched_.push_back({content.end_file, content.end_offset, true, nullptr});
  // A writer that was killed may have made files ahead: the next one begins
  // behind them.
  for (const JournalFileId& id : content.files) {
    if (id.copy == Copy::kA && id.file > content.end_file) {
      watched_.push_back({id.file, 0, true, nullptr});
    }
  }
  watched_.push_back({std::max(content.highest_file, content.end_file) + 1, 0,
                      false, nullptr});
}

absl::StatusOr<bool> JournalTail::IsListed(std::uint64_t file) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options_, directory_));
  return std::count(names.begin(), names.end(),
                    JournalFileName(Copy::kA, file)) > 0;
}

bool JournalTail::IsEmpty(Place* place) const {
  if (place->open == nullptr) {
    if (options_.shared_folder && !place->made) {
      const absl::StatusOr<bool> listed = IsListed(place->file);
      if (!listed.ok()) return false;
      if (!*listed) return true;
      place->made = true;
    }
    const std::string path =
        Join(directory_, JournalFileName(Copy::kA, place->file));
    const rocksdb::IOStatus opened =
        FileSystemOf(options_)->NewRandomAccessFile(
            path, rocksdb::FileOptions(), &place->open, nullptr);
    // The next one is not there yet.
    if (!opened.ok()) return opened.IsNotFound() || opened.IsPathNotFound();
  }
  std::array<char, kFront> buffer{};
  rocksdb::Slice read;
  const rocksdb::IOStatus status =
      place->open->Read(place->offset, buffer.size(), rocksdb::IOOptions(),
                        &read, buffer.data(), nullptr);
  if (!status.ok()) return false;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i] != '\0') return false;
  }
  return true;
}

bool JournalTail::Unchanged() {
  if (watched_.empty() || kv::MonotonicNow() - looked_ > kLookAgain)
    return false;
  if (options_.shared_folder) {
    for (Place& place : watched_) place.open.reset();
  }
  return std::all_of(watched_.begin(), watched_.end(),
                     [this](Place& place) { return IsEmpty(&place); });
}

}  // namespace ckptree::kv
