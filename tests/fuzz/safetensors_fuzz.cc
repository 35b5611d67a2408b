// SPDX-License-Identifier: Apache-2.0

// Fuzzes the head of a .safetensors file: whatever the leaves are called, it is
// one JSON object that says their types, shapes and places.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "schema/utf8.h"
#include "tests/fuzz/require.h"
#include "tools/output/safetensors.h"

namespace ckptree::fuzz {
namespace {

// Names are apart by zeros; the first byte of each is the entry's size.
void FuzzHeader(std::string_view text) {
  std::vector<tools::SafetensorsEntry> entries;
  std::set<std::string> names;
  bool valid = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    const std::string_view name = text.substr(at, end - at);
    at = end == text.npos ? text.size() : end + 1;
    if (!names.insert(std::string(name)).second) continue;
    valid = valid && schema::IsUtf8(name) && name != "__metadata__";
    const auto rows = static_cast<std::uint8_t>(name.empty() ? 0 : name[0]);
    entries.push_back({std::string(name),
                       DType::kFloat32,
                       {rows, 2},
                       std::uint64_t{rows} * 8});
  }
  const std::string header =
      tools::SafetensorsHeader(entries, {{"format", std::string(text)}});
  Require(header.size() >= 8 && header.size() % 8 == 0, "it is aligned");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 |
             static_cast<std::uint8_t>(header[static_cast<std::size_t>(i)]);
  }
  Require(length == header.size() - 8, "its length stands in front");
  const auto json = nlohmann::json::parse(header.substr(8), nullptr, false);
  Require(json.is_object(), "it is one JSON object");
  if (!valid) return;
  Require(json.size() == entries.size() + 1, "every name is there, once");
  std::uint64_t at = 0;
  for (const tools::SafetensorsEntry& entry : entries) {
    const auto found = json.find(entry.name);
    Require(found != json.end(), "a name is kept");
    Require((*found)["data_offsets"][0] == at &&
                (*found)["data_offsets"][1] == at + entry.bytes &&
                (*found)["shape"][0] == entry.shape[0],
            "an entry is where it is said to be");
    at += entry.bytes;
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzHeader(ckptree::fuzz::TextOf(data, size));
  return 0;
}
