// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "schema/leaf_map.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

void AppendVarint(std::uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>((value & 0x7f) | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

// A varint and where the next one begins: null where it is cut off, above 64
// bits or longer than it needs to be.
struct Varint {
  std::uint64_t value;
  const char* next;
};

Varint TakeLongVarint(const char* at, const char* end) {
  std::uint64_t value = 0;
  for (int i = 0; at + i != end && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>(at[i]);
    if (i == 9 && byte > 1) break;
    value |= std::uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      if (i > 0 && byte == 0) break;
      return {value, at + i + 1};
    }
  }
  return {0, nullptr};
}

// Most are of one byte, and those of versions of two. A list of steps reads
// hundreds for each of thousands of steps.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline Varint TakeVarint(const char* at,
                                                      const char* end) {
  if (end - at >= 2) {
    const auto first = static_cast<unsigned char>(at[0]);
    if (first < 0x80) return {first, at + 1};
    const auto second = static_cast<unsigned char>(at[1]);
    if (second > 0 && second < 0x80) {
      return {(first & 0x7fu) | std::uint64_t{second} << 7, at + 2};
    }
  }
  return TakeLongVarint(at, end);
}

constexpr std::uint64_t ZigZag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^
         static_cast<std::uint64_t>(value >> 63);
}

constexpr std::int64_t UnZigZag(std::uint64_t value) {
  return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
}

absl::Status MapFault(std::string_view what) {
  return absl::DataLossError(absl::StrFormat("leaf map: %s", what));
}

// Whether both are one run.
bool Continues(const MapRun& last, const MapRun& next) {
  return last.place == next.place && last.version == next.version &&
         last.source + last.count == next.source;
}

absl::Status CutOff(std::uint64_t run) {
  return MapFault(absl::StrFormat("run %d is cut off", run));
}

constexpr std::size_t kMinRunBytes = 3;

// Calls `fn(run)` for each run, until it returns false; of how many leaves they
// are. kDataLoss where the bytes are no map.
template <typename Fn>
absl::StatusOr<std::uint32_t> ForEachRun(std::string_view bytes, Fn fn) {
  const char* const end = bytes.data() + bytes.size();
  const Varint runs = TakeVarint(bytes.data(), end);
  if (runs.next == nullptr) return MapFault("the number of runs is cut off");
  const char* at = runs.next;
  if (runs.value > static_cast<std::size_t>(end - at) / kMinRunBytes) {
    return MapFault(
        absl::StrFormat("%d runs in %d bytes", runs.value, end - at));
  }
  std::uint32_t size = 0;
  MapRun last;
  for (std::uint64_t i = 0; i < runs.value; ++i) {
    const Varint head = TakeVarint(at, end);
    if (head.next == nullptr) return CutOff(i);
    const Varint version = TakeVarint(head.next, end);
    if (version.next == nullptr) return CutOff(i);
    const Varint shift = TakeVarint(version.next, end);
    if (shift.next == nullptr) return CutOff(i);
    at = shift.next;
    const std::uint64_t count = head.value >> 1;
    const Space place = (head.value & 1) != 0 ? Space::kSmall : Space::kLeaves;
    if (count == 0 || count > static_cast<std::uint64_t>(kMaxLeaves) - size) {
      return MapFault(
          absl::StrFormat("run %d has %d leaves after %d", i, count, size));
    }
    if (version.value == 0) return MapFault("a run is of version 0");
    const std::int64_t delta = UnZigZag(shift.value);
    if (delta < -kMaxLeaves || delta > kMaxLeaves) {
      return MapFault(absl::StrFormat("run %d has its source out of range", i));
    }
    const std::int64_t source = std::int64_t{size} + delta;
    if (source < 0 || source + static_cast<std::int64_t>(count) > kMaxLeaves) {
      return MapFault(absl::StrFormat("run %d has its source out of range", i));
    }
    const MapRun run = {size, static_cast<std::uint32_t>(count), place,
                        version.value, static_cast<std::uint32_t>(source)};
    if (i > 0 && Continues(last, run)) {
      return MapFault(absl::StrFormat("run %d continues the one before", i));
    }
    if (!fn(run)) return size;
    size += run.count;
    last = run;
  }
  if (at != end) {
    return MapFault(absl::StrFormat("%d bytes follow it", end - at));
  }
  return size;
}

MapRun OneOf(MapRun run, std::uint32_t ordinal) {
  run.source += ordinal - run.first;
  run.first = ordinal;
  run.count = 1;
  return run;
}

}  // namespace

void LeafMap::Append(Space place, std::uint64_t version, std::uint32_t source) {
  AppendRun(place, version, source, 1);
}

void LeafMap::AppendRun(Space place, std::uint64_t version,
                        std::uint32_t source, std::uint32_t count) {
  if (count == 0) return;
  const MapRun next = {size_, count, place, version, source};
  size_ += count;
  if (!runs_.empty() && Continues(runs_.back(), next)) {
    runs_.back().count += count;
  } else {
    runs_.push_back(next);
  }
}

MapRun LeafMap::At(std::uint32_t ordinal) const {
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), ordinal,
      [](std::uint32_t value, const MapRun& run) { return value < run.first; });
  if (after == runs_.begin() || ordinal >= size_) return {};
  return OneOf(*(after - 1), ordinal);
}

std::size_t LeafMap::SourceCount() const {
  std::vector<std::pair<std::uint64_t, Space>> sources;
  sources.reserve(runs_.size());
  for (const MapRun& run : runs_) sources.emplace_back(run.version, run.place);
  std::sort(sources.begin(), sources.end());
  return static_cast<std::size_t>(std::unique(sources.begin(), sources.end()) -
                                  sources.begin());
}

std::string EncodeLeafMap(const LeafMap& map) {
  std::string out;
  out.reserve(2 + 6 * map.runs().size());
  AppendVarint(map.runs().size(), &out);
  for (const MapRun& run : map.runs()) {
    const std::uint64_t small = run.place == Space::kSmall ? 1 : 0;
    AppendVarint(std::uint64_t{run.count} << 1 | small, &out);
    AppendVarint(run.version, &out);
    AppendVarint(ZigZag(std::int64_t{run.source} - std::int64_t{run.first}),
                 &out);
  }
  return out;
}

absl::StatusOr<LeafMap> DecodeLeafMap(std::string_view bytes) {
  LeafMap map;
  const absl::StatusOr<std::uint32_t> size =
      ForEachRun(bytes, [&map](const MapRun& run) {
        map.AppendRun(run.place, run.version, run.source, run.count);
        return true;
      });
  if (!size.ok()) return size.status();
  return map;
}

PackedLeafMap::PackedLeafMap(const LeafMap& map)
    : bytes_(EncodeLeafMap(map)), size_(map.size()) {}

absl::StatusOr<PackedLeafMap> PackedLeafMap::Of(std::string bytes) {
  const absl::StatusOr<std::uint32_t> size =
      ForEachRun(bytes, [](const MapRun&) { return true; });
  if (!size.ok()) return size.status();
  return PackedLeafMap(std::move(bytes), *size);
}

MapRun PackedLeafMap::At(std::uint32_t ordinal) const {
  MapRun found;
  // What was refused is in none of these.
  ForEachRun(bytes_, [&](const MapRun& run) {
    if (ordinal - run.first >= run.count) return true;
    found = OneOf(run, ordinal);
    return false;
  }).IgnoreError();
  return found;
}

LeafMap PackedLeafMap::Unpack() const {
  absl::StatusOr<LeafMap> map = DecodeLeafMap(bytes_);
  return map.ok() ? *std::move(map) : LeafMap();
}

}  // namespace ckptree::schema
