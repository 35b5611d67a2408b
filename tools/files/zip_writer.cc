// SPDX-License-Identifier: Apache-2.0

#include "tools/files/zip_writer.h"

#include <fcntl.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// What libzip asks of one entry.
class EntrySource {
 public:
  EntrySource(const NpzEntry& entry, absl::Status* failed)
      : entry_(entry), failed_(failed) {
    zip_error_init(&error_);
  }
  ~EntrySource() { zip_error_fini(&error_); }
  EntrySource(const EntrySource&) = delete;
  EntrySource& operator=(const EntrySource&) = delete;

  static zip_int64_t Call(void* self, void* data, zip_uint64_t length,
                          zip_source_cmd_t command) {
    return static_cast<EntrySource*>(self)->Do(data, length, command);
  }

 private:
  zip_int64_t Do(void* data, zip_uint64_t length, zip_source_cmd_t command) {
    switch (command) {
      case ZIP_SOURCE_OPEN: {
        absl::StatusOr<std::vector<std::byte>> bytes = entry_.read();
        if (!bytes.ok()) {
          if (failed_->ok()) *failed_ = bytes.status();
          zip_error_set(&error_, ZIP_ER_READ, EIO);
          return -1;
        }
        bytes_ = *std::move(bytes);
        at_ = 0;
        return 0;
      }
      case ZIP_SOURCE_READ: {
        const std::size_t count =
            std::min<std::size_t>(length, bytes_.size() - at_);
        if (count > 0) std::memcpy(data, bytes_.data() + at_, count);
        at_ += count;
        return static_cast<zip_int64_t>(count);
      }
      case ZIP_SOURCE_CLOSE:
        bytes_ = {};
        return 0;
      case ZIP_SOURCE_STAT: {
        auto* stat = static_cast<zip_stat_t*>(data);
        zip_stat_init(stat);
        stat->size = entry_.bytes;
        stat->valid = ZIP_STAT_SIZE;
        return sizeof(zip_stat_t);
      }
      case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&error_, data, length);
      case ZIP_SOURCE_FREE:
        delete this;
        return 0;
      case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT,
            ZIP_SOURCE_ERROR, ZIP_SOURCE_FREE, -1);
      default:
        zip_error_set(&error_, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
  }

  const NpzEntry& entry_;
  absl::Status* const failed_;
  zip_error_t error_;
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

int AskCancelled(zip_t*, void* cancelled) {
  return (*static_cast<const std::function<bool()>*>(cancelled))() ? 1 : 0;
}

absl::Status Sync(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (synced) return absl::OkStatus();
  return FileError(error, "syncing " + Escape(path));
}

}  // namespace

absl::Status WriteNpz(const std::string& path, const std::string& said,
                      const std::vector<NpzEntry>& entries,
                      const std::function<bool()>& cancelled) {
  // libzip writes beside this name, and gives it the name when all is there.
  const std::string temporary = absl::StrFormat("%s.%d.tmp", path, getpid());
  const auto failure = [&said](zip_error_t* error) {
    if (zip_error_system_type(error) == ZIP_ET_SYS) {
      return FileError(zip_error_code_system(error), Escape(said));
    }
    return absl::UnknownError(absl::StrFormat("writing %s: %s", Escape(said),
                                              zip_error_strerror(error)));
  };
  int code = 0;
  zip_t* const archive =
      zip_open(temporary.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const absl::Status why = failure(&error);
    zip_error_fini(&error);
    return why;
  }
  absl::Status failed;
  for (const NpzEntry& entry : entries) {
    auto made = std::make_unique<EntrySource>(entry, &failed);
    zip_source_t* const source =
        zip_source_function(archive, EntrySource::Call, made.get());
    if (source != nullptr) static_cast<void>(made.release());
    const zip_int64_t index =
        source == nullptr ? -1
                          : zip_file_add(archive, (entry.name + ".npy").c_str(),
                                         source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      const absl::Status why = failure(zip_get_error(archive));
      if (source != nullptr) zip_source_free(source);
      zip_discard(archive);
      return why;
    }
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(index),
                             ZIP_CM_STORE, 0);
    // The same bytes whenever it is written.
    zip_file_set_dostime(archive, static_cast<zip_uint64_t>(index), 0, 0x21, 0);
  }
  std::function<bool()> ask = cancelled;
  zip_register_cancel_callback_with_state(archive, AskCancelled, nullptr, &ask);
  if (zip_close(archive) != 0) {
    const absl::Status why = failure(zip_get_error(archive));
    zip_discard(archive);
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    if (!failed.ok()) return failed;
    if (cancelled()) return absl::CancelledError("interrupted");
    return why;
  }
  if (absl::Status status = Sync(temporary); !status.ok()) return status;
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return FileError(errno, Escape(said));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return Sync(folder.empty() ? "." : folder);
}

}  // namespace ckptree::tools
