// SPDX-License-Identifier: Apache-2.0

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/files/head.h"
#include "tools/output/decimal.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr std::uint64_t kMostAlignment = 1 << 20;

// ggml_type: a name, and for what is not read how many bytes so many elements
// take.
struct GgmlType {
  std::uint32_t number;
  std::string_view name;
  DType dtype;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
};
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", DType::kFloat32, 1, 4},
    {1, "F16", DType::kFloat16, 1, 2},
    {2, "Q4_0", DType::kNone, 32, 18},
    {3, "Q4_1", DType::kNone, 32, 20},
    {6, "Q5_0", DType::kNone, 32, 22},
    {7, "Q5_1", DType::kNone, 32, 24},
    {8, "Q8_0", DType::kNone, 32, 34},
    {9, "Q8_1", DType::kNone, 32, 36},
    {10, "Q2_K", DType::kNone, 256, 84},
    {11, "Q3_K", DType::kNone, 256, 110},
    {12, "Q4_K", DType::kNone, 256, 144},
    {13, "Q5_K", DType::kNone, 256, 176},
    {14, "Q6_K", DType::kNone, 256, 210},
    {15, "Q8_K", DType::kNone, 256, 292},
    {16, "IQ2_XXS", DType::kNone, 256, 66},
    {17, "IQ2_XS", DType::kNone, 256, 74},
    {18, "IQ3_XXS", DType::kNone, 256, 98},
    {19, "IQ1_S", DType::kNone, 256, 50},
    {20, "IQ4_NL", DType::kNone, 32, 18},
    {21, "IQ3_S", DType::kNone, 256, 110},
    {22, "IQ2_S", DType::kNone, 256, 82},
    {23, "IQ4_XS", DType::kNone, 256, 136},
    {24, "I8", DType::kInt8, 1, 1},
    {25, "I16", DType::kInt16, 1, 2},
    {26, "I32", DType::kInt32, 1, 4},
    {27, "I64", DType::kInt64, 1, 8},
    {28, "F64", DType::kFloat64, 1, 8},
    {29, "IQ1_M", DType::kNone, 256, 56},
    {30, "BF16", DType::kBfloat16, 1, 2},
    {34, "TQ1_0", DType::kNone, 256, 54},
    {35, "TQ2_0", DType::kNone, 256, 66},
    {39, "MXFP4", DType::kNone, 32, 17},
};

// Numbers of metadata, by their type in the file.
constexpr int kGgufSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::uint32_t kGgufText = 8;
constexpr std::uint32_t kGgufList = 9;
constexpr int kMostGgufDepth = 16;

// Reads on from where it is. Confined to one thread.
class GgufCursor {
 public:
  GgufCursor(std::string_view bytes, std::uint64_t file_bytes)
      : bytes_(bytes), file_bytes_(file_bytes) {}

  absl::StatusOr<std::string_view> Take(std::uint64_t count) {
    if (count > file_bytes_ - at_) {
      return absl::InvalidArgumentError("it is cut, or no GGUF file");
    }
    if (count > bytes_.size() - at_) return absl::OutOfRangeError("more");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  template <typename T>
  absl::StatusOr<T> Number() {
    CKPTREE_ASSIGN_OR_RETURN(const std::string_view bytes, Take(sizeof(T)));
    T number;
    std::memcpy(&number, bytes.data(), sizeof(T));
    return number;
  }
  absl::StatusOr<std::string_view> Text() {
    CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t length,
                             Number<std::uint64_t>());
    return Take(length);
  }
  // A count of things that take at least `bytes` each.
  absl::StatusOr<std::uint64_t> Count(std::uint64_t bytes) {
    CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t count,
                             Number<std::uint64_t>());
    if (count > (file_bytes_ - at_) / bytes) {
      return absl::InvalidArgumentError("it is cut, or no GGUF file");
    }
    return count;
  }
  std::uint64_t at() const { return at_; }

 private:
  const std::string_view bytes_;
  const std::uint64_t file_bytes_;
  std::uint64_t at_ = 0;
};

