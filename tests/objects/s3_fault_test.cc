// SPDX-License-Identifier: Apache-2.0

// S3 through a proxy that loses, repeats, delays, cuts and corrupts.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "tests/fault/scale.h"
#include "tests/objects/fault_proxy.h"
#include "tests/objects/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree {
namespace {

using ::ckptree::kv::PutOutcome;
using ::ckptree::testing::Environment;
using ::ckptree::testing::Fault;
using ::ckptree::testing::FaultProxy;
using ::ckptree::testing::kConflict;
using ::ckptree::testing::kExpired;
using ::ckptree::testing::kHalfHead;
using ::ckptree::testing::kPortal;
using ::ckptree::testing::kServerError;
using ::ckptree::testing::kSlowDown;
using ::ckptree::testing::PatternSource;
using ::ckptree::testing::ScaledWithServers;
using ::ckptree::testing::Soon;
using ::testing::HasSubstr;

struct Case {
  const char* name;
  Fault fault;
  const char* answer;
};
constexpr Case kCases[] = {
    {"the request is lost", Fault::kLoseRequest, ""},
    {"the answer is lost", Fault::kLoseAnswer, ""},
    {"the request arrives twice", Fault::kTwice, ""},
    {"the answer is cut", Fault::kCutAnswer, ""},
    {"500", Fault::kAnswer, kServerError},
    {"500, and it was done", Fault::kAnswerAfter, kServerError},
    {"503", Fault::kAnswer, kSlowDown},
    {"503, and it was done", Fault::kAnswerAfter, kSlowDown},
    {"409", Fault::kAnswer, kConflict},
    {"409, and it was done", Fault::kAnswerAfter, kConflict},
    {"a portal's page", Fault::kAnswer, kPortal},
    {"a portal's page, and it was done", Fault::kAnswerAfter, kPortal},
    {"half a head", Fault::kAnswer, kHalfHead},
    {"half a head, and it was done", Fault::kAnswerAfter, kHalfHead},
};

// `store_` goes through the proxy, `direct_` past it.
class S3FaultTest : public testing::ObjectStoreTest {
 protected:
  S3FaultTest() : proxy_(std::atoi(ServerPort().c_str())) {}

