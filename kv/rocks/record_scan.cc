// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/record_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "kv/rocks/block_entry.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/table_parts.h"
#include "rocksdb/file_system.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

// The head of the first entry of a block: three numbers and a key.
constexpr std::uint64_t kHeadBytes = 64;
constexpr std::uint64_t kWindowBytes = 4096;
constexpr std::uint64_t kSearchBytes = std::uint64_t{1} << 20;
// The disk fails in pieces of this size.
constexpr std::uint64_t kDiskBytes = 4096;
// Blocks of many records are 16 KiB and a record.
constexpr std::uint64_t kMostFlippedBlock = 24 << 10;
// No record of ours is longer, and what stands around one in its block.
constexpr std::uint64_t kMostBlock = (std::uint64_t{64} << 20) + (64 << 10);
// What all searches for a flipped bit may read.
constexpr std::uint64_t kFlipBudget = std::uint64_t{8} << 30;
// Restarts of a block stand at each record, or at each of so many.
constexpr std::uint64_t kRestartIntervals[] = {1, 16};

// `number` more in its last bytes; nothing where they overflow.
std::optional<std::string> Plus(std::string key, int number) {
  for (std::size_t i = key.size(); i-- > 0;) {
    const int sum = static_cast<unsigned char>(key[i]) + number;
    key[i] = static_cast<char>(sum & 0xff);
    if (sum >= 0 && sum <= 0xff) return key;
    number = sum < 0 ? -1 : 1;
  }
  return std::nullopt;
}

class Scanner {
 public:
  Scanner(rocksdb::FSRandomAccessFile* file, std::uint64_t file_bytes,
          const ScanHow& how)
      : file_(file), file_bytes_(file_bytes), how_(how) {}

  std::vector<FoundRecord> Run() {
    for (const Extent& extent : Extents()) Take(extent);
    return std::move(records_);
  }

  std::string Bytes(std::uint64_t offset, std::uint64_t size) {
    if (offset >= file_bytes_) return {};
    std::string bytes(std::min(size, file_bytes_ - offset), '\0');
    if (!ReadInto(offset, bytes.size(), bytes.data())) {
      for (std::uint64_t at = 0; at < bytes.size();) {
        const std::uint64_t piece = std::min<std::uint64_t>(
            bytes.size() - at, kDiskBytes - (offset + at) % kDiskBytes);
        if (!ReadInto(offset + at, piece, bytes.data() + at)) {
          std::memset(bytes.data() + at, 0, piece);
        }
        at += piece;
      }
    }
    return bytes;
  }

 private:
  // A block without its trailer, or a place where there must be one or several.
  struct Extent {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::string bound;  // Not below its last key; empty where nobody knows.
    bool last = false;  // Nothing is behind it, and perhaps nothing in it.
  };

  bool ReadInto(std::uint64_t offset, std::uint64_t size, char* to) {
    rocksdb::Slice read;
    const rocksdb::IOStatus status =
        file_->Read(offset, size, rocksdb::IOOptions(), &read, to, nullptr);
    if (!status.ok() || read.size() != size) return false;
    if (read.data() != to) std::copy_n(read.data(), size, to);
    return true;
  }

  // A few bytes, without a read for each.
  std::string_view Peek(std::uint64_t offset, std::uint64_t size) {
    if (offset < window_at_ || offset + size > window_at_ + window_.size()) {
      window_at_ = offset;
      window_ = Bytes(offset, std::max(size, kWindowBytes));
    }
    return std::string_view(window_).substr(offset - window_at_, size);
  }

  std::vector<Extent> Extents() {
    TableTail tail(file_, file_bytes_);
    const auto index = tail.ReadIndex();
    if (!index.has_value() ||
        (!index->empty() &&
         index->back().place.offset + index->back().place.size > file_bytes_)) {
      return Walk();
    }
    std::vector<Extent> extents;
    for (const IndexEntry& entry : *index) {
      extents.push_back({entry.place.offset, entry.place.size, entry.last_key});
    }
    return extents;
  }

  std::vector<Extent> Walk() {
    std::vector<Extent> extents;
    for (std::uint64_t at = 0; at < file_bytes_;) {
      if (const auto size = BlockAt(at); size.has_value()) {
        extents.push_back({at, *size, ""});
        at += *size + kBlockTrailerBytes;
        continue;
      }
      // What stands behind the last block has no records in it.
      const std::uint64_t next = FindBlock(at + 1).value_or(file_bytes_);
      if (next - at > kBlockTrailerBytes) {
        extents.push_back(
            {at, next - at - kBlockTrailerBytes, "", next == file_bytes_});
      }
      at = next;
    }
    return extents;
  }

