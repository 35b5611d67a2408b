// SPDX-License-Identifier: Apache-2.0

// The object store that a test program is about, as servers.py says.

#ifndef CKPTREE_TESTS_OBJECTS_FIXTURE_H_
#define CKPTREE_TESTS_OBJECTS_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {

inline std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "file", "s3" or "rados"; the default needs no server.
inline std::string StoreKind() {
  const std::string kind = Environment("CKPTREE_TEST_STORE");
  return kind.empty() ? "file" : kind;
}

// Only a hang reaches it.
inline kv::Call Soon(std::stop_token cancelled = {}) {
  return kv::Call::Within(absl::Minutes(2), std::move(cancelled));
}

// Bytes that can be told from others by where they stand.
inline std::byte ByteAt(std::uint64_t offset, std::uint64_t seed) {
  std::uint64_t mixed = (offset / 8 + 1) * 0x9e3779b97f4a7c15ULL + seed;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed >> (8 * (offset % 8)));
}

class PatternSource : public kv::ObjectSource {
 public:
  PatternSource(std::uint64_t size, std::uint64_t seed)
      : size_(size), seed_(seed) {}
  std::uint64_t size() const override { return size_; }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override {
    if (on_read) {
      if (absl::Status status = on_read(offset); !status.ok()) return status;
    }
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = ByteAt(offset + i, seed_);
    }
    return absl::OkStatus();
  }

  std::function<absl::Status(std::uint64_t)> on_read;

 private:
  std::uint64_t size_;
  std::uint64_t seed_;
};

class ObjectStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { store_ = Open(); }

  // Each test has a prefix of its own.
  std::string Address() {
    if (StoreKind() == "file") return absl::StrCat("file://", dir_.path());
    if (StoreKind() == "rados") {
      return absl::StrCat("rados://", Environment("CKPTREE_TEST_POOL"), "/",
                          prefix_);
    }
    return absl::StrCat("s3://", Environment("CKPTREE_TEST_BUCKET"), "/",
                        prefix_);
  }
  kv::ObjectStoreOptions Options() {
    kv::ObjectStoreOptions options;
    options.endpoint = Environment("CKPTREE_TEST_S3");
    options.ceph_conf = Environment("CKPTREE_TEST_CEPH_CONF");
    return options;
  }
  std::unique_ptr<kv::ObjectStore> Open() {
    absl::StatusOr<std::unique_ptr<kv::ObjectStore>> opened =
        kv::OpenObjectStore(Address(), Options(), Soon());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }

  void Put(const std::string& name, std::uint64_t size,
           std::uint64_t seed = 0) {
    EXPECT_EQ(store_->Put(name, PatternSource(size, seed), Soon()),
              absl::OkStatus());
  }
  kv::PutOutcome PutIfAbsent(const std::string& name,
                             const std::string& bytes) {
    const absl::StatusOr<kv::PutAnswer> answer =
        store_->PutIfAbsent(name, bytes, kv::NewWriteId(), Soon());
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? answer->outcome : kv::PutOutcome::kUnknown;
  }
  // What is there, of at most `size` bytes from `offset` on.
  std::string Read(const std::string& name, std::uint64_t offset = 0,
                   std::size_t size = 1000) {
    std::string bytes(size, '?');
    const absl::StatusOr<std::size_t> read = store_->GetRange(
        name, offset, std::as_writable_bytes(std::span(bytes)), Soon());
    if (!read.ok()) return std::string(read.status().ToString());
    return bytes.substr(0, *read);
  }
  void ExpectPattern(const std::string& name, std::uint64_t offset,
                     std::size_t size, std::uint64_t seed = 0) {
    const std::string bytes = Read(name, offset, size);
    ASSERT_EQ(bytes.size(), size) << name << " from " << offset;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < size; ++i) {
      wrong += static_cast<std::byte>(bytes[i]) != ByteAt(offset + i, seed);
    }
    EXPECT_EQ(wrong, 0) << name << " from " << offset;
  }
  bool IsThere(const std::string& name) {
    const absl::StatusOr<std::optional<kv::ObjectInfo>> info =
        store_->Head(name, Soon());
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() && info->has_value();
  }
  std::vector<std::string> List(const std::string& prefix,
                                const std::string& after = "") {
    const absl::StatusOr<kv::ObjectPage> page =
        store_->List(prefix, after, Soon());
    EXPECT_TRUE(page.ok()) << page.status();
    std::vector<std::string> names;
    if (!page.ok()) return names;
    for (const kv::ObjectInfo& info : page->objects) names.push_back(info.name);
    return names;
  }

  TempDir dir_;
  const std::string prefix_ = absl::StrCat("test-", kv::NewWriteId());
  std::unique_ptr<kv::ObjectStore> store_;
};

// Runs `work(0)` to `work(count - 1)`, each on a thread.
inline void OnThreads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_OBJECTS_FIXTURE_H_
