// SPDX-License-Identifier: Apache-2.0

#include "tools/files/zip_file.h"

#include <zip.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/files/head.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::uint64_t kFirstEntryBytes = 4 << 10;
constexpr std::uint64_t kMostEntryHeadBytes = 2 << 20;
constexpr std::size_t kCheckedBytes = 1 << 20;  // At once.
// Deflate makes nothing smaller than this.
constexpr std::uint64_t kMostRatio = 1032;

struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};
using Entry = std::unique_ptr<zip_file_t, CloseEntry>;

class NpzFile final : public ArrayFile {
 public:
  NpzFile(std::string path, zip_t* archive, std::uint64_t bytes)
      : ArrayFile(std::move(path), "npz"), archive_(archive), bytes_(bytes) {
    reads_bytes_ = false;
  }
  ~NpzFile() override { zip_discard(archive_); }

  absl::Status Look() {
    const zip_int64_t count = zip_get_num_entries(archive_, 0);
    for (zip_int64_t i = 0; i < count; ++i) {
      CKPTREE_RETURN_IF_ERROR(Add(static_cast<std::uint64_t>(i)));
    }
    std::sort(head_.arrays.begin(), head_.arrays.end(),
              [](const FileArray& a, const FileArray& b) {
                return a.leaf.path.Encode() < b.leaf.path.Encode();
              });
    for (std::size_t i = 1; i < head_.arrays.size(); ++i) {
      if (head_.arrays[i].leaf.path == head_.arrays[i - 1].leaf.path) {
        return Damaged(absl::StrFormat("it has the array `%s` twice",
                                       Escape(head_.arrays[i].name)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Damaged(std::string_view why) const {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "%s is damaged, or no npz file: %s", Escape(path()), why)),
        "copy it again from where it came");
  }

 private:
  absl::Status Add(std::uint64_t index) {
    zip_stat_t stat;
    if (zip_stat_index(archive_, index, 0, &stat) != 0) {
      return Damaged(zip_strerror(archive_));
    }
    std::string name = stat.name;
    if (name.ends_with("/")) return absl::OkStatus();  // A folder.
    if (!name.ends_with(".npy")) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s has `%s`, which is no array: its name does not "
                          "end with .npy",
                          Escape(path()), Escape(name)));
    }
    name.resize(name.size() - 4);
    // No memory is taken for what the archive only says of itself.
    const bool vast = stat.size > stat.comp_size * kMostRatio + 1024;
    if (vast && stat.comp_method != ZIP_CM_STORE &&
        stat.comp_method != ZIP_CM_DEFLATE) {
      return WithHint(
          absl::FailedPreconditionError(absl::StrFormat(
              "%s: `%s` is packed by another method than NumPy's, to less than "
              "a %dth of it, and is not unpacked",
              Escape(path()), Escape(name), kMostRatio)),
          "load it by numpy.load(), and save it by numpy.savez_compressed()");
    }
    if (stat.comp_size > bytes_ || vast) {
      return Damaged(absl::StrFormat("`%s` says that it is impossibly large",
                                     Escape(name)));
    }
    absl::StatusOr<FileHead> head;
    for (std::uint64_t bytes = kFirstEntryBytes;; bytes *= 8) {
      std::string text(std::min<std::uint64_t>(bytes, stat.size), '\0');
      CKPTREE_RETURN_IF_ERROR(ReadEntry(
          index, 0,
          std::as_writable_bytes(std::span(text.data(), text.size()))));
      head = ParseNpy(text, stat.size);
      if (!absl::IsOutOfRange(head.status()) || bytes > kMostEntryHeadBytes)
        break;
    }
    if (!head.ok()) {
      return Damaged(absl::StrFormat("`%s`: %s", Escape(name),
                                     std::string(head.status().message())));
    }
    FileArray array = std::move(head->arrays[0]);
    array.name = std::move(name);
    array.part = static_cast<std::size_t>(index);
    const DType dtype = array.leaf.dtype;
    if (const absl::Status named = SetLeaf(&array, dtype, array.leaf.shape);
        !named.ok()) {
      if (absl::IsFailedPrecondition(named)) return Unnamed(path(), named);
      return Damaged(std::string(named.message()));
    }
    head_.arrays.push_back(std::move(array));
    return absl::OkStatus();
  }

  absl::Status ReadAt(const FileArray& array, std::uint64_t offset,
                      std::span<std::byte> destination) const override {
    zip_stat_t stat;
    if (zip_stat_index(archive_, array.part, 0, &stat) != 0) {
      return Damaged(zip_strerror(archive_));
    }
    if (stat.comp_method == ZIP_CM_STORE && destination.size() < array.bytes) {
      CKPTREE_RETURN_IF_ERROR(CheckOnce(array.part));
      return ReadEntry(array.part, array.offset + offset, destination);
    }
    // What is compressed is read once, and so is what is read whole: then the
    // archive's checksum is compared, too.
    if (!held_ || held_part_ != array.part) {
      held_ = false;
      held_bytes_.resize(stat.size);
      CKPTREE_RETURN_IF_ERROR(ReadEntry(array.part, 0, held_bytes_));
      held_ = true;
      held_part_ = array.part;
    }
    std::memcpy(destination.data(), held_bytes_.data() + array.offset + offset,
                destination.size());
    return absl::OkStatus();
  }

  // The archive has one checksum for an entry: of what is read in pieces, or
  // not to its end, it is compared before.
  absl::Status CheckOnce(std::uint64_t index) const {
    if (checked_.contains(index)) return absl::OkStatus();
    const Entry entry(zip_fopen_index(archive_, index, 0));
    if (entry == nullptr) return Unopened(index);
    std::vector<std::byte> buffer(kCheckedBytes);
    while (true) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      const zip_int64_t got =
          zip_fread(entry.get(), buffer.data(), buffer.size());
      if (got < 0) return Damaged(zip_file_strerror(entry.get()));
      if (got == 0) break;
    }
    checked_.insert(index);
    return absl::OkStatus();
  }

  // Why an entry cannot be opened.
  absl::Status Unopened(std::uint64_t index) const {
    const int why = zip_error_code_zip(zip_get_error(archive_));
    const char* name = zip_get_name(archive_, index, 0);
    const std::string entry = Escape(name == nullptr ? "" : name);
    if (why == ZIP_ER_ENCRNOTSUPP || why == ZIP_ER_NOPASSWD) {
      return WithHint(
          absl::FailedPreconditionError(
              absl::StrFormat("%s: `%s` is encrypted", Escape(path()), entry)),
          "unpack it with its password, and import the folder of .npy files");
    }
    if (why == ZIP_ER_COMPNOTSUPP) {
      return WithHint(
          absl::FailedPreconditionError(absl::StrFormat(
              "%s: `%s` is packed by another method than NumPy's, which is not "
              "known here",
              Escape(path()), entry)),
          "load it by numpy.load(), and save it by numpy.savez_compressed()");
    }
    return Damaged(zip_strerror(archive_));
  }

  absl::Status ReadEntry(std::uint64_t index, std::uint64_t offset,
                         std::span<std::byte> destination) const {
    const Entry entry(zip_fopen_index(archive_, index, 0));
    if (entry == nullptr) return Unopened(index);
    if (offset > 0 && zip_fseek(entry.get(), static_cast<zip_int64_t>(offset),
                                SEEK_SET) != 0) {
      return Damaged(zip_file_strerror(entry.get()));
    }
    std::size_t done = 0;
    while (done < destination.size()) {
      const zip_int64_t got = zip_fread(entry.get(), destination.data() + done,
                                        destination.size() - done);
      if (got <= 0) {
        return Damaged(got < 0 ? zip_file_strerror(entry.get())
                               : "an array is cut");
      }
      done += static_cast<std::size_t>(got);
    }
    // The checksum is looked at where the end is met.
    std::byte more{};
    if (offset == 0 && zip_fread(entry.get(), &more, 1) < 0) {
      return Damaged(zip_file_strerror(entry.get()));
    }
    return absl::OkStatus();
  }

  zip_t* const archive_;
  const std::uint64_t bytes_;                // Of the whole archive.
  mutable std::set<std::uint64_t> checked_;  // By CheckOnce().
  mutable bool held_ = false;
  mutable std::size_t held_part_ = 0;
  mutable std::vector<std::byte> held_bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenNpz(const std::string& path) {
  std::error_code unknown;
  int code = 0;
  zip_t* const archive =
      zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string why = zip_error_strerror(&error);
    zip_error_fini(&error);
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "%s is damaged, or no npz file: %s", Escape(path), why)),
        "copy it again from where it came");
  }
  auto file = std::make_unique<NpzFile>(
      path, archive, std::filesystem::file_size(path, unknown));
  CKPTREE_RETURN_IF_ERROR(file->Look());
  return file;
}

}  // namespace ckptree::tools
