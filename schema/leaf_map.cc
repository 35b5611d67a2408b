// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "schema/leaf_map.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// Takes one off the front; nothing where it is cut off, above 64 bits or longer
// than it needs to be.
std::optional<std::uint64_t> TakeVarint(std::string_view* in) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < in->size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>((*in)[i]);
    if (i == 9 && byte > 1) return std::nullopt;
    value |= std::uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      if (i > 0 && byte == 0) return std::nullopt;
      in->remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
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

constexpr std::size_t kMinRunBytes = 3;

}  // namespace

void LeafMap::Append(Space place, std::uint64_t version, std::uint32_t source) {
  AppendRun(place, version, source, 1);
}

void LeafMap::AppendRun(Space place, std::uint64_t version,
                        std::uint32_t source, std::uint32_t count) {
  if (count == 0) return;
  if (!runs_.empty()) {
    MapRun& last = runs_.back();
    if (last.place == place && last.version == version &&
        last.source + last.count == source) {
      last.count += count;
      size_ += count;
      return;
    }
  }
  runs_.push_back({size_, count, place, version, source});
  size_ += count;
}

MapRun LeafMap::At(std::uint32_t ordinal) const {
  const auto after = std::upper_bound(
      runs_.begin(), runs_.end(), ordinal,
      [](std::uint32_t value, const MapRun& run) { return value < run.first; });
  if (after == runs_.begin() || ordinal >= size_) return {};
  MapRun run = *(after - 1);
  run.source += ordinal - run.first;
  run.first = ordinal;
  run.count = 1;
  return run;
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
  const std::optional<std::uint64_t> runs = TakeVarint(&bytes);
  if (!runs.has_value()) return MapFault("the number of runs is cut off");
  if (*runs > bytes.size() / kMinRunBytes) {
    return MapFault(
        absl::StrFormat("%d runs in %d bytes", *runs, bytes.size()));
  }
  LeafMap map;
  for (std::uint64_t i = 0; i < *runs; ++i) {
    const std::optional<std::uint64_t> head = TakeVarint(&bytes);
    const std::optional<std::uint64_t> version = TakeVarint(&bytes);
    const std::optional<std::uint64_t> shift = TakeVarint(&bytes);
    if (!head || !version || !shift) {
      return MapFault(absl::StrFormat("run %d is cut off", i));
    }
    const std::uint64_t count = *head >> 1;
    const Space place = (*head & 1) != 0 ? Space::kSmall : Space::kLeaves;
    if (count == 0 ||
        count > static_cast<std::uint64_t>(kMaxLeaves) - map.size()) {
      return MapFault(absl::StrFormat("run %d has %d leaves after %d", i, count,
                                      map.size()));
    }
    if (*version == 0) return MapFault("a run is of version 0");
    const std::int64_t delta = UnZigZag(*shift);
    if (delta < -kMaxLeaves || delta > kMaxLeaves) {
      return MapFault(absl::StrFormat("run %d has its source out of range", i));
    }
    const std::int64_t source = std::int64_t{map.size()} + delta;
    if (source < 0 || source + static_cast<std::int64_t>(count) > kMaxLeaves) {
      return MapFault(absl::StrFormat("run %d has its source out of range", i));
    }
    map.AppendRun(place, *version, static_cast<std::uint32_t>(source),
                  static_cast<std::uint32_t>(count));
    if (map.runs().size() != i + 1) {
      return MapFault(absl::StrFormat("run %d continues the one before", i));
    }
  }
  if (!bytes.empty()) {
    return MapFault(absl::StrFormat("%d bytes follow it", bytes.size()));
  }
  return map;
}

}  // namespace ckptree::schema
