// SPDX-License-Identifier: Apache-2.0

// A pool of Ceph whose only server stands still, and what is missing there.

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/fault/scale.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using ::ckptree::kv::PutOutcome;
using ::ckptree::testing::Environment;
using ::ckptree::testing::ScaledWithServers;
using ::ckptree::testing::Soon;
using ::testing::HasSubstr;

class RadosFaultTest : public testing::ObjectStoreTest {
 protected:
  void SetUp() override {
    osd_ = std::atoi(Environment("CKPTREE_TEST_OSD_PID").c_str());
    ASSERT_GT(osd_, 1);
    ObjectStoreTest::SetUp();
    // It has a connection, and knows where the pool is.
    ASSERT_FALSE(IsThere("a"));
  }
  void TearDown() override { Continue(); }
  void Stop() { ASSERT_EQ(kill(osd_, SIGSTOP), 0); }
  void Continue() { kill(osd_, SIGCONT); }

  pid_t osd_ = 0;
};

TEST_F(RadosFaultTest, ACreationWithoutAnAnswerIsSettledLater) {
  for (int i = 0; i < ScaledWithServers(50); ++i) {
    const std::string name = absl::StrCat("commit/", i);
    const std::string id = kv::NewWriteId(), other = kv::NewWriteId();
    Stop();
    const auto answer = store_->PutIfAbsent(
        name, id, id, kv::Call::Within(absl::Milliseconds(50)));
    Continue();
    ASSERT_THAT(answer, testing::IsOk());
    ASSERT_EQ(answer->outcome, PutOutcome::kUnknown);
    EXPECT_EQ(answer->reason.code(), absl::StatusCode::kDeadlineExceeded);
    // Either is right, but only one of them, and the same for ever.
    const bool first = i % 2 == 0;
    const auto mine = PutSettled(*store_, name, first ? id : other,
                                 first ? id : other, Soon());
    const auto theirs = PutSettled(*store_, name, first ? other : id,
                                   first ? other : id, Soon());
    ASSERT_THAT(mine, testing::IsOk());
    ASSERT_THAT(theirs, testing::IsOk());
    EXPECT_NE(mine->outcome, theirs->outcome);
    EXPECT_NE(mine->outcome, PutOutcome::kUnknown);
    EXPECT_NE(theirs->outcome, PutOutcome::kUnknown);
    EXPECT_EQ(Read(name),
              (mine->outcome == PutOutcome::kCreated) == first ? id : other);
  }
}

TEST_F(RadosFaultTest, EveryCallEndsWhileNothingAnswers) {
  Stop();
  const auto briefly = [] { return kv::Call::Within(absl::Milliseconds(50)); };
  std::byte into[10];
  EXPECT_EQ(store_->Head("a", briefly()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->GetRange("a", 0, into, briefly()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(store_->Put("b", testing::PatternSource(10, 0), briefly()).code(),
            absl::StatusCode::kDeadlineExceeded);
  std::stop_source stop;
  std::thread canceller([&] { stop.request_stop(); });
  EXPECT_EQ(store_->Head("a", Soon(stop.get_token())).status().code(),
            absl::StatusCode::kCancelled);
  canceller.join();
  Continue();
  EXPECT_FALSE(IsThere("a"));
}

TEST_F(RadosFaultTest, APoolThatIsNotThereIsNamed) {
  const absl::Status status =
      kv::OpenObjectStore("rados://no-pool/run", Options(), Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("no pool 'no-pool'"));
}

}  // namespace
}  // namespace ckptree
