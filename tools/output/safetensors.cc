// SPDX-License-Identifier: Apache-2.0

#include "tools/output/safetensors.h"

#include <cstdint>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tools/output/table.h"

namespace ckptree::tools {

std::optional<std::string_view> SafetensorsType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BOOL";
    case DType::kInt8:
      return "I8";
    case DType::kInt16:
      return "I16";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kUint8:
      return "U8";
    case DType::kUint16:
      return "U16";
    case DType::kUint32:
      return "U32";
    case DType::kUint64:
      return "U64";
    case DType::kFloat16:
      return "F16";
    case DType::kBfloat16:
      return "BF16";
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
    case DType::kFloat8E4m3fn:
      return "F8_E4M3";
    case DType::kFloat8E5m2:
      return "F8_E5M2";
    case DType::kFloat8E8m0fnu:
      return "F8_E8M0";
    case DType::kComplex64:
      return "C64";
    default:
      return std::nullopt;
  }
}

std::string SafetensorsHeader(
    const std::vector<SafetensorsEntry>& entries,
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  // Entry by entry: an ordered_json looks at all of its names for each new one.
  std::string text = "{";
  const auto add = [&text](const std::string& name, const Json& value) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", JsonText(name, false),
                    ":", JsonText(value, false));
  };
  if (!metadata.empty()) {
    Json strings = Json::object();
    for (const auto& [name, value] : metadata) strings[name] = value;
    add("__metadata__", strings);
  }
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    add(entry.name,
        {{"dtype", std::string(SafetensorsType(entry.dtype).value_or("?"))},
         {"shape", entry.shape},
         {"data_offsets", {at, at + entry.bytes}}});
    at += entry.bytes;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string header;
  for (int i = 0; i < 8; ++i) {
    header += static_cast<char>((text.size() >> (8 * i)) & 0xff);
  }
  return header + text;
}

std::string DottedName(const Path& path) {
  std::string name;
  for (const PathPart& part : path.parts()) {
    if (!name.empty()) name += '.';
    if (const auto* text = std::get_if<std::string>(&part.key.value)) {
      name += *text;
    } else if (const auto* index = std::get_if<std::int64_t>(&part.key.value)) {
      absl::StrAppend(&name, *index);
    } else {
      name += Path({part}).Text();
    }
  }
  return name;
}

}  // namespace ckptree::tools
