// SPDX-License-Identifier: Apache-2.0

// RowsReader.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/files/file_system_of.h"
#include "kv/files/status.h"
#include "kv/journal/row.h"
#include "kv/journal/rows_file.h"
#include "kv/journal/rows_layout.h"
#include "kv/options.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kReadAhead = std::size_t{256} << 10;
// Where more cannot be read at once: what a disk may lose as one.
constexpr std::size_t kSectorBytes = 4096;

}  // namespace

struct RowsReader::Impl {
  absl::Status Open(const Options& options);
  // `count` bytes at `offset`, valid until the next call. kDataLoss past the
  // end of the file.
  absl::StatusOr<std::string_view> Read(std::uint64_t offset,
                                        std::uint64_t count);
  // Into `buffer`.
  absl::Status Fill(std::uint64_t offset, std::uint64_t count);

  // Goes to the next whole block; false at the end of the blocks. kStop: the
  // first damage.
  absl::StatusOr<bool> NextBlock();
  // Reads the block at `position` and goes behind it. What is wrong with it, or
  // nothing; `header` where that much is whole.
  std::optional<std::string> ReadBlock(std::optional<RowsBlockHeader>* header);
  // The first whole header in [from, end).
  std::optional<std::uint64_t> FindHeader(std::uint64_t from);
  // A footer at `offset`, where the file goes on behind it.
  bool TakeFooter(std::uint64_t offset);
  absl::Status AtEnd();

  // The error of kStop; kGoOn notes it.
  absl::Status Note(std::uint64_t offset, std::uint64_t bytes,
                    std::optional<std::uint64_t> rows_lost,
                    std::string_view what);
  // The rows up to `rows` are over: those not given are lost.
  absl::Status PassTo(std::uint64_t rows, std::uint64_t offset);
  absl::Status Damaged(std::uint64_t offset, std::string_view what) const {
    return absl::DataLossError(
        absl::StrFormat("%s, offset %d: %s", path, offset, what));
  }

  std::string path;
  OnDamage on_damage = OnDamage::kStop;
  std::unique_ptr<rocksdb::FSRandomAccessFile> file;
  std::uint64_t size = 0;
  RowsHead head;
  std::uint64_t preface_checksum = 0;
  std::optional<RowsFooter> footer;
  std::uint64_t end = 0;  // Of the blocks.

  std::string scratch;
  std::string_view buffer;  // Of scratch, or of the file system's own.
  std::uint64_t buffer_offset = 0;

  std::uint64_t position = kRowsPrefaceBytes;  // Of the next block.
  std::uint64_t digest = 0;
  std::uint64_t blocks = 0;
  std::uint64_t passed = 0;  // Rows given, or known to be lost.
  // Of the block that is being given.
  std::string_view entries;
  std::uint32_t entries_left = 0;
  std::uint64_t block_offset = 0;

  RowsEntry entry;
  std::optional<RowKey> last;
  bool ended = false;
  absl::Status status;
  std::vector<RowsDamage> damage;
};

