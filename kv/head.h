// HEAD: the last acknowledged commit, kept outside the log.

#ifndef CKPTREE_KV_HEAD_H_
#define CKPTREE_KV_HEAD_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/options.h"

namespace ckptree::kv {

// 16 bytes of XXH3-128.
using Hash = std::array<std::uint8_t, 16>;

// What one slot says.
struct HeadSlot {
  std::uint64_t write_count = 0;  // Of the HEAD file; the newest slot wins.
  std::uint64_t ordinal = 0;      // Of the last acknowledged commit.
  Hash hash{};                    // Of its stored commit record.
  std::array<std::uint8_t, 16> uuid{};
  std::uint64_t incarnation = 0;
  std::uint64_t version_ceiling = 0;  // No version above it was ever used.
  std::uint64_t device = 0;  // Of the store's directory: another one means that
  std::uint64_t inode = 0;   // the store was copied.

  friend bool operator==(const HeadSlot&, const HeadSlot&) = default;
};

// One 4 KiB slot; a checksum over its fields ends them, zeros fill the rest.
inline constexpr std::size_t kHeadSlotBytes = 4096;
inline constexpr int kHeadSlots = 8;
std::string EncodeHeadSlot(const HeadSlot& slot);
std::optional<HeadSlot> DecodeHeadSlot(std::string_view bytes);

// The slot with the highest write count among the whole ones of a HEAD file's
// content; nothing where none is whole.
std::optional<HeadSlot> NewestSlot(std::string_view file);

// The open HEAD file of the writer: 8 slots, rewritten in turn.
//
// Confined to one thread at a time.
class HeadFile {
 public:
  // Writes a new file (tmp, fsync, rename, fsync of the directory).
  static absl::StatusOr<std::unique_ptr<HeadFile>> Create(
      const Options& options, const std::string& directory, HeadSlot slot);

  // kNotFound where there is no file; kDataLoss where no slot is whole.
  static absl::StatusOr<std::unique_ptr<HeadFile>> Open(
      const Options& options, const std::string& directory);

  // Reads without opening for writing.
  static absl::StatusOr<HeadSlot> Read(const Options& options,
                                       const std::string& directory);

  ~HeadFile();

  const HeadSlot& slot() const { return slot_; }

  // Writes `slot` (its write count is set here) into the next slot and syncs.
  // After an error the file must not be used again.
  absl::Status Write(HeadSlot slot);

 private:
  struct Impl;
  HeadFile(std::unique_ptr<Impl> impl, HeadSlot slot);
  std::unique_ptr<Impl> impl_;
  HeadSlot slot_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_HEAD_H_
