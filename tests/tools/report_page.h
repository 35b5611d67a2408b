// SPDX-License-Identifier: Apache-2.0

// Reads the page of a report back, by code of its own.

#ifndef CKPTREE_TESTS_TOOLS_REPORT_PAGE_H_
#define CKPTREE_TESTS_TOOLS_REPORT_PAGE_H_

#include <zlib.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ckptree {

// The page around its data, and what the data says.
struct ReadPage {
  std::string around;
  std::string kind;  // "file" or "live"
  std::string packed;
  nlohmann::json json;
  std::string numbers;
};

// For pages: a matcher would print all of one.
inline bool Holds(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

inline void Unpack(ReadPage* page) {
  std::string bytes(std::size_t{64} << 20, '\0');
  uLongf size = bytes.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                       reinterpret_cast<const Bytef*>(page->packed.data()),
                       page->packed.size()),
            Z_OK);
  bytes.resize(size);
  ASSERT_GE(bytes.size(), 4u);
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]))
              << (8 * i);
  }
  ASSERT_LE(4 + length, bytes.size());
  page->json = nlohmann::json::parse(bytes.substr(4, length));
  page->numbers = bytes.substr(4 + length);
}

inline ReadPage Read(const std::string& html) {
  ReadPage page;
  const std::string begin = "<script id=\"data\" type=\"text/plain\">";
  const std::size_t at = html.find(begin);
  const std::size_t end = html.find("</script>", at);
  EXPECT_NE(at, std::string::npos);
  EXPECT_NE(end, std::string::npos);
  if (at == std::string::npos || end == std::string::npos) return page;
  const std::size_t from = at + begin.size();
  const std::string data = html.substr(from, end - from);
  page.around = html.substr(0, from) + html.substr(end);
  page.kind = data.substr(0, data.find(' '));
  EXPECT_TRUE(
      absl::Base64Unescape(data.substr(data.find(' ') + 1), &page.packed));
  Unpack(&page);
  return page;
}

inline std::vector<std::int64_t> Integers(const ReadPage& page,
                                          const nlohmann::json& column) {
  std::vector<std::int64_t> values;
  std::size_t at = column["at"];
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < column["n"]; ++i) {
    std::uint64_t rest = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(page.numbers.at(at++));
      rest |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    value += (rest >> 1) ^ (0 - (rest & 1));
    values.push_back(static_cast<std::int64_t>(value));
  }
  return values;
}

inline std::vector<float> Floats(const ReadPage& page,
                                 const nlohmann::json& column) {
  std::vector<float> values;
  const int cut = column["cut"];
  for (const std::int64_t value : Integers(page, column)) {
    const auto size = static_cast<std::uint32_t>(value < 0 ? -value : value)
                      << cut;
    values.push_back(
        std::bit_cast<float>(size | (value < 0 ? 0x80000000u : 0u)));
  }
  return values;
}

}  // namespace ckptree

#endif  // CKPTREE_TESTS_TOOLS_REPORT_PAGE_H_
