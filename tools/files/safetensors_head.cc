// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "tools/files/head.h"
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

// Looks at the JSON of a head before it is parsed: how deep it is, and whether
// a name is in it twice. A callback of parse() could say that, too, but takes
// time by the square of the number of arrays.
class HeadCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    // Of two of a name JSON would keep the last.
    if (depth_ == 1) {
      if (!names_.insert(name).second) twice_ = name;
      in_metadata_ = name == kMetadata;
    } else if (depth_ == 2 && in_metadata_) {
      if (!keys_.insert(name).second) key_twice_ = name;
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception&) override {
    return false;
  }

  const std::optional<std::string>& twice() const { return twice_; }
  // Of the metadata.
  const std::optional<std::string>& key_twice() const { return key_twice_; }

 private:
  bool Enter() { return ++depth_ <= kMostJsonDepth; }
  bool Leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::set<std::string> names_, keys_;
  std::optional<std::string> twice_, key_twice_;
};

absl::Status Wrong(std::string_view name, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("its array `%s` %s", Escape(name), what));
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
  HeadCheck check;
  const bool right = nlohmann::json::sax_parse(text, &check);
  const auto json = right ? nlohmann::json::parse(text, nullptr,
                                                  /*allow_exceptions=*/false)
                          : nlohmann::json();
  if (!json.is_object()) {
    return absl::InvalidArgumentError("its head is not the JSON of the format");
  }
  if (check.twice()) {
    return Wrong(check.twice()->substr(0, 60), "is there twice");
  }
  if (check.key_twice()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its metadata has `%s` twice",
                        Escape(check.key_twice()->substr(0, 60))));
  }
  FileHead head;
  const std::uint64_t data_bytes = file_bytes - 8 - length;
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadata) {
      if (!entry.is_object()) {
        return absl::InvalidArgumentError("its __metadata__ is no map");
      }
      for (const auto& [key, value] : entry.items()) {
        head.metadata.emplace_back(key, value.is_string()
                                            ? value.get<std::string>()
                                            : value.dump(-1, ' ', true));
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
