// SPDX-License-Identifier: Apache-2.0

// Hot path: per chunk coded.

#include "core/coding/block_coder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/coding/byte_planes.h"
#include "core/coding/coded_block.h"
#include "core/coding/rounded_copy.h"

// For ZSTD_c_literalCompressionMode: frames that entropy alone makes smaller.
// They are frames like any other.
#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

namespace ckptree::internal {
namespace {

constexpr std::size_t kSampleBytes = 16 << 10;
constexpr std::size_t kSamplePieces = 8;
constexpr std::size_t kLeastBytes = 1 << 10;
// Bits a byte from which on Huffman has nothing to give that is worth its time,
// and below which the bytes repeat enough to be looked for.
constexpr double kTooDense = 7.75;
constexpr double kRepeats = 1.5;
// A wider word must be so much better: of equals the narrow one is faster.
constexpr double kWorthWider = 0.99;

struct PlanOfBlock {
  int width = 1;
  std::array<double, kMaxWordBytes> bits = {};  // A byte, of each plane.
  double share = 1;                             // Of the raw bytes, about.
};

double BitsPerByte(const std::byte* bytes, std::size_t count) {
  // Four, so that equal neighbours do not wait for each other.
  std::array<std::array<std::uint32_t, 256>, 4> counts = {};
  for (std::size_t i = 0; i < count; ++i) {
    ++counts[i % 4][std::to_integer<std::size_t>(bytes[i])];
  }
  const auto total = static_cast<double>(count);
  double sum = 0;
  double values = 0;
  for (std::size_t value = 0; value < 256; ++value) {
    const std::uint32_t n = counts[0][value] + counts[1][value] +
                            counts[2][value] + counts[3][value];
    if (n == 0) continue;
    sum += n * std::log2(n);
    ++values;
  }
  // A sample has less entropy than what it is of: by so much, about.
  const double missing = (values - 1) / (2 * total * std::log(2.0));
  return std::min(8.0, std::log2(total) - sum / total + missing);
}

bool IsOneValue(const std::byte* bytes, std::size_t count) {
  return count > 0 && std::memcmp(bytes, bytes + 1, count - 1) == 0;
}

void PutPlaneHead(PlaneKind kind, std::size_t length, std::byte* to) {
  to[0] = static_cast<std::byte>(kind);
  for (int i = 0; i < 4; ++i) {
    to[1 + i] = static_cast<std::byte>(length >> (24 - 8 * i) & 0xff);
  }
}

// Null where there is no memory.
ZSTD_CCtx* MakeCoder(bool look_for_repeats) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  if (context == nullptr) return nullptr;
  const auto set = [&](ZSTD_cParameter parameter, int value) {
    // A library without it makes other frames, which are as good.
    static_cast<void>(ZSTD_CCtx_setParameter(context, parameter, value));
  };
  set(ZSTD_c_compressionLevel, look_for_repeats ? 1 : ZSTD_minCLevel());
  if (!look_for_repeats) {
    set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    // Cleared for each frame.
    set(ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
  }
  return context;
}

}  // namespace

struct BlockCoder::State {
  State() : words(kCellBytes), sample(kSampleBytes) {}
  ~State() {
    ZSTD_freeCCtx(entropy);
    ZSTD_freeCCtx(repeats);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  PlanOfBlock Plan(std::span<const std::byte> payload);
  // Writes one cell; returns its bytes. REQUIRES: room for the raw bytes and
  // the heads of the planes.
  std::size_t EncodeCell(std::span<const std::byte> raw,
                         const PlanOfBlock& plan, std::byte* to);
  // Returns 0 where it is not smaller.
  std::size_t Compress(const std::byte* plane, std::size_t count,
                       bool look_for_repeats, std::byte* to);

  Planes<std::byte> PlanesOf(std::size_t count) {
    Planes<std::byte> planes = {};
    for (std::size_t b = 0; b < kMaxWordBytes; ++b) {
      planes[b] = words.data() + std::min(b * count, words.size());
    }
    return planes;
  }

  std::vector<std::byte> words;  // The planes of one cell, or of the sample.
  std::vector<std::byte> sample;
  std::vector<std::byte> coded;
  ZSTD_CCtx* const entropy = MakeCoder(false);
  ZSTD_CCtx* const repeats = MakeCoder(true);
};

BlockCoder::BlockCoder() = default;
BlockCoder::~BlockCoder() = default;
BlockCoder::BlockCoder(BlockCoder&&) noexcept = default;
BlockCoder& BlockCoder::operator=(BlockCoder&&) noexcept = default;

BlockCoder::State& BlockCoder::state() {
  if (state_ == nullptr) state_ = std::make_unique<State>();
  return *state_;
}

PlanOfBlock BlockCoder::State::Plan(std::span<const std::byte> payload) {
  // Of less the head would be much, and the sample says little.
  if (payload.size() < kLeastBytes) return {};
  std::span<const std::byte> some = payload;
  if (payload.size() > kSampleBytes) {
    constexpr std::size_t kPiece = kSampleBytes / kSamplePieces;
    const std::size_t stride = (payload.size() - kPiece) / (kSamplePieces - 1) /
                               kMaxWordBytes * kMaxWordBytes;
    for (std::size_t i = 0; i < kSamplePieces; ++i) {
      std::memcpy(sample.data() + i * kPiece, payload.data() + i * stride,
                  kPiece);
    }
    some = sample;
  }
  PlanOfBlock best;
  for (const int width : {1, 2, 4, 8}) {
    const std::size_t count = some.size() / static_cast<std::size_t>(width);
    if (count == 0) break;
    const Planes<std::byte> planes = PlanesOf(count);
    SplitPlanes(some.data(), count, width, width > 1, planes);
    PlanOfBlock plan;
    plan.width = width;
    double bits = 0;
    for (std::size_t b = 0; b < static_cast<std::size_t>(width); ++b) {
      plan.bits[b] = BitsPerByte(planes[b], count);
      bits += plan.bits[b] < kTooDense ? plan.bits[b] : 8;
    }
    plan.share = bits / (8 * width);
    if (plan.share < best.share * (width == 1 ? 1 : kWorthWider)) best = plan;
  }
  return best;
}

std::size_t BlockCoder::State::Compress(const std::byte* plane,
                                        std::size_t count,
                                        bool look_for_repeats, std::byte* to) {
  ZSTD_CCtx* const context = look_for_repeats ? repeats : entropy;
  if (context == nullptr) return 0;
  const std::size_t bytes =
      ZSTD_compress2(context, to, count - 1, plane, count);
  return ZSTD_isError(bytes) != 0 ? 0 : bytes;
}

std::size_t BlockCoder::State::EncodeCell(std::span<const std::byte> raw,
                                          const PlanOfBlock& plan,
                                          std::byte* to) {
  const auto width = static_cast<std::size_t>(plan.width);
  const std::size_t count = raw.size() / width;
  const Planes<std::byte> planes = PlanesOf(count);
  SplitPlanes(raw.data(), count, plan.width, width > 1, planes);
  std::byte* head = to;
  std::byte* at = to + width * kPlaneHeadBytes;
  for (std::size_t b = 0; b < width; ++b, head += kPlaneHeadBytes) {
    const std::byte* const plane = planes[b];
    PlaneKind kind = PlaneKind::kRaw;
    std::size_t length = count;
    if (IsOneValue(plane, count)) {
      kind = PlaneKind::kOneValue;
      length = 1;
    } else if (count > 1 && plan.bits[b] < kTooDense) {
      const std::size_t bytes =
          Compress(plane, count, plan.bits[b] < kRepeats, at);
      if (bytes != 0) {
        kind = PlaneKind::kZstd;
        length = bytes;
      }
    }
    if (kind != PlaneKind::kZstd) std::memcpy(at, plane, length);
    PutPlaneHead(kind, length, head);
    at += length;
  }
  const std::size_t rest = raw.size() - count * width;
  std::memcpy(at, raw.data() + count * width, rest);
  return static_cast<std::size_t>(at + rest - to);
}

std::string_view BlockCoder::Encode(std::span<const std::byte> payload,
                                    const base::Digest& digest) {
  State& s = state();
  CodedHead head;
  const bool has_copy =
      payload.size() >= kLeastBytes && EndsWithRoundedCopy(payload);
  if (has_copy) head.coding = BlockCoding::kRoundedCopy;
  const std::span<const std::byte> in_cells =
      payload.first(BytesInCells(head.coding, payload.size()));
  PlanOfBlock plan = s.Plan(in_cells);
  if (plan.share > kMostOfRaw) {
    if (!has_copy) return {};
    if (plan.share >= 1) plan.bits[0] = 8;  // Bytes as they are.
  }
  head.width = plan.width;
  head.map = plan.width > 1 ? WordMap::kRotated : WordMap::kNone;
  head.raw_length = static_cast<std::uint32_t>(payload.size());
  head.digest = digest;
  if (has_copy) {
    head.digest = base::DigestOf(in_cells);
    head.copy = base::DigestOf(payload.subspan(in_cells.size()));
  }
  head.cells.resize(CellCount(in_cells.size()));
  const std::size_t head_bytes = head.head_bytes();
  const std::size_t most = head_bytes + payload.size() +
                           head.cells.size() * kMaxWordBytes * kPlaneHeadBytes;
  if (s.coded.size() < most) s.coded.resize(most);
  const auto limit = static_cast<std::size_t>(
      kMostOfRaw * static_cast<double>(payload.size()));
  std::size_t done = 0;
  for (std::size_t c = 0; c < head.cells.size(); ++c) {
    const std::span<const std::byte> raw =
        in_cells.subspan(c * kCellBytes, head.raw_bytes(c));
    std::byte* const to = s.coded.data() + head_bytes + done;
    const std::size_t bytes = s.EncodeCell(raw, plan, to);
    done += bytes;
    if (head_bytes + done > limit) return {};
    head.cells[c].end = static_cast<std::uint32_t>(done);
    head.cells[c].checksum =
        base::ChecksumOf({reinterpret_cast<const char*>(to), bytes});
  }
  const std::string encoded = EncodeCodedHead(head);
  std::memcpy(s.coded.data(), encoded.data(), head_bytes);
  return {reinterpret_cast<const char*>(s.coded.data()), head_bytes + done};
}

double BlockCoder::ShareBySample(std::span<const std::byte> payload) {
  const double share = state().Plan(payload).share;
  return share > kMostOfRaw ? 1 : share;
}

}  // namespace ckptree::internal
