#include "kv/journal/tail.h"

#include <array>
#include <cstddef>

#include "absl/time/clock.h"
#include "kv/file_system.h"
#include "kv/journal/preface.h"
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
  current_.reset();
  next_.reset();
  file_ = 0;
  looked_ = absl::Now();
  const auto tip = content.records.find(content.tip.ordinal);
  if (tip == content.records.end()) return;
  file_ = tip->second.file;
  offset_ = tip->second.a_end();
}

bool JournalTail::IsEmptyAt(std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                            std::uint64_t number, std::uint64_t offset) {
  if (*file == nullptr) {
    const std::string path =
        Join(directory_, JournalFileName(Copy::kA, number));
    const rocksdb::IOStatus opened = FileSystemOf(options_)->NewRandomAccessFile(
        path, rocksdb::FileOptions(), file, nullptr);
    // The next one is not there yet.
    if (!opened.ok()) return opened.IsNotFound() || opened.IsPathNotFound();
  }
  std::array<char, kFront> buffer{};
  rocksdb::Slice read;
  const rocksdb::IOStatus status =
      (*file)->Read(offset, buffer.size(), rocksdb::IOOptions(), &read,
                    buffer.data(), nullptr);
  if (!status.ok()) return false;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i] != '\0') return false;
  }
  return true;
}

bool JournalTail::Unchanged() {
  if (file_ == 0) return false;
  const absl::Time now = absl::Now();
  if (now - looked_ > kLookAgain) return false;
  return IsEmptyAt(&current_, file_, offset_) &&
         IsEmptyAt(&next_, file_ + 1, 0);
}

}  // namespace ckptree::kv
