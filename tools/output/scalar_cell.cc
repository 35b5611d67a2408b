// SPDX-License-Identifier: Apache-2.0

#include "tools/output/scalar_cell.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/output/decimal.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::uint64_t kMostScalarBytes = 64 << 10;
constexpr int kMostScalarColumns = 40;

absl::StatusOr<Cell> LargeIntCell(const Step& step, const LeafInfo& leaf) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.shape[0]));
  if (absl::Status status = step.Read(leaf.path, bytes); !status.ok()) {
    return status;
  }
  const std::string digits = DecimalText(bytes);
  return Cell{Json(digits),
              ElideMiddle(digits, kMostScalarColumns, /*utf8=*/false)};
}

}  // namespace

bool HasScalar(const LeafInfo& leaf) {
  if (IsLargeInt(leaf)) return true;
  switch (leaf.kind) {
    case EntryKind::kBool:
    case EntryKind::kInt:
    case EntryKind::kFloat:
    case EntryKind::kComplex:
    case EntryKind::kStr:
    case EntryKind::kJson:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<Cell> ScalarCell(const Step& step, const LeafInfo& leaf,
                                const LeafDetail& detail) {
  if (!HasScalar(leaf) || detail.bytes > kMostScalarBytes) return NoCell();
  if (IsLargeInt(leaf)) return LargeIntCell(step, leaf);
  const absl::StatusOr<LeafValue> value = step.Value(leaf.path);
  if (!value.ok()) return value.status();
  switch (leaf.kind) {
    case EntryKind::kBool: {
      const bool truth = *value->Bool();
      return Cell{Json(truth), truth ? "true" : "false"};
    }
    case EntryKind::kInt: {
      const std::int64_t number = *value->Int();
      return Cell{Json(number), absl::StrFormat("%d", number)};
    }
    case EntryKind::kFloat: {
      // What is compared is shown to the last digit.
      Cell cell = NumberCell(*value->Float());
      cell.text = NumberText(*value->Float());
      return cell;
    }
    case EntryKind::kComplex: {
      std::array<double, 2> parts{};
      if (value->bytes.size() != sizeof parts) return NoCell();
      std::memcpy(parts.data(), value->bytes.data(), sizeof parts);
      return Cell{Json(parts), absl::StrFormat("%s%s%sj", NumberText(parts[0]),
                                               parts[1] < 0 ? "" : "+",
                                               NumberText(parts[1]))};
    }
    default:
      break;
  }
  const absl::StatusOr<std::string> text = value->String();
  if (!text.ok()) return text.status();
  std::string shown = Escape(*text);
  if (leaf.kind == EntryKind::kStr) shown = '"' + shown + '"';
  return Cell{Json(*text),
              ElideMiddle(shown, kMostScalarColumns, /*utf8=*/false)};
}

}  // namespace ckptree::tools