std::string GgufNumber(std::uint32_t type, std::string_view bytes) {
  const auto as = [bytes]<typename T>(T number) {
    std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  };
  switch (type) {
    case 0:
      return absl::StrCat(as(std::uint8_t{}));
    case 1:
      return absl::StrCat(as(std::int8_t{}));
    case 2:
      return absl::StrCat(as(std::uint16_t{}));
    case 3:
      return absl::StrCat(as(std::int16_t{}));
    case 4:
      return absl::StrCat(as(std::uint32_t{}));
    case 5:
      return absl::StrCat(as(std::int32_t{}));
    case 6:
      return DecimalText(as(float{}));
    case 7:
      return bytes[0] == 0 ? "false" : "true";
    case 10:
      return absl::StrCat(as(std::uint64_t{}));
    case 11:
      return absl::StrCat(as(std::int64_t{}));
    default:
      return NumberText(as(double{}));
  }
}

// A text of a list, in quotes. Bytes that are no UTF-8 stay as they are.
void AddQuoted(std::string_view text, std::string* list) {
  *list += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') *list += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(list, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      *list += c;
    }
  }
  *list += '"';
}

// Adds a list as that of JSON has it. `depth`: how many lists it lies in.
absl::Status AddGgufList(GgufCursor* cursor, int depth, std::string* text) {
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t of,
                           cursor->Number<std::uint32_t>());
  if (of > 12 || (of == kGgufList && depth >= kMostGgufDepth)) {
    return absl::InvalidArgumentError(
        of > 12 ? absl::StrFormat("its metadata has a list of type %d", of)
                : absl::StrFormat("its metadata has lists in each other deeper "
                                  "than %d",
                                  kMostGgufDepth));
  }
  // A list is at least its type and its count.
  const auto size =
      static_cast<std::uint64_t>(of == kGgufText   ? 8
                                 : of == kGgufList ? 12
                                                   : kGgufSizes[of]);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t count, cursor->Count(size));
  *text += "[";
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i > 0) *text += ",";
    if (of == kGgufList) {
      CKPTREE_RETURN_IF_ERROR(AddGgufList(cursor, depth + 1, text));
    } else if (of == kGgufText) {
      CKPTREE_ASSIGN_OR_RETURN(const std::string_view element, cursor->Text());
      AddQuoted(element, text);
    } else {
      CKPTREE_ASSIGN_OR_RETURN(const std::string_view bytes,
                               cursor->Take(size));
      *text += GgufNumber(of, bytes);
    }
  }
  *text += "]";
  return absl::OkStatus();
}

// The value as a text, whole.
absl::StatusOr<std::string> GgufValue(GgufCursor* cursor, std::uint32_t type) {
  if (type == kGgufText) {
    CKPTREE_ASSIGN_OR_RETURN(const std::string_view text, cursor->Text());
    return std::string(text);
  }
  if (type == kGgufList) {
    std::string list;
    CKPTREE_RETURN_IF_ERROR(AddGgufList(cursor, 0, &list));
    return list;
  }
  if (type > 12) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its metadata has a value of type %d", type));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string_view bytes,
      cursor->Take(static_cast<std::uint64_t>(kGgufSizes[type])));
  return GgufNumber(type, bytes);
}

// What GGUF calls an alignment: where arrays begin.
absl::StatusOr<std::uint64_t> GgufAlignment(std::uint32_t type,
                                            const std::string& text) {
  if (type != 4) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its general.alignment is a value of type %d, and not of 4 (UINT32)",
        type));
  }
  const std::uint64_t alignment = std::strtoul(text.c_str(), nullptr, 10);
  if (!std::has_single_bit(alignment) || alignment > kMostAlignment) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its general.alignment is %d", alignment));
  }
  return alignment;
}

