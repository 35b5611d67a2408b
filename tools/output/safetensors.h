// SPDX-License-Identifier: Apache-2.0

// The head of a .safetensors file.

#ifndef CKPTREE_TOOLS_OUTPUT_SAFETENSORS_H_
#define CKPTREE_TOOLS_OUTPUT_SAFETENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckptree/tensor.h"

namespace ckptree::tools {

// The format's name of a type; nothing where it has none.
std::optional<std::string_view> SafetensorsType(DType dtype);

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kNone;
  Shape shape;
  std::uint64_t bytes = 0;
};

// Everything before the first byte of the first entry. The entries' bytes
// follow in their order, without gaps. REQUIRES: every type has a name.
std::string SafetensorsHeader(
    const std::vector<SafetensorsEntry>& entries,
    const std::vector<std::pair<std::string, std::string>>& metadata);

// "layers.0.weight": the parts of `path` joined by dots.
std::string DottedName(const Path& path);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_SAFETENSORS_H_