  void SetUp() override {
    direct_ = Open();
    store_ = Through();
  }
  static std::string ServerPort() {
    const std::string url = Environment("CKPTREE_TEST_S3");
    return url.substr(url.rfind(':') + 1);
  }
  std::unique_ptr<kv::ObjectStore> Through() {
    kv::ObjectStoreOptions options = Options();
    options.endpoint = proxy_.url();
    auto opened = kv::OpenObjectStore(Address(), options, Soon());
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  PutOutcome Settled(const std::string& name, const std::string& id) {
    const auto answer = PutSettled(*store_, name, id, id, Soon());
    EXPECT_THAT(answer, testing::IsOk());
    return answer.ok() ? answer->outcome : PutOutcome::kUnknown;
  }
  void PutDirectly(const std::string& name, const std::string& id) {
    const auto answer = direct_->PutIfAbsent(name, id, id, Soon());
    ASSERT_THAT(answer, testing::IsOk());
    EXPECT_EQ(answer->outcome, PutOutcome::kCreated);
  }

  FaultProxy proxy_;
  std::unique_ptr<kv::ObjectStore> direct_;
};

TEST_F(S3FaultTest, ACreationIsSettledWhateverHappensToIt) {
  const int rounds = ScaledWithServers(50);
  for (const Case& each : kCases) {
    int fired = 0;
    for (int i = 0; i < rounds; ++i) {
      const std::string name = absl::StrCat("commit/", i);
      const std::string id = kv::NewWriteId();
      proxy_.Arm(each.fault, "PUT", 1, each.answer);
      EXPECT_EQ(Settled(name, id), PutOutcome::kCreated) << each.name;
      EXPECT_EQ(Read(name), id) << each.name;
      fired += proxy_.fired();
      const std::vector<std::string> names = {name};
      ASSERT_THAT(direct_->Delete(names, Soon()), testing::IsOk());
    }
    EXPECT_EQ(fired, rounds) << each.name;
    absl::PrintF("fault: %s, creating, %d\n", each.name, fired);
  }
}

TEST_F(S3FaultTest, WhatAnotherCreatedIsNeverTakenForOnesOwn) {
  const int rounds = ScaledWithServers(50);
  for (const Case& each : kCases) {
    int fired = 0;
    for (int i = 0; i < rounds; ++i) {
      const std::string name =
          absl::StrCat("commit/", each.answer[0] != 0, "-",
                       static_cast<int>(each.fault), "-", kv::NewWriteId());
      const std::string other = kv::NewWriteId();
      PutDirectly(name, other);
      proxy_.Arm(each.fault, "PUT", 1, each.answer);
      EXPECT_EQ(Settled(name, kv::NewWriteId()), PutOutcome::kExists)
          << each.name;
      EXPECT_EQ(Read(name), other) << each.name;
      fired += proxy_.fired();
    }
    EXPECT_EQ(fired, rounds) << each.name;
    absl::PrintF("fault: %s, another's, %d\n", each.name, fired);
  }
}

TEST_F(S3FaultTest, APortalsPageIsNamedByItsHost) {
  Put("segment/1", 10, 1);
  std::byte byte[1];
  proxy_.Arm(Fault::kAnswer, "GET", 5, kPortal);
  EXPECT_THAT(
      store_->GetRange("segment/1", 0, byte, Soon()).status(),
      testing::StatusIs(absl::StatusCode::kUnavailable,
                        ::testing::AllOf(HasSubstr(store_->address()),
                                         HasSubstr(proxy_.url().substr(7)),
                                         HasSubstr("AWS_ENDPOINT_URL"))));
  EXPECT_EQ(proxy_.fired(), 5);
}

TEST_F(S3FaultTest, ALateRequestMeetsWhatIsThere) {
  for (int i = 0; i < ScaledWithServers(50); ++i) {
    const std::string name = absl::StrCat("commit/", i);
    const std::string late = kv::NewWriteId(), other = kv::NewWriteId();
    proxy_.Arm(Fault::kLateRequest, "PUT");
    const auto answer = store_->PutIfAbsent(name, late, late, Soon());
    ASSERT_THAT(answer, testing::IsOk());
    EXPECT_EQ(answer->outcome, PutOutcome::kUnknown);
    EXPECT_FALSE(answer->reason.ok());
    EXPECT_EQ(proxy_.fired(), 1);
    const bool before = i % 2 == 0;
    if (before) PutDirectly(name, other);
    proxy_.Release();
    EXPECT_EQ(Settled(name, late),
              before ? PutOutcome::kExists : PutOutcome::kCreated);
    EXPECT_EQ(Read(name), before ? other : late);
  }
}

TEST_F(S3FaultTest, WhatIsReadAndWrittenIsRightAfterFaults) {
  for (const Case& each : kCases) {
    for (int i = 0; i < ScaledWithServers(50); ++i) {
      const std::string name = absl::StrCat("segment/", i);
      proxy_.Arm(each.fault, "PUT", 1, each.answer);
      Put(name, 100'000, static_cast<std::uint64_t>(i));
      EXPECT_EQ(proxy_.fired(), 1) << each.name;
      proxy_.Arm(each.fault, "GET", 1, each.answer);
      ExpectPattern(name, 1000, 50'000, static_cast<std::uint64_t>(i));
      EXPECT_EQ(proxy_.fired(), 1) << each.name;
      proxy_.Arm(each.fault, "HEAD", 1, each.answer);
      EXPECT_TRUE(IsThere(name));
      EXPECT_EQ(proxy_.fired(), 1) << each.name;
      proxy_.Arm(each.fault, "DELETE", 1, each.answer);
      const std::vector<std::string> names = {name};
      EXPECT_THAT(store_->Delete(names, Soon()), testing::IsOk());
      EXPECT_EQ(proxy_.fired(), 1) << each.name;
      EXPECT_FALSE(IsThere(name));
    }
  }
}

TEST_F(S3FaultTest, PartsArriveWhateverHappensToOneOfThem) {
  for (const Case& each : kCases) {
    for (const char* method : {"POST", "PUT"}) {
      proxy_.Arm(each.fault, method, 1, each.answer);
      Put("segment/1", 70'000'000);
      EXPECT_EQ(proxy_.fired(), 1) << each.name << " " << method;
      ExpectPattern("segment/1", 60'000'000, 10'000'000);
    }
    if (!testing::WholeTrial()) break;
  }
}

TEST_F(S3FaultTest, PartsGoOnWhileOneOfThemIsNotAnswered) {
  constexpr std::uint64_t kSize = 150'000'000;
  proxy_.Arm(Fault::kLateAnswer, "PUT partNumber=1&");
  absl::Notification last_is_read;
  PatternSource source(kSize, 0);
  source.on_read = [&](std::uint64_t offset) {
    if (offset + (16 << 20) >= kSize) last_is_read.Notify();
    return absl::OkStatus();
  };
  absl::Status put = absl::UnknownError("");
  std::thread putting([&] { put = store_->Put("segment/1", source, Soon()); });
  // Only the first part's answer is missing by then, and those of three more.
  EXPECT_TRUE(last_is_read.WaitForNotificationWithTimeout(absl::Minutes(2)));
  EXPECT_EQ(proxy_.fired(), 1);
  EXPECT_FALSE(IsThere("segment/1"));
  proxy_.Release();
  putting.join();
  EXPECT_THAT(put, testing::IsOk());
  ExpectPattern("segment/1", 0, 1000);
  ExpectPattern("segment/1", kSize - 70'000'000, 70'000'000);
}

TEST_F(S3FaultTest, CorruptedRequestsAreSentAgain) {
  if (!Environment("CKPTREE_TEST_CEPH_CONF").empty()) {  // moto looks at none.
    for (int i = 0; i < ScaledWithServers(50); ++i) {
      const std::string name = absl::StrCat("commit/", i);
      const std::string id = kv::NewWriteId();
      proxy_.Arm(Fault::kCorruptRequest, "PUT");
      EXPECT_EQ(Settled(name, id), PutOutcome::kCreated);
      EXPECT_EQ(proxy_.fired(), 1);
      EXPECT_EQ(Read(name), id);
      proxy_.Arm(Fault::kCorruptRequest, "PUT");
      Put("segment/1", 300'000);
      EXPECT_EQ(proxy_.fired(), 1);
      ExpectPattern("segment/1", 0, 300'000);
    }
  }
}

TEST_F(S3FaultTest, AServerThatStaysSilentIsLeftAtTheDeadline) {
  const std::string id = kv::NewWriteId();
  proxy_.Arm(Fault::kSilence, "PUT");
  const auto answer = store_->PutIfAbsent(
      "commit/1", id, id, kv::Call::Within(absl::Milliseconds(300)));
  ASSERT_THAT(answer, testing::IsOk());
  EXPECT_EQ(answer->outcome, PutOutcome::kUnknown);
  EXPECT_EQ(proxy_.fired(), 1);
  EXPECT_EQ(Settled("commit/1", id), PutOutcome::kCreated);
  proxy_.Release();
}

TEST_F(S3FaultTest, AServerThatStaysSilentIsLeftWhenCancelled) {
  proxy_.Arm(Fault::kSilence, "GET");
  std::stop_source stop;
  std::thread canceller([&] {
    while (proxy_.fired() == 0) std::this_thread::yield();
    stop.request_stop();
  });
  std::byte into[10];
  EXPECT_EQ(
      store_->GetRange("a", 0, into, Soon(stop.get_token())).status().code(),
      absl::StatusCode::kCancelled);
  canceller.join();
  proxy_.Release();
}

TEST_F(S3FaultTest, AnErrorThatLastsIsTold) {
  proxy_.Arm(Fault::kAnswer, "GET", 1000, kServerError);
  std::byte into[10];
  const absl::Status status =
      store_->GetRange("a/b", 0, into, kv::Call::Within(absl::Seconds(1)))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a/b at 127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("500"));
  EXPECT_GE(proxy_.fired(), 2);
}

// So long is waited, and not asked again before.
TEST_F(S3FaultTest, WhatRetryAfterAsksForIsWaited) {
  proxy_.Arm(Fault::kAnswer, "GET", 1000,
             "HTTP/1.1 503 Slow Down\r\nRetry-After: 3600\r\n"
             "Content-Length: 0\r\n\r\n");
  std::byte into[10];
  // Without it there are two requests by then: see above.
  const absl::Status status =
      store_->GetRange("a", 0, into, kv::Call::Within(absl::Seconds(1)))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(proxy_.fired(), 1);
}

TEST_F(S3FaultTest, AQuotaThatIsUsedUpIsNamed) {
  proxy_.Arm(Fault::kAnswer, "PUT", 1,
             "HTTP/1.1 403 Forbidden\r\nContent-Length: 41\r\n\r\n"
             "<Error><Code>QuotaExceeded</Code></Error>");
  const absl::Status status = store_->Put("a", PatternSource(10, 0), Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is full"));
  EXPECT_EQ(proxy_.fired(), 1);
}

TEST_F(S3FaultTest, ExpiredCredentialsAreAskedForAgain) {
  const std::string key = Environment("AWS_ACCESS_KEY_ID");
  const std::string secret = Environment("AWS_SECRET_ACCESS_KEY");
  proxy_.Serve("/credentials", [&] {
    return absl::StrCat(R"({"AccessKeyId": ")", key,
                        R"(", "SecretAccessKey": ")", secret,
                        R"(", "Expiration": "2100-01-01T00:00:00Z"})");
  });
  unsetenv("AWS_ACCESS_KEY_ID");
  unsetenv("AWS_SECRET_ACCESS_KEY");
  setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
  setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI",
         absl::StrCat(proxy_.url(), "/credentials").c_str(), 1);
  const std::unique_ptr<kv::ObjectStore> store = Through();
  EXPECT_THAT(store->Put("a", PatternSource(10, 0), Soon()), testing::IsOk());
  EXPECT_THAT(store->Head("a", Soon()), testing::IsOk());
  EXPECT_EQ(proxy_.served(), 1);
  proxy_.Arm(Fault::kAnswer, "GET", 1, kExpired);
  std::byte into[10];
  EXPECT_THAT(store->GetRange("a", 0, into, Soon()), testing::IsOk());
  EXPECT_EQ(proxy_.fired(), 1);
  EXPECT_EQ(proxy_.served(), 2);
  proxy_.Arm(Fault::kAnswer, "GET", 2, kExpired);
  const absl::Status status = store->GetRange("a", 0, into, Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expired"));
  setenv("AWS_ACCESS_KEY_ID", key.c_str(), 1);
  setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
  unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

TEST_F(S3FaultTest, AStoreThatIgnoresTheConditionIsRefused) {
  proxy_.Arm(Fault::kAnswer, "PUT", 2,
             "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n");
  const absl::Status status = ProveConditionalPut(*store_, "", Soon());
  EXPECT_EQ(proxy_.fired(), 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing is written"));
}

// One that says of what is absent that it is there: nobody waits for it.
TEST_F(S3FaultTest, AStoreThatRefusesEachConditionIsRefused) {
  proxy_.Arm(Fault::kAnswer, "PUT", 1000,
             "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
  const absl::Status status =
      ProveConditionalPut(*store_, "", kv::Call::Within(absl::Minutes(30)));
  EXPECT_EQ(proxy_.fired(), 5);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("it says of what is absent that it is there"));
}

}  // namespace
}  // namespace ckptree