absl::StatusOr<FileArray> GgufArray(GgufCursor* cursor) {
  FileArray array;
  CKPTREE_ASSIGN_OR_RETURN(const std::string_view name, cursor->Text());
  array.name = std::string(name);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t rank,
                           cursor->Number<std::uint32_t>());
  if (rank > 8) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its array `%s` has %d dimensions", Escape(name), rank));
  }
  Shape shape(rank);
  std::uint64_t elements = 1;
  for (std::uint32_t d = 0; d < rank; ++d) {
    CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t dim,
                             cursor->Number<std::uint64_t>());
    if (dim > std::uint64_t{1} << 56 ||
        (dim > 0 && elements > (std::uint64_t{1} << 56) / dim)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("its array `%s` is impossibly large", Escape(name)));
    }
    elements *= dim;
    // The fastest comes first there.
    shape[rank - 1 - d] = static_cast<std::int64_t>(dim);
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                           cursor->Number<std::uint32_t>());
  CKPTREE_ASSIGN_OR_RETURN(array.offset, cursor->Number<std::uint64_t>());
  DType dtype = DType::kNone;
  array.type = absl::StrFormat("type %d", number);
  array.why_not = absl::StrFormat("its type %d is not known here", number);
  for (const GgmlType& type : kGgmlTypes) {
    if (type.number != number) continue;
    array.type = std::string(type.name);
    dtype = type.dtype;
    array.bytes = (elements + type.block_elements - 1) / type.block_elements *
                  type.block_bytes;
    array.why_not = dtype == DType::kNone
                        ? absl::StrFormat("it is quantised, as %s", type.name)
                        : "";
  }
  CKPTREE_RETURN_IF_ERROR(SetLeaf(&array, dtype, std::move(shape)));
  return array;
}

}  // namespace

absl::StatusOr<FileHead> ParseGguf(std::string_view bytes,
                                   std::uint64_t file_bytes) {
  GgufCursor cursor(bytes, file_bytes);
  CKPTREE_ASSIGN_OR_RETURN(const std::string_view magic, cursor.Take(4));
  if (magic != "GGUF") {
    return absl::InvalidArgumentError("it does not begin as a GGUF file");
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t version,
                           cursor.Number<std::uint32_t>());
  if (version != 2 && version != 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its version %d is not known here", version));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t arrays, cursor.Count(24));
  CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t values, cursor.Count(13));
  FileHead head;
  std::uint64_t alignment = 32;
  std::set<std::string_view> keys;
  for (std::uint64_t i = 0; i < values; ++i) {
    CKPTREE_ASSIGN_OR_RETURN(const std::string_view key, cursor.Text());
    CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t type,
                             cursor.Number<std::uint32_t>());
    CKPTREE_ASSIGN_OR_RETURN(std::string text, GgufValue(&cursor, type));
    if (!keys.insert(key).second) {
      return absl::InvalidArgumentError(
          absl::StrFormat("its metadata has `%s` twice", Escape(key)));
    }
    if (key == "general.alignment") {
      CKPTREE_ASSIGN_OR_RETURN(alignment, GgufAlignment(type, text));
    }
    head.metadata.emplace_back(std::string(key), std::move(text));
  }
  for (std::uint64_t i = 0; i < arrays; ++i) {
    CKPTREE_ASSIGN_OR_RETURN(FileArray array, GgufArray(&cursor));
    head.arrays.push_back(std::move(array));
  }
  const std::uint64_t data =
      (cursor.at() + alignment - 1) / alignment * alignment;
  for (FileArray& array : head.arrays) {
    if (data > file_bytes || array.offset > file_bytes - data ||
        array.bytes > file_bytes - data - array.offset) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "its array `%s` lies outside of the file, which may be cut",
          Escape(array.name)));
    }
    if (array.offset % alignment != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("its array `%s` begins at %d, which is no multiple "
                          "of its alignment, %d",
                          Escape(array.name), array.offset, alignment));
    }
    array.offset += data;
  }
  CKPTREE_RETURN_IF_ERROR(
      CheckPlaces(head.arrays, data, file_bytes, /*whole=*/false));
  return head;
}

}  // namespace ckptree::tools
