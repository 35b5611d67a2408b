// SPDX-License-Identifier: Apache-2.0

// Arrays of a file as leaves: their names, types and sizes.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/files/array_file.h"
#include "tools/files/head.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

absl::StatusOr<Path> PathOfName(const std::string& name) {
  absl::StatusOr<Path> parsed = Path::Parse(name);
  if (parsed.ok() && !parsed->empty() && parsed->Text() == name &&
      parsed->Validate().ok()) {
    return parsed;
  }
  Path path;
  path.Key(name);
  if (absl::Status status = path.Validate(); !status.ok() || name.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("its array `%s` has a name that no leaf can have",
                        Escape(name.substr(0, 60))));
  }
  return path;
}

absl::Status Unnamed(const std::string& path, const absl::Status& why) {
  return WithHint(absl::FailedPreconditionError(absl::StrFormat(
                      "%s: %s", Escape(path), std::string(why.message()))),
                  "give the array another name in the file");
}

absl::Status SetLeaf(FileArray* array, DType dtype, Shape shape) {
  absl::StatusOr<Path> path = PathOfName(array->name);
  if (!path.ok()) return path.status();
  array->leaf.path = *std::move(path);
  array->leaf.name = array->leaf.path.Text();
  array->leaf.kind = EntryKind::kArray;
  array->leaf.shape = std::move(shape);
  if (dtype == DType::kNone) return absl::OkStatus();
  const std::optional<std::int64_t> bytes =
      ArrayBytes(dtype, false, array->leaf.shape);
  if (!bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its array `%s` is impossibly large", Escape(array->name)));
  }
  if (array->bytes != static_cast<std::uint64_t>(*bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its array `%s` has %d bytes, and its shape wants %d: it may be cut",
        Escape(array->name), array->bytes, *bytes));
  }
  array->leaf.dtype = dtype;
  return absl::OkStatus();
}

absl::Status CheckPlaces(const std::vector<FileArray>& arrays,
                         std::uint64_t begin, std::uint64_t end, bool whole) {
  std::vector<const FileArray*> in_order;
  in_order.reserve(arrays.size());
  for (const FileArray& array : arrays) {
    if (array.bytes > 0) in_order.push_back(&array);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const FileArray* a, const FileArray* b) {
              return a->offset < b->offset;
            });
  std::uint64_t at = begin;
  const FileArray* before = nullptr;
  for (const FileArray* array : in_order) {
    if (array->offset < at) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "its array `%s` lies over `%s`", Escape(array->name.substr(0, 60)),
          Escape((before == nullptr ? array : before)->name.substr(0, 60))));
    }
    if (whole && array->offset > at) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%d bytes before its array `%s` are of none", array->offset - at,
          Escape(array->name.substr(0, 60))));
    }
    at = array->offset + array->bytes;
    before = array;
  }
  if (whole && at < end) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the last %d bytes are of no array", end - at));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::tools
