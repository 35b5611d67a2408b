// SPDX-License-Identifier: Apache-2.0

// The files of the journal: their names, and what stands at their start.

#ifndef CKPTREE_KV_JOURNAL_PREFACE_H_
#define CKPTREE_KV_JOURNAL_PREFACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/digest.h"

namespace ckptree::kv {

// a: records and blocks at multiples of a sector, synced by each commit.
// b: header and rows of the same records, one after the other, synced later.
enum class Copy : std::uint8_t { kA = 'a', kB = 'b' };

inline constexpr std::size_t kPrefaceBytes = 4096;

// The first 4 KiB of both copies. All zeros in a file that waits to be used.
struct Preface {
  Copy copy = Copy::kA;
  std::uint64_t file = 0;  // 1, 2, ...
  std::uint64_t session = 0;
  std::uint64_t incarnation = 0;
  std::array<std::uint8_t, 16> uuid{};
  std::uint64_t device = 0;  // Of the store's directory: another one means that
  std::uint64_t inode = 0;   // the store was copied.
  std::uint64_t version_ceiling = 0;
  // The record before the first one of this file; a file that an open begins
  // has a copy of it as its first.
  std::uint64_t follows = 0;
  base::Digest follows_hash{};
  std::int64_t time_ns = 0;
  std::string engine;  // Its version; at most 31 bytes.

  friend bool operator==(const Preface&, const Preface&) = default;
};

std::string EncodePreface(const Preface& preface);
// Nothing where the bytes do not begin with a whole one.
std::optional<Preface> DecodePreface(std::string_view bytes);

// The last acknowledged commit, written after it and synced with the second
// copy: what a power cut leaves of it may be old, and is never newer than what
// was acknowledged.
struct TipNote {
  std::array<std::uint8_t, 16> uuid{};
  std::uint64_t session = 0;
  std::uint64_t file = 0;
  std::uint64_t ordinal = 0;
  base::Digest hash{};

  friend bool operator==(const TipNote&, const TipNote&) = default;
};
std::string EncodeTip(const TipNote& tip);
std::optional<TipNote> DecodeTip(std::string_view bytes);

// Names in <store>/journal.
inline constexpr std::string_view kTipName = "tip";
inline constexpr std::string_view kReserveName = "reserve";
std::string JournalFileName(Copy copy, std::uint64_t file);
struct JournalFileId {
  Copy copy = Copy::kA;
  std::uint64_t file = 0;
  friend auto operator<=>(const JournalFileId&, const JournalFileId&) = default;
};
std::optional<JournalFileId> ParseJournalFileName(std::string_view name);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_PREFACE_H_