absl::Status RowsReader::Impl::Fill(std::uint64_t offset, std::uint64_t count) {
  buffer = {};
  scratch.resize(count);
  rocksdb::Slice slice;
  const rocksdb::IOStatus read = file->Read(offset, count, rocksdb::IOOptions(),
                                            &slice, scratch.data(), nullptr);
  if (!read.ok()) {
    return ToStatus(read,
                    absl::StrFormat("reading %s, offset %d", path, offset));
  }
  if (slice.size() != count) return Damaged(offset, "it ends early");
  buffer = slice.ToStringView();
  buffer_offset = offset;
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> RowsReader::Impl::Read(std::uint64_t offset,
                                                        std::uint64_t count) {
  if (count > size || offset > size - count) {
    return Damaged(offset, "it ends early");
  }
  if (offset < buffer_offset ||
      offset + count > buffer_offset + buffer.size()) {
    const std::uint64_t ahead =
        std::min(size - offset, std::max<std::uint64_t>(count, kReadAhead));
    absl::Status filled = Fill(offset, ahead);
    // What stands behind is not to blame.
    if (!filled.ok() && ahead > count) filled = Fill(offset, count);
    CKPTREE_RETURN_IF_ERROR(filled);
  }
  return buffer.substr(offset - buffer_offset, count);
}

absl::Status RowsReader::Impl::Note(std::uint64_t offset, std::uint64_t bytes,
                                    std::optional<std::uint64_t> rows_lost,
                                    std::string_view what) {
  const absl::Status error = Damaged(offset, what);
  if (on_damage == OnDamage::kStop) return error;
  RowsDamage found;
  found.offset = offset;
  found.bytes = bytes;
  found.rows = rows_lost;
  found.after = last;
  found.what = std::string(error.message());
  damage.push_back(std::move(found));
  return absl::OkStatus();
}

absl::Status RowsReader::Impl::PassTo(std::uint64_t rows,
                                      std::uint64_t offset) {
  const std::uint64_t lost = rows - passed;
  passed = rows;
  if (!damage.empty() && !damage.back().rows.has_value()) {
    damage.back().rows = lost;
    return absl::OkStatus();
  }
  if (lost == 0) return absl::OkStatus();
  return Note(offset, 0, lost, "blocks before this place are gone");
}

absl::Status RowsReader::Impl::Open(const Options& options) {
  CKPTREE_ASSIGN_OR_RETURN(size, FileSize(options, path));
  const rocksdb::IOStatus opened = FileSystemOf(options)->NewRandomAccessFile(
      path, rocksdb::FileOptions(), &file, nullptr);
  if (!opened.ok()) {
    return ToStatus(opened, absl::StrFormat("opening %s", path));
  }
  std::optional<RowsHead> preface;
  absl::Status failed;
  if (const auto bytes = Read(0, kRowsPrefaceBytes); bytes.ok()) {
    preface = DecodeRowsPreface(*bytes);
  } else {
    failed = bytes.status();
  }
  end = size;
  if (size >= kRowsPrefaceBytes + kRowsFooterBytes) {
    const std::uint64_t at = size - kRowsFooterBytes;
    if (const auto bytes = Read(at, kRowsFooterBytes); bytes.ok()) {
      footer = DecodeRowsFooter(*bytes, at);
    } else {
      failed = bytes.status();
    }
    if (footer.has_value()) end = at;
  }
  if (on_damage == OnDamage::kStop) CKPTREE_RETURN_IF_ERROR(failed);
  if (!preface.has_value() && !footer.has_value()) {
    if (!failed.ok()) return failed;
    return Damaged(0, "the preface and the footer are damaged");
  }
  if (preface.has_value() && footer.has_value() && *preface != footer->head) {
    return Damaged(0, "the preface and the footer are of different files");
  }
  head = preface.has_value() ? *preface : footer->head;
  preface_checksum = RowsPrefaceChecksum(head);
  digest = preface_checksum;
  if (!preface.has_value()) {
    CKPTREE_RETURN_IF_ERROR(
        Note(0, kRowsPrefaceBytes, 0, "the preface is damaged"));
  }
  if (!footer.has_value() && on_damage == OnDamage::kStop) {
    return Damaged(size, "the footer is damaged, or the file is cut");
  }
  return absl::OkStatus();
}

std::optional<std::uint64_t> RowsReader::Impl::FindHeader(std::uint64_t from) {
  while (from < end && end - from >= kRowsHeaderBytes) {
    std::uint64_t count = std::min<std::uint64_t>(end - from, kReadAhead);
    absl::StatusOr<std::string_view> bytes = Read(from, count);
    if (!bytes.ok()) {
      count = std::min<std::uint64_t>(count, kSectorBytes);
      bytes = Read(from, count);
    }
    if (!bytes.ok()) {
      from += count;
      continue;
    }
    const std::size_t at = bytes->find(kRowsHeaderMagic);
    if (at == std::string_view::npos) {
      // The magic may be cut by the end of what was read.
      from += count - kRowsHeaderMagic.size() + 1;
      continue;
    }
    const std::uint64_t place = from + at;
    if (end - place < kRowsHeaderBytes) break;
    const auto found = Read(place, kRowsHeaderBytes);
    if (found.ok()) {
      const auto header =
          DecodeRowsBlockHeader(*found, place, preface_checksum);
      if (header.has_value() && header->rows_before >= passed) return place;
    }
    from = place + 1;
  }
  return std::nullopt;
}

std::optional<std::string> RowsReader::Impl::ReadBlock(
    std::optional<RowsBlockHeader>* header) {
  header->reset();
  block_offset = position;
  if (end - position < kRowsHeaderBytes) return "the header of a block is cut";
  absl::StatusOr<std::string_view> bytes = Read(position, kRowsHeaderBytes);
  if (!bytes.ok()) return std::string(bytes.status().message());
  const std::optional<RowsBlockHeader> decoded =
      DecodeRowsBlockHeader(*bytes, position, preface_checksum);
  if (!decoded.has_value()) return "the header of a block is damaged";
  const std::uint64_t next_digest = ExtendRowsDigest(digest, *bytes);
  if (decoded->length > end - position - kRowsHeaderBytes) {
    return "a block is cut";
  }
  if (decoded->rows_before < passed) return "a block stands twice";
  *header = decoded;
  position += kRowsHeaderBytes + decoded->length;
  digest = next_digest;
  ++blocks;
  bytes = Read(block_offset + kRowsHeaderBytes, decoded->length);
  if (!bytes.ok()) return std::string(bytes.status().message());
  if (base::ChecksumOf(*bytes) != decoded->checksum) {
    return absl::StrFormat("a block of %d rows is damaged", decoded->count);
  }
  entries = *bytes;
  entries_left = decoded->count;
  return std::nullopt;
}

bool RowsReader::Impl::TakeFooter(std::uint64_t offset) {
  if (footer.has_value() || end - offset < kRowsFooterBytes) return false;
  const auto bytes = Read(offset, kRowsFooterBytes);
  if (!bytes.ok()) return false;
  const auto found = DecodeRowsFooter(*bytes, offset);
  if (!found.has_value() || found->head != head) return false;
  footer = found;
  end = offset;
  return true;
}

absl::StatusOr<bool> RowsReader::Impl::NextBlock() {
  while (position != end) {
    const std::uint64_t at = position;
    std::optional<RowsBlockHeader> header;
    const std::optional<std::string> wrong = ReadBlock(&header);
    if (header.has_value()) {
      CKPTREE_RETURN_IF_ERROR(PassTo(header->rows_before, at));
    }
    if (!wrong.has_value()) return true;
    if (header.has_value()) {
      CKPTREE_RETURN_IF_ERROR(Note(at, position - at, header->count, *wrong));
      passed += header->count;
      continue;
    }
    if (TakeFooter(at)) {
      CKPTREE_RETURN_IF_ERROR(Note(at + kRowsFooterBytes,
                                   size - at - kRowsFooterBytes, 0,
                                   "something stands behind its end"));
      return false;
    }
    CKPTREE_RETURN_IF_ERROR(Note(at, 0, std::nullopt, *wrong));
    position = FindHeader(at + 1).value_or(end);
    damage.back().bytes = position - at;
  }
  return false;
}

absl::Status RowsReader::Impl::AtEnd() {
  if (!footer.has_value()) {
    // It begins, at the latest, where no block was found any more.
    if (!damage.empty() && damage.back().offset + damage.back().bytes == end &&
        !damage.back().rows.has_value()) {
      damage.back().what.append("; no footer behind it");
      return absl::OkStatus();
    }
    return Note(end, 0, std::nullopt, "the file is cut: it has no footer");
  }
  if (passed > footer->rows) {
    return Note(end, 0, std::nullopt,
                "the footer counts fewer rows than there are");
  }
  CKPTREE_RETURN_IF_ERROR(PassTo(footer->rows, end));
  if (!damage.empty()) return absl::OkStatus();
  if (footer->blocks != blocks || footer->digest != digest) {
    return Note(end, 0, std::nullopt, "the footer does not fit the blocks");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RowsReader>> RowsReader::Open(
    const Options& options, const std::string& path, OnDamage on_damage) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->on_damage = on_damage;
  CKPTREE_RETURN_IF_ERROR(impl->Open(options));
  return std::unique_ptr<RowsReader>(new RowsReader(std::move(impl)));
}

RowsReader::RowsReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RowsReader::~RowsReader() = default;

const RowsHead& RowsReader::head() const { return impl_->head; }

std::optional<std::uint64_t> RowsReader::rows() const {
  if (!impl_->footer.has_value()) return std::nullopt;
  return impl_->footer->rows;
}

const std::vector<RowsDamage>& RowsReader::damage() const {
  return impl_->damage;
}

absl::StatusOr<const RowsEntry*> RowsReader::Next() {
  Impl& impl = *impl_;
  CKPTREE_RETURN_IF_ERROR(impl.status);
  while (!impl.ended) {
    if (impl.entries_left == 0) {
      if (!impl.entries.empty()) {
        impl.status = impl.Note(impl.block_offset, impl.entries.size(), 0,
                                "a block has more than its rows");
        impl.entries = {};
        CKPTREE_RETURN_IF_ERROR(impl.status);
      }
      const absl::StatusOr<bool> found = impl.NextBlock();
      impl.status = found.status();
      CKPTREE_RETURN_IF_ERROR(impl.status);
      if (!*found) {
        impl.ended = true;
        impl.status = impl.AtEnd();
        CKPTREE_RETURN_IF_ERROR(impl.status);
      }
      continue;
    }
    if (!TakeRowsEntry(&impl.entries, &impl.entry) ||
        (impl.last.has_value() && impl.entry.key <= *impl.last)) {
      // The checksum is right: it was written so.
      impl.status = impl.Note(impl.block_offset, impl.entries.size(),
                              impl.entries_left, "a block is no list of rows");
      impl.passed += impl.entries_left;
      impl.entries_left = 0;
      impl.entries = {};
      CKPTREE_RETURN_IF_ERROR(impl.status);
      continue;
    }
    --impl.entries_left;
    ++impl.passed;
    impl.last = impl.entry.key;
    for (auto found = impl.damage.rbegin();
         found != impl.damage.rend() && !found->before.has_value(); ++found) {
      found->before = impl.entry.key;
    }
    return &impl.entry;
  }
  return nullptr;
}

absl::Status CheckRowsFile(const Options& options, const std::string& path) {
  CKPTREE_ASSIGN_OR_RETURN(const std::unique_ptr<RowsReader> reader,
                           RowsReader::Open(options, path));
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(const RowsEntry* const entry, reader->Next());
    if (entry == nullptr) return absl::OkStatus();
  }
}

}  // namespace ckptree::kv