  // The size of the block that begins there, if its lengths fit together.
  std::optional<std::uint64_t> BlockAt(std::uint64_t offset) {
    const auto first = ParseFirst(Peek(offset, kHeadBytes));
    if (!first.has_value()) return std::nullopt;
    std::uint64_t key_bytes = first->key.size();
    std::uint64_t at = offset + first->end();
    for (std::uint64_t entries = 1; at < file_bytes_; ++entries) {
      if (const auto end = EndOfBlock(at, entries); end.has_value()) {
        return *end - offset;
      }
      const auto head = ParseHead(Peek(at, kHeadBytes));
      if (!head.has_value() || head->shared > key_bytes) return std::nullopt;
      key_bytes = head->shared + head->unshared;
      if (key_bytes <= kKeySuffixBytes) return std::nullopt;
      at += head->number_bytes + head->unshared + head->value_bytes;
    }
    return std::nullopt;
  }

  // Behind the restarts that begin at `at`, if that is what stands there.
  std::optional<std::uint64_t> EndOfBlock(std::uint64_t at,
                                          std::uint64_t entries) {
    for (const std::uint64_t interval : kRestartIntervals) {
      const std::uint64_t restarts = (entries + interval - 1) / interval;
      const std::uint64_t size = 4 * restarts + 4;
      const std::string_view bytes = Peek(at, size + kBlockTrailerBytes);
      if (bytes.size() == size + kBlockTrailerBytes &&
          LittleEndian32(bytes) == 0 && bytes[size] == 0 &&
          LittleEndian32(bytes.substr(size - 4)) == restarts) {
        return at + size;
      }
    }
    return std::nullopt;
  }

  // The first block from there on that passes its checksum.
  std::optional<std::uint64_t> FindBlock(std::uint64_t from) {
    for (; from < file_bytes_; from += kSearchBytes) {
      const std::string bytes = Bytes(from, kSearchBytes + kHeadBytes);
      const std::string_view view = bytes;
      for (std::size_t i = view.find('\0');
           i < std::min<std::size_t>(kSearchBytes, view.size());
           i = view.find('\0', i + 1)) {
        // A block begins with one zero, and the size of a key: of a run of
        // zeros, as a file that was made longer has it, only the last can be
        // it.
        i = std::min(view.find_first_not_of('\0', i), view.size()) - 1;
        if (!ParseFirst(view.substr(i, kHeadBytes)).has_value()) continue;
        const auto size = BlockAt(from + i);
        if (size.has_value() &&
            Holds(Bytes(from + i, *size + kBlockTrailerBytes))) {
          return from + i;
        }
      }
    }
    return std::nullopt;
  }

  // The checksum of a block with its trailer.
  static bool Holds(std::string_view bytes) {
    if (bytes.size() < kBlockTrailerBytes) return false;
    const std::size_t size = bytes.size() - kBlockTrailerBytes;
    return bytes[size] == 0 &&
           BlockChecksum(bytes.substr(0, size), bytes[size]) ==
               LittleEndian32(bytes.substr(size + 1));
  }

  void Take(Extent extent) {
    if (how_.headers_only) return TakeHead(extent);
    // What is damaged may seem longer than any block.
    extent.size = std::min(extent.size, kMostBlock);
    std::string bytes = Bytes(extent.offset, extent.size + kBlockTrailerBytes);
    if (bytes.size() != extent.size + kBlockTrailerBytes) return;
    if (Holds(bytes)) {
      TakeEntries(extent, bytes, /*proven=*/true, nullptr);
    } else if (extent.last) {
      // Where the file was cut, a value may stand up to its end.
      Extent whole = extent;
      whole.size = bytes.size();
      TakeEntries(whole, bytes, /*proven=*/false, nullptr);
    } else if (const std::string read = bytes; Mend(extent, &bytes)) {
      TakeEntries(extent, bytes, /*proven=*/true, &read);
    } else if (IsSingle(extent, read)) {
      TakeSingle(extent, read);
    } else {
      TakeEntries(extent, read, /*proven=*/false, nullptr);
    }
  }

  // Of a block with one record that was found by its head.
  void TakeHead(const Extent& extent) {
    const auto first = ParseFirst(Peek(extent.offset, kHeadBytes));
    if (!first.has_value()) return;
    Add(first->key, extent.offset + first->value(), first->head.value_bytes,
        /*proven=*/false);
  }

