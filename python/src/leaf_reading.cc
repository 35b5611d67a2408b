// SPDX-License-Identifier: Apache-2.0

#include "python/src/leaf_reading.h"

#include <cstring>
#include <limits>

#include "python/src/errors.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

constexpr std::size_t kUnknownSize = std::numeric_limits<std::size_t>::max();

// Bytes of the values of `leaves`, which are no arrays.
absl::StatusOr<std::vector<std::size_t>> SizesOf(
    const Step& step, const std::vector<LeafInfo>& leaves) {
  std::vector<std::size_t> sizes;
  std::vector<LeafInfo> unknown;
  for (const LeafInfo& leaf : leaves) {
    std::size_t size = 0;
    if (leaf.kind == EntryKind::kBool) {
      size = 1;
    } else if (leaf.kind == EntryKind::kInt || leaf.kind == EntryKind::kFloat) {
      size = sizeof(double);
    } else if (leaf.kind == EntryKind::kComplex) {
      size = 2 * sizeof(double);
    } else {
      unknown.push_back(leaf);
      size = kUnknownSize;
    }
    sizes.push_back(size);
  }
  if (unknown.empty()) return sizes;
  const absl::StatusOr<std::vector<LeafDetail>> details = step.Details(unknown);
  if (!details.ok()) return details.status();
  auto detail = details->begin();
  for (std::size_t& size : sizes) {
    if (size == kUnknownSize) size = (detail++)->bytes;
  }
  return sizes;
}

}  // namespace

nb::object ToObject(const LeafValue& value) {
  const auto* bytes = reinterpret_cast<const char*>(value.bytes.data());
  const EntryKind kind = value.info.kind;
  if (kind == EntryKind::kBool) return nb::bool_(Take(value.Bool()));
  if (kind == EntryKind::kInt) return nb::int_(Take(value.Int()));
  if (kind == EntryKind::kFloat) return nb::float_(Take(value.Float()));
  if (kind == EntryKind::kComplex && value.bytes.size() == 2 * sizeof(double)) {
    double parts[2];
    std::memcpy(parts, bytes, sizeof(parts));
    return nb::steal(PyComplex_FromDoubles(parts[0], parts[1]));
  }
  if (kind == EntryKind::kStr || kind == EntryKind::kJson)
    return ToText(Take(value.String()));
  return nb::bytes(bytes, value.bytes.size());
}

absl::StatusOr<std::vector<LeafValue>> ReadValues(
    const Step& step, const std::vector<LeafInfo>& leaves,
    const ReadOptions& options) {
  const absl::StatusOr<std::vector<std::size_t>> sizes = SizesOf(step, leaves);
  if (!sizes.ok()) return sizes.status();
  std::vector<LeafValue> values(leaves.size());
  std::vector<ReadRequest> requests(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    values[i].info = leaves[i];
    values[i].bytes.resize((*sizes)[i]);
    requests[i].path = leaves[i].path;
    requests[i].destination = values[i].bytes;
  }
  if (absl::Status status = step.ReadMany(requests, options); !status.ok()) {
    return status;
  }
  return values;
}

void ReadInto(const StepObject& self, const std::vector<ReadRequest>& requests,
              std::size_t bytes, nb::handle progress) {
  const bool is_long = bytes >= kLongBytes || requests.size() >= kLongCount;
  Check(ReadWith(self, is_long, progress,
                 [&](const Step& step, const ReadOptions& options) {
                   return step.ReadMany(requests, options);
                 }));
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace ckptree::python
