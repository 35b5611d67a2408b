// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk decoded.

#include "core/coding/block_decoder.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/coding/byte_planes.h"
#include "core/coding/rounded_copy.h"

namespace ckptree::internal {
namespace {

absl::Status BadCell(std::size_t cell, std::string_view what) {
  return absl::DataLossError(
      absl::StrFormat("a coded block: cell %d: %s", cell, what));
}

const std::byte* CodedBytes(std::string_view text) {
  return reinterpret_cast<const std::byte*>(text.data());
}

}  // namespace

struct BlockDecoder::State {
  State() : planes(kCellBytes) {}
  ~State() { ZSTD_freeDCtx(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  absl::Status DecodeCell(const CodedHead& head, std::size_t cell,
                          std::string_view coded, std::span<std::byte> raw);
  // To `to`, which has `count` bytes.
  absl::Status DecodeFrame(std::size_t cell, std::string_view frame,
                           std::byte* to, std::size_t count);

  std::vector<std::byte> planes;
  ZSTD_DCtx* const context = ZSTD_createDCtx();
};

BlockDecoder::BlockDecoder() = default;
BlockDecoder::~BlockDecoder() = default;
BlockDecoder::BlockDecoder(BlockDecoder&&) noexcept = default;
BlockDecoder& BlockDecoder::operator=(BlockDecoder&&) noexcept = default;

absl::Status BlockDecoder::State::DecodeFrame(std::size_t cell,
                                              std::string_view frame,
                                              std::byte* to,
                                              std::size_t count) {
  if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != count) {
    return BadCell(cell, "a frame is not of its plane");
  }
  const std::size_t done =
      ZSTD_decompressDCtx(context, to, count, frame.data(), frame.size());
  if (ZSTD_isError(done) != 0) {
    return BadCell(cell,
                   absl::StrFormat("zstd says: %s", ZSTD_getErrorName(done)));
  }
  if (done != count) return BadCell(cell, "a plane is too short");
  return absl::OkStatus();
}

absl::Status BlockDecoder::State::DecodeCell(const CodedHead& head,
                                             std::size_t cell,
                                             std::string_view coded,
                                             std::span<std::byte> raw) {
  const auto width = static_cast<std::size_t>(head.width);
  const std::size_t count = raw.size() / width;
  const std::size_t rest = raw.size() % width;
  if (coded.size() < width * kPlaneHeadBytes + rest) {
    return BadCell(cell, "it is too short for its planes");
  }
  std::string_view left = coded.substr(width * kPlaneHeadBytes);
  left.remove_suffix(rest);
  Planes<const std::byte> found = {};
  std::byte* free = planes.data();
  for (std::size_t b = 0; b < width; ++b) {
    const std::size_t at = b * kPlaneHeadBytes;
    const auto kind =
        static_cast<PlaneKind>(static_cast<std::uint8_t>(coded[at]));
    const auto length = base::ReadBig<std::uint32_t>(coded, at + 1);
    if (length > left.size()) return BadCell(cell, "a plane is longer than it");
    const std::string_view plane = left.substr(0, length);
    left.remove_prefix(length);
    switch (kind) {
      case PlaneKind::kRaw:
        if (length != count) return BadCell(cell, "a plane has another length");
        found[b] = CodedBytes(plane);
        continue;
      case PlaneKind::kOneValue:
        if (length != 1)
          return BadCell(cell, "a plane of one value has others");
        std::memset(free, plane[0], count);
        break;
      case PlaneKind::kZstd:
        CKPTREE_RETURN_IF_ERROR(DecodeFrame(cell, plane, free, count));
        break;
      default:
        return BadCell(cell, absl::StrFormat("a plane of kind %d",
                                             static_cast<std::uint8_t>(kind)));
    }
    found[b] = free;
    free += count;
  }
  if (!left.empty()) return BadCell(cell, "bytes of no plane");
  MergePlanes(found, count, head.width, head.map == WordMap::kRotated,
              raw.data());
  std::copy_n(CodedBytes(coded) + coded.size() - rest, rest,
              raw.data() + count * width);
  return absl::OkStatus();
}

absl::Status BlockDecoder::DecodeCells(const CodedHead& head, std::size_t first,
                                       std::size_t end, std::string_view cells,
                                       std::span<std::byte> raw) {
  if (state_ == nullptr) {
    auto state = std::make_unique<State>();
    if (state->context == nullptr) {
      return absl::ResourceExhaustedError("no memory to decode with");
    }
    state_ = std::move(state);
  }
  std::size_t done = 0;
  for (std::size_t c = first; c < end; ++c) {
    const std::size_t length = head.cells[c].end - head.begin(c);
    const std::size_t size = head.raw_bytes(c);
    if (length > cells.size() || size > raw.size() - done) {
      return BadCell(c, "it is cut short");
    }
    const std::string_view coded = cells.substr(0, length);
    cells.remove_prefix(length);
    if (base::ChecksumOf(coded) != head.cells[c].checksum) {
      return BadCell(c, "it is not what was written");
    }
    CKPTREE_RETURN_IF_ERROR(
        state_->DecodeCell(head, c, coded, raw.subspan(done, size)));
    done += size;
  }
  return absl::OkStatus();
}

absl::Status BlockDecoder::Decode(std::string_view stored,
                                  std::span<std::byte> raw) {
  CKPTREE_ASSIGN_OR_RETURN(const CodedHead head,
                           DecodeCodedHead(stored, stored.size(), raw.size()));
  const std::span<std::byte> in_cells = raw.first(head.in_cells());
  CKPTREE_RETURN_IF_ERROR(DecodeCells(
      head, 0, head.cells.size(), stored.substr(head.head_bytes()), in_cells));
  if (head.coding == BlockCoding::kRoundedCopy) {
    RoundWords(in_cells, raw.data() + in_cells.size());
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
