// SPDX-License-Identifier: Apache-2.0

#include "ckptree/path.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "schema/limits.h"
#include "schema/path_encoding.h"

namespace ckptree {

bool operator==(const Key& a, const Key& b) {
  if (a.value.index() != b.value.index()) return false;
  if (const auto* x = std::get_if<double>(&a.value)) {
    return std::bit_cast<std::uint64_t>(*x) ==
           std::bit_cast<std::uint64_t>(std::get<double>(b.value));
  }
  return a.value == b.value;
}

Path& Path::Key(std::string_view name) {
  Append(PartKind::kDictKey).value = std::string(name);
  return *this;
}

Path& Path::Key(ckptree::Key key) {
  Append(PartKind::kDictKey) = std::move(key);
  return *this;
}

Path& Path::Index(std::int64_t index) {
  Append(PartKind::kIndex).value = index;
  return *this;
}

Path& Path::Attribute(std::string_view name) {
  Append(PartKind::kAttribute).value = std::string(name);
  return *this;
}

Path& Path::Flattened(std::int64_t index) {
  Append(PartKind::kFlattened).value = index;
  return *this;
}

Path& Path::Part(PathPart part) {
  parts_.push_back(std::move(part));
  return *this;
}

Path& Path::Up() {
  parts_.pop_back();
  return *this;
}

Key& Path::Append(PartKind kind) {
  PathPart& part = parts_.emplace_back();
  part.kind = kind;
  return part.key;
}

std::string Path::Encode() const {
  std::string out;
  for (const PathPart& part : parts_) schema::AppendPartBytes(part, &out);
  return out;
}

absl::StatusOr<Path> Path::Decode(std::string_view bytes) {
  std::vector<PathPart> parts;
  if (const char* fault = schema::ReadPathBytes(bytes, &parts)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("encoded path: %s", fault));
  }
  return Path(std::move(parts));
}

absl::Status Path::Validate() const {
  if (parts_.size() > static_cast<std::size_t>(schema::kMaxPathDepth)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("path: %d parts, at most %d are allowed", parts_.size(),
                        schema::kMaxPathDepth));
  }
  for (const PathPart& part : parts_) {
    if (const char* fault = schema::PartFault(part)) {
      return absl::InvalidArgumentError(absl::StrFormat("path: %s", fault));
    }
  }
  if (schema::MostPathBytes(parts_) <=
      static_cast<std::size_t>(schema::kMaxPathBytes)) {
    return absl::OkStatus();
  }
  const std::size_t size = Encode().size();
  if (static_cast<std::int64_t>(size) > schema::kMaxPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("path: %d bytes encoded, at most %d are allowed", size,
                        schema::kMaxPathBytes));
  }
  return absl::OkStatus();
}

}  // namespace ckptree
