// SPDX-License-Identifier: Apache-2.0

#include "tools/output/npy.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/output/element_text.h"

namespace ckptree::tools {

std::string NpyDescr(DType dtype) {
  const int bytes = ElementBytes(dtype);
  const char order = bytes == 1 ? '|' : '<';
  char kind = 'V';
  switch (dtype) {
    case DType::kBool:
      kind = 'b';
      break;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
      kind = 'i';
      break;
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
      kind = 'u';
      break;
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      kind = 'f';
      break;
    case DType::kComplex64:
    case DType::kComplex128:
      kind = 'c';
      break;
    default:
      break;
  }
  return absl::StrFormat("%c%c%d", order, kind, bytes);
}

std::string NpyNote(DType dtype) {
  const std::string descr = NpyDescr(dtype);
  if (descr[1] != 'V' || dtype == DType::kBfloat16) return "";
  return absl::StrFormat("# ckptree: %s", Name(dtype));
}

std::string NpyHeader(DType dtype, const Shape& shape) {
  std::string text = absl::StrCat("{'descr': '", NpyDescr(dtype),
                                  "', 'fortran_order': False, 'shape': (");
  for (std::size_t i = 0; i < shape.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  }
  absl::StrAppend(&text, shape.size() == 1 ? ",), }" : "), }");
  // Python, as which NumPy reads the head, passes over what stands behind #.
  const std::string note = NpyNote(dtype);
  if (!note.empty()) absl::StrAppend(&text, " ", note);

  // Magic, version, length of the text, text, spaces, line end.
  std::size_t lead = 10;
  if (lead + text.size() + 64 > 0xffff) lead = 12;
  const std::size_t total = (lead + text.size() + 1 + 63) / 64 * 64;
  text.append(total - lead - text.size() - 1, ' ');
  text += '\n';

  std::string header = "\x93NUMPY";
  header += static_cast<char>(lead == 10 ? 1 : 2);
  header += '\0';
  for (std::size_t i = 0; i < lead - 8; ++i) {
    header += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  }
  return header + text;
}

}  // namespace ckptree::tools
