// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tools/files/head.h"
#include "tools/files/json_look.h"
#include "tools/output/safetensors.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::uint64_t kMostJsonBytes = 100'000'000;  // The format's own.
constexpr int kMostJsonDepth = 4;
constexpr std::string_view kMetadata = "__metadata__";

std::optional<DType> SafetensorsDType(std::string_view name) {
  for (const DType dtype : AllDTypes()) {
    if (SafetensorsType(dtype) == name) return dtype;
  }
  if (name == "F8_E4M3FNUZ") return DType::kFloat8E4m3fnuz;
  if (name == "F8_E5M2FNUZ") return DType::kFloat8E5m2fnuz;
  return std::nullopt;
}

absl::Status Wrong(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("its array `%s` %s", Escape(name), what));
}

// Which name is there twice.
absl::Status SaidTwice(const std::vector<std::string>& names) {
  const std::string last = Escape(names.back().substr(0, 60));
  if (names.size() == 1) return Wrong(names[0].substr(0, 60), "is there twice");
  const std::string what = absl::StrFormat("has `%s` twice", last);
  if (names.front() == kMetadata) {
    return absl::InvalidArgumentError("its metadata " + what);
  }
  return Wrong(names[0].substr(0, 60), what);
}

absl::StatusOr<FileArray> SafetensorsArray(const std::string& name,
                                           const nlohmann::json& entry,
                                           std::uint64_t data_bytes) {
  FileArray array;
  array.name = name;
  const auto dtype = entry.find("dtype");
  const auto shape = entry.find("shape");
  const auto offsets = entry.find("data_offsets");
  if (dtype == entry.end() || !dtype->is_string() || shape == entry.end() ||
      !shape->is_array() || offsets == entry.end() || !offsets->is_array() ||
      offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return Wrong(name, "has no dtype, shape and data_offsets");
  }
  Shape dims;
  for (const auto& dim : *shape) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() > std::uint64_t{1}
                                                                    << 56) {
      return Wrong(name, "has an impossible shape");
    }
    dims.push_back(dim.get<std::int64_t>());
  }
  const auto begin = (*offsets)[0].get<std::uint64_t>();
  const auto end = (*offsets)[1].get<std::uint64_t>();
  if (begin > end || end > data_bytes) {
    return Wrong(name, "lies outside of the file, which may be cut");
  }
  array.type = dtype->get<std::string>();
  array.offset = begin;
  array.bytes = end - begin;
  const std::optional<DType> type = SafetensorsDType(array.type);
  if (!type) {
    array.why_not =
        absl::StrFormat("its type %s is not known here", Escape(array.type));
  }
  if (absl::Status status =
          SetLeaf(&array, type.value_or(DType::kNone), std::move(dims));
      !status.ok()) {
    return status;
  }
  return array;
}

}  // namespace

absl::StatusOr<FileHead> ParseSafetensors(std::string_view bytes,
                                          std::uint64_t file_bytes) {
  if (file_bytes < 8) return absl::InvalidArgumentError("it is too short");
  if (bytes.size() < 8) return absl::OutOfRangeError("more");
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length << 8 | static_cast<std::uint8_t>(bytes[i]);
  }
  if (length > kMostJsonBytes || length > file_bytes - 8) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its head of %d bytes does not fit in it", length));
  }
  if (bytes.size() - 8 < length) return absl::OutOfRangeError("more");
  const std::string_view text = bytes.substr(8, length);
  const auto [json, twice] = ParseForeignJson(text, kMostJsonDepth);
  if (!json.is_object()) {
    return absl::InvalidArgumentError("its head is not the JSON of the format");
  }
  if (twice) return SaidTwice(*twice);
  FileHead head;
  const std::uint64_t data_bytes = file_bytes - 8 - length;
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) {
        return absl::InvalidArgumentError("its __metadata__ is no map");
      }
      for (const auto& [key, value] : entry.items()) {
        head.metadata.emplace_back(key, TextOf(value));
      }
      continue;
    }
    absl::StatusOr<FileArray> array = SafetensorsArray(name, entry, data_bytes);
    if (!array.ok()) return array.status();
    array->offset += 8 + length;
    head.arrays.push_back(*std::move(array));
  }
  if (absl::Status status =
          CheckPlaces(head.arrays, 8 + length, file_bytes, /*whole=*/true);
      !status.ok()) {
    return status;
  }
  return head;
}

}  // namespace ckptree::tools
