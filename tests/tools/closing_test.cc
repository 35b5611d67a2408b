// SPDX-License-Identifier: Apache-2.0

// What a command says whose store does not close: what it did is done.

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/shimmed_program.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using testing::ShimPlan;
using testing::ShimResult;

class ClosingTest : public CommandRunner {
 protected:
  void SetUp() override {
    fs::create_directory(scratch_ / "counts");
    MakeStore(store_);
    fs::copy(store_, pristine_, fs::copy_options::recursive);
  }

  // `words` of the store, on a disk that cuts no file from call `at` on.
  ShimResult Uncut(std::vector<std::string> words, std::uint64_t at) {
    fs::remove_all(store_);
    fs::copy(pristine_, store_, fs::copy_options::recursive);
    words.insert(words.begin(), {CKPTREE_BINARY, "-C", store_});
    const ShimPlan plan{.under = store_,
                        .does = at == 0 ? "count" : "fail_on",
                        .at = at,
                        .value = EIO,
                        .only = "truncate"};
    return testing::RunShimmed(words, plan, scratch_ / "counts");
  }

  // Whether `words` could say `done` of a store that did not close.
  bool SaysWhenNotClosed(const std::vector<std::string>& words,
                         const std::string& done) {
    const ShimResult all = Uncut(words, 0);
    EXPECT_EQ(all.code, 0) << all.err;
    bool said = false;
    for (std::uint64_t at = 1; at <= all.calls && !said; ++at) {
      const ShimResult result = Uncut(words, at);
      said = result.err.find(done + "; closing the store failed: ") !=
             std::string::npos;
      if (said) EXPECT_EQ(result.code, 2) << result.err;
    }
    return said;
  }

  const std::string store_ = scratch_ / "store";
  const std::string pristine_ = scratch_ / "pristine";
};

TEST_F(ClosingTest, AnImportSaysWhatIsSaved) {
  const std::string file = scratch_ / "w.npz";
  ASSERT_EQ(Run({"-C", store_, "export", "500:params/w", file}).code, 0);
  EXPECT_TRUE(SaysWhenNotClosed({"import", file, "--step", "777"},
                                "step 777 is saved"));
  EXPECT_THAT(Run({"-C", store_, "log"}).out, HasSubstr("777"));
}

TEST_F(ClosingTest, AForkSaysThatItIsDone) {
  EXPECT_TRUE(SaysWhenNotClosed({"fork", "500", "--branch", "trial"},
                                "what was asked is done"));
  EXPECT_THAT(Run({"-C", store_, "fork"}).out, HasSubstr("trial"));
}

}  // namespace
}  // namespace ckptree
