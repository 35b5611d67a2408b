// SPDX-License-Identifier: Apache-2.0

// Stores with a remote, as the tests of this room save and judge them.

#ifndef CKPTREE_TESTS_REMOTE_FIXTURE_H_
#define CKPTREE_TESTS_REMOTE_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/objects/fixture.h"

namespace ckptree::testing {

// The servers of this run, told to the engine where it looks for them.
inline void UseServers() {
  for (const auto& [from, to] :
       {std::pair("CKPTREE_TEST_S3", "AWS_ENDPOINT_URL_S3"),
        std::pair("CKPTREE_TEST_CEPH_CONF", "CEPH_CONF")}) {
    if (!Environment(from).empty()) setenv(to, Environment(from).c_str(), 1);
  }
}

inline StoreOptions RemoteOptions(const std::string& address) {
  StoreOptions options = QuietOptions();
  options.create_if_missing = true;
  options.remote = address;
  options.chunk_bytes = kChunk;
  return options;
}

// `size` bytes of new content in an array, and a counter.
inline void SaveStep(Store& store, std::int64_t step, std::size_t size) {
  const Bytes bytes = RandomBytes(size, step);
  StepBuilder builder = store.Begin(step);
  builder.Put("params/w", Uint8s(bytes)).PutInt("count", step);
  const absl::Status saved = builder.Commit().WaitCommitted(kLong);
  ASSERT_TRUE(saved.ok()) << saved;
}

inline void ExpectStep(Store& store, std::int64_t step, std::size_t size) {
  const absl::StatusOr<Step> read = store.OpenStep(step);
  ASSERT_TRUE(read.ok()) << read.status();
  Bytes bytes(size);
  const absl::Status got = read->Read("params/w", std::span(bytes));
  ASSERT_TRUE(got.ok()) << got;
  EXPECT_EQ(bytes, RandomBytes(size, step)) << "step " << step;
}

inline std::vector<std::int64_t> StepsOf(Store& store) {
  std::vector<std::int64_t> numbers;
  const std::vector<StepInfo> steps = store.Steps().value();
  for (const StepInfo& info : steps) numbers.push_back(info.step);
  return numbers;
}

inline void ExpectWhole(Store& store) {
  const absl::StatusOr<VerifyReport> report =
      store.Verify({.level = VerifyOptions::Level::kDeep});
  ASSERT_TRUE(report.ok()) << report.status();
  for (const Finding& finding : report->findings) {
    ADD_FAILURE() << finding.what;
  }
}

// The objects of one kind ("segment", "index", ...) in a folder that is an
// object store.
inline std::vector<std::filesystem::path> ObjectsOf(const std::string& folder,
                                                    const std::string& kind) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() &&
        absl::StrContains(entry.path().string(), "/" + kind + "/")) {
      found.push_back(entry.path());
    }
  }
  return found;
}

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_REMOTE_FIXTURE_H_
