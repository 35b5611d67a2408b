// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/secret.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree {
namespace {

using kv::ReadSecretFile;
using kv::Secret;
using kv::SecretBytes;
using kv::SecretOf;

// The flags of the memory at `address`; empty: there is none.
std::string FlagsAt(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream file("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (inside && line.starts_with("VmFlags:")) return line + " ";
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= wanted && wanted < end;
    }
  }
  return "";
}

TEST(SecretTest, IsInPagesThatNoCoreHas) {
  SecretBytes bytes(10);
  EXPECT_NE(FlagsAt(bytes.data()).find(" dd "), std::string::npos);
  EXPECT_EQ(bytes.view(), std::string(10, '\0'));
  const auto heap = std::make_unique<std::string>(100, 'x');
  EXPECT_EQ(FlagsAt(heap->data()).find(" dd "), std::string::npos);
  EXPECT_NE(FlagsAt(heap->data()), "");
}

TEST(SecretTest, IsACopyAndCopiesShareIt) {
  std::string text = "not shown";
  Secret one = SecretOf(text);
  text = "other";
  const Secret another = one;
  one.reset();
  EXPECT_EQ(another->view(), "not shown");
  EXPECT_EQ(SecretOf(""), nullptr);
}

TEST(SecretTest, AFileIsReadWhole) {
  const testing::TempDir dir;
  // Shorter than the first room, as large, and such that it grows.
  for (const std::size_t size : {1u, 4095u, 4096u, 4097u, 100'000u}) {
    std::string text;
    while (text.size() < size) absl::StrAppend(&text, text.size(), "\n");
    text.resize(size);
    const std::string path = dir / absl::StrCat("file", size);
    std::ofstream(path, std::ios::binary) << text;
    const Secret read = ReadSecretFile(path);
    ASSERT_NE(read, nullptr) << size;
    EXPECT_EQ(read->view(), text) << size;
  }
}

TEST(SecretTest, AFileThatIsNotThereOrEmptyIsNone) {
  const testing::TempDir dir;
  EXPECT_EQ(ReadSecretFile(dir / "none"), nullptr);
  EXPECT_EQ(ReadSecretFile(dir.path()), nullptr);  // A folder.
  const std::ofstream empty(dir / "empty");
  EXPECT_EQ(ReadSecretFile(dir / "empty"), nullptr);
}

}  // namespace
}  // namespace ckptree