  // True where the block had one record before it was damaged, for all that can
  // be seen.
  bool IsSingle(const Extent& extent, std::string_view bytes) const {
    if (how_.one_record) return true;
    if (const auto first = ParseFirst(bytes.substr(0, kHeadBytes));
        first.has_value() && first->end() + kRestartsBytes == extent.size) {
      return true;
    }
    return IsArrayBlock(extent.bound) && extent.size > kRestartsBytes &&
           LittleEndian32(bytes.substr(extent.size - 4)) == 1;
  }

  // The keys that the block may have, by what stands beside it.
  std::vector<std::string> Candidates(const Extent& extent) const {
    std::vector<std::string> keys;
    if (!extent.bound.empty()) {
      keys.push_back(extent.bound);
      if (auto less = Plus(extent.bound, -1)) keys.push_back(*less);
    }
    if (!records_.empty()) {
      const std::string& before = records_.back().key;
      if (auto more = Plus(before, 1)) keys.push_back(*more);
      keys.push_back(before + '\0');
      if (before.size() > 3) {
        keys.push_back(before.substr(0, before.size() - 3) + "\xff\xff\xff");
      }
    }
    return keys;
  }

  bool Mend(const Extent& extent, std::string* bytes) {
    const std::uint64_t size = extent.size;
    const std::uint32_t stored =
        LittleEndian32(std::string_view(*bytes).substr(size + 1));
    const auto holds = [&] {
      if (flipped_ < bytes->size()) return false;
      flipped_ -= bytes->size();
      return BlockChecksum(std::string_view(*bytes).substr(0, size),
                           (*bytes)[size]) == stored;
    };
    if ((*bytes)[size] == 0 &&
        std::popcount(
            BlockChecksum(std::string_view(*bytes).substr(0, size), 0) ^
            stored) == 1) {
      return true;
    }
    const auto flips = [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t at = begin; at < end; ++at) {
        for (int bit = 0; bit < 8; ++bit) {
          const char was = (*bytes)[at];
          (*bytes)[at] = static_cast<char>(was ^ (1 << bit));
          if (holds() && (*bytes)[size] == 0) return true;
          (*bytes)[at] = was;
        }
      }
      return false;
    };
    const bool single = IsSingle(extent, *bytes);
    const std::size_t key_bytes =
        records_.empty() ? kSegmentKeyBytes : records_.back().key.size();
    // Where its numbers fit they say where the value begins: bits of a value
    // are not guessed.
    const auto first =
        ParseFirst(std::string_view(*bytes).substr(0, kHeadBytes));
    const std::uint64_t head =
        std::min(first.has_value() && first->end() + kRestartsBytes == size
                     ? first->value()
                     : BytesBefore(key_bytes, size),
                 size);
    const std::uint64_t tail = size - std::min(size, kRestartsBytes);
    if (flips(0, head) || flips(std::max(tail, head), size + 1)) return true;
    if (single) {
      const std::string read = *bytes;
      for (const std::string& key : Candidates(extent)) {
        std::string block = read.substr(0, size);
        if (!FrameSingle(key, &block)) continue;
        bytes->replace(0, size, block);
        (*bytes)[size] = 0;
        if (holds()) return true;
      }
      *bytes = read;
      return false;
    }
    return size <= kMostFlippedBlock && flips(head, std::max(tail, head));
  }

  // A block with one record, damaged beyond mending.
  void TakeSingle(const Extent& extent, std::string_view bytes) {
    const auto first = ParseFirst(bytes.substr(0, kHeadBytes));
    if (first.has_value() && first->end() + kRestartsBytes == extent.size) {
      Add(first->key, extent.offset + first->value(), first->head.value_bytes,
          /*proven=*/false);
      return;
    }
    for (const std::string& key : Candidates(extent)) {
      const auto place = ValueInBlock(key.size(), extent.size);
      if (!place.has_value() || !Known(key.size())) continue;
      Add(key + std::string(kPlainSuffix), extent.offset + place->offset,
          place->size, /*proven=*/false);
      return;
    }
    TakeEntries(extent, bytes, /*proven=*/false, nullptr);
  }

  // What can be told apart in a block. `read`: what the file has where `bytes`
  // is not that.
  void TakeEntries(const Extent& extent, std::string_view bytes, bool proven,
                   const std::string* read) {
    const std::uint64_t end = extent.size;
    std::string key;
    for (std::uint64_t at = 0; at + kRestartsBytes < end;) {
      const auto head = ParseHead(bytes.substr(at, end - at));
      const std::uint64_t value =
          head.has_value() ? at + head->number_bytes + head->unshared : 0;
      const bool is_head = head.has_value() && head->shared <= key.size() &&
                           value <= end &&
                           head->shared + head->unshared > kKeySuffixBytes;
      if (is_head && extent.last && head->value_bytes > end - value) {
        key.resize(head->shared);
        key.append(bytes.substr(at + head->number_bytes, head->unshared));
        TakeCut(key, extent.offset + value, end - value);
      }
      if (!is_head || head->value_bytes > end - value) {
        // The restarts, or damage.
        if (proven) return;
        const auto next = NextEntry(bytes.substr(0, end), at + 1);
        if (!next.has_value()) return;
        at = *next;
        key.clear();
        continue;
      }
      key.resize(head->shared);
      key.append(bytes.substr(at + head->number_bytes, head->unshared));
      if (proven || (IsSuffix(std::string_view(key).substr(key.size() -
                                                           kKeySuffixBytes)) &&
                     Known(key.size() - kKeySuffixBytes))) {
        Add(key, extent.offset + value, head->value_bytes, proven);
        const std::string_view now = bytes.substr(value, head->value_bytes);
        if (read != nullptr &&
            now != std::string_view(*read).substr(value, head->value_bytes)) {
          records_.back().mended = std::string(now);
        }
      }
      at = value + head->value_bytes;
    }
  }

  // What is left of a block of arrays at the end of a file that was cut: leaves
  // that stand in it may be whole.
  void TakeCut(std::string_view key, std::uint64_t offset, std::uint64_t size) {
    const std::string_view user = key.substr(0, key.size() - kKeySuffixBytes);
    if (IsSuffix(key.substr(user.size())) && Known(user.size()) &&
        (how_.one_record || IsArrayBlock(user))) {
      Add(key, offset, size, /*proven=*/false);
    }
  }

  // The next whole key of a size that there is.
  std::optional<std::uint64_t> NextEntry(std::string_view bytes,
                                         std::uint64_t from) const {
    for (std::size_t at = bytes.find('\0', from); at != bytes.npos;
         at = bytes.find('\0', at + 1)) {
      const auto first = ParseFirst(bytes.substr(at, kHeadBytes));
      if (first.has_value() && Known(first->key.size() - kKeySuffixBytes) &&
          first->head.value_bytes <= bytes.size() - at) {
        return at;
      }
    }
    return std::nullopt;
  }

  bool Known(std::size_t key_bytes) const {
    return key_sizes_.empty() ? key_bytes == kSegmentKeyBytes ||
                                    key_bytes == kSegmentKeyBytes + 1
                              : key_sizes_.contains(key_bytes);
  }

  void Add(std::string_view internal_key, std::uint64_t offset,
           std::uint64_t size, bool proven) {
    FoundRecord record;
    record.key = internal_key.substr(0, internal_key.size() - kKeySuffixBytes);
    record.deleted = internal_key[record.key.size()] == kDeletion;
    record.offset = offset;
    record.size = size;
    record.proven = proven;
    if (proven) key_sizes_.insert(record.key.size());
    records_.push_back(std::move(record));
  }

  rocksdb::FSRandomAccessFile* const file_;
  const std::uint64_t file_bytes_;
  const ScanHow how_;
  std::string window_;
  std::uint64_t window_at_ = 0;
  std::uint64_t flipped_ = kFlipBudget;  // Left of it.
  std::set<std::size_t> key_sizes_;
  std::vector<FoundRecord> records_;
};

}  // namespace

std::vector<FoundRecord> FindRecords(rocksdb::FSRandomAccessFile* file,
                                     std::uint64_t file_bytes,
                                     const ScanHow& how) {
  return Scanner(file, file_bytes, how).Run();
}

std::vector<FoundRecord> Ascending(std::vector<FoundRecord> records) {
  std::vector<FoundRecord> kept;
  std::vector<const FoundRecord*> next_proven(records.size() + 1, nullptr);
  for (std::size_t i = records.size(); i-- > 0;) {
    next_proven[i] = records[i].proven ? &records[i] : next_proven[i + 1];
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    FoundRecord& record = records[i];
    if (!kept.empty() && record.key <= kept.back().key) continue;
    const FoundRecord* const next = next_proven[i + 1];
    if (!record.proven && next != nullptr && record.key >= next->key) continue;
    kept.push_back(record);
  }
  return kept;
}

std::string ReadFound(rocksdb::FSRandomAccessFile* file,
                      const FoundRecord& record) {
  if (record.mended.has_value()) return *record.mended;
  return Scanner(file, record.offset + record.size, {})
      .Bytes(record.offset, record.size);
}

}  // namespace ckptree::kv
