// SPDX-License-Identifier: Apache-2.0

// A store that ships to S3 through a network that loses, delays, repeats, cuts
// and corrupts: what it acknowledged is read past it, by a machine that has
// nothing else.

#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "tests/core/fixture.h"
#include "tests/fault/scale.h"
#include "tests/objects/fault_proxy.h"
#include "tests/objects/fixture.h"
#include "tests/remote/trainer.h"
#include "tests/testutil/temp_dir.h"

// Added to what requests are signed with, and to nothing else: waits go by the
// clock of the kernel.
static std::atomic<time_t> signing_offset_seconds{0};

extern "C" time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec += signing_offset_seconds;
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kAbsentAndTaken[] =
    "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n";
constexpr char kQuota[] =
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 45\r\n\r\n"
    "<Error><Code>QuotaExceeded</Code></Error>    ";
constexpr char kNoRoom[] =
    "HTTP/1.1 507 Insufficient Storage\r\nContent-Length: 0\r\n\r\n";
constexpr char kExpiredForbidden[] =
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 44\r\n\r\n"
    "<Error><Code>ExpiredToken</Code></Error>    ";
constexpr char kDenied[] =
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 44\r\n\r\n"
    "<Error><Code>AccessDenied</Code></Error>    ";

struct Case {
  const char* name;
  Fault fault;
  const char* answer;
  int count = 1;
};
// Of what writes.
constexpr Case kWriting[] = {
    {"dropped", Fault::kLoseRequest, ""},
    {"answer dropped", Fault::kLoseAnswer, ""},
    {"delayed", Fault::kLateAnswer, ""},
    {"arrives after its repetition", Fault::kLateRequest, ""},
    {"duplicated", Fault::kTwice, ""},
    {"answer cut", Fault::kCutAnswer, ""},
    {"corrupted", Fault::kCorruptRequest, ""},
    {"answer corrupted", Fault::kCorruptAnswer, ""},
    {"500", Fault::kAnswer, kServerError},
    {"500, and it was done", Fault::kAnswerAfter, kServerError},
    {"503 slow down", Fault::kAnswer, kSlowDown},
    {"503, and it was done", Fault::kAnswerAfter, kSlowDown},
    {"409", Fault::kAnswer, kConflict},
    // The second is of what was asked for again.
    {"409, and it was done", Fault::kAnswerAfter, kConflict},
    {"412 of what is absent", Fault::kAnswer, kAbsentAndTaken},
    {"412, and it was done", Fault::kAnswerAfter, kAbsentAndTaken},
    {"a quota that is used up", Fault::kAnswer, kQuota},
    {"507", Fault::kAnswer, kNoRoom},
    {"expired credentials", Fault::kAnswer, kExpired, 2},
    {"expired credentials, by 403", Fault::kAnswer, kExpiredForbidden, 2},
    {"no right for a while", Fault::kAnswer, kDenied},
};
// Of what reads.
constexpr Case kReading[] = {
    {"dropped", Fault::kLoseRequest, ""},
    {"answer dropped", Fault::kLoseAnswer, ""},
    {"delayed", Fault::kLateAnswer, ""},
    {"duplicated", Fault::kTwice, ""},
    {"answer cut", Fault::kCutAnswer, ""},
    {"answer corrupted", Fault::kCorruptAnswer, ""},
    {"500", Fault::kAnswer, kServerError},
    {"503 slow down", Fault::kAnswer, kSlowDown},
};

class RemoteFaultTest : public ObjectStoreTest {
 protected:
  RemoteFaultTest()
      : proxy_(
            std::atoi(Environment("CKPTREE_TEST_S3")
                          .substr(Environment("CKPTREE_TEST_S3").rfind(':') + 1)
                          .c_str())) {}
  void SetUp() override {}

  std::string AddressOf(int i) { return absl::StrCat(Address(), "/", i); }
  static StoreOptions Options(const std::string& address) {
    StoreOptions options = QuietOptions();
    options.remote = address;
    options.durable = Durable::kRemote;
    options.remote_timeout = kLong;
    options.take_over = true;
    return options;
  }
  absl::StatusOr<Store> OpenAt(const std::string& endpoint,
                               const std::string& disk,
                               const StoreOptions& options) {
    setenv("AWS_ENDPOINT_URL_S3", endpoint.c_str(), 1);
    return Store::Open(disks_ / disk, options);
  }
  absl::StatusOr<Store> Through(const std::string& disk,
                                const StoreOptions& options) {
    return OpenAt(proxy_.url(), disk, options);
  }
  absl::StatusOr<Store> Past(const std::string& disk,
                             const StoreOptions& options) {
    return OpenAt(Environment("CKPTREE_TEST_S3"), disk, options);
  }
  std::string Judge(const std::string& address, const Told& told) {
    setenv("AWS_ENDPOINT_URL_S3", Environment("CKPTREE_TEST_S3").c_str(), 1);
    const std::string cache = disks_ / absl::StrCat("cache", ++caches_);
    const std::string fault = RemoteFault(address, told, cache);
    fs::remove_all(cache);
    return fault;
  }
  static bool HasSegments(const std::string& address) {
    kv::ObjectStoreOptions options;
    options.endpoint = Environment("CKPTREE_TEST_S3");
    const auto opened = kv::OpenObjectStore(address, options, Soon());
    if (!opened.ok()) return false;
    const absl::StatusOr<kv::ObjectPage> page = (*opened)->List("", "", Soon());
    if (!page.ok()) return false;
    for (const kv::ObjectInfo& info : page->objects) {
      if (absl::StrContains(info.name, "/segment/")) return true;
    }
    return false;
  }
  static void Tell(const std::string& name, int trials, int fired, int lost) {
    absl::PrintF("trial remote, %s: %d trials, %d fired, %d lost\n", name,
                 trials, fired, lost);
  }

  TempDir disks_;
  int caches_ = 0;
  FaultProxy proxy_;
};

TEST_F(RemoteFaultTest, WhatIsAcknowledgedIsThereWhateverTheNetworkDoes) {
  const int rounds = ScaledWithServers(50);
  int at = 0;
  for (const Case& each : kWriting) {
    // moto looks at no checksum of what it is given.
    if (each.fault == Fault::kCorruptRequest &&
        Environment("CKPTREE_TEST_CEPH_CONF").empty()) {
      continue;
    }
    const std::string address = AddressOf(++at);
    proxy_.Arm(Fault::kNone, "", 0);
    absl::StatusOr<Store> store =
        Through(absl::StrCat("disk", at), Options(address));
    ASSERT_TRUE(store.ok()) << store.status();
    Told told;
    int fired = 0;
    for (std::int64_t step = 1; step <= rounds; ++step) {
      told.asked.insert(step);
      // Every third meets it at its segment, the others at their commit.
      proxy_.Arm(each.fault, "PUT", each.count, each.answer);
      SaveHandle save = StartStep(*store, step);
      proxy_.AwaitFired();
      if (each.fault == Fault::kLateAnswer) proxy_.Release();
      const absl::Status saved = save.WaitCommitted(kLong);
      ASSERT_TRUE(saved.ok()) << each.name << ": " << saved;
      told.acknowledged.insert(step);
      if (each.fault == Fault::kLateRequest) proxy_.Release();
      EXPECT_EQ(proxy_.fired(), each.count) << each.name;
      fired += proxy_.fired() / each.count;
    }
    proxy_.Release();
    EXPECT_EQ(fired, rounds) << each.name;
    // It met some at a segment.
    EXPECT_TRUE(rounds < 3 || HasSegments(address)) << each.name;
    const std::string wrong = Judge(address, told);
    EXPECT_EQ(wrong, "") << each.name;
    Tell(absl::StrCat("writing ", each.name), rounds, fired, !wrong.empty());
    EXPECT_TRUE(store->Close().ok());
  }
}

TEST_F(RemoteFaultTest, WhatIsReadIsRightWhateverTheNetworkDoes) {
  const std::string address = AddressOf(1);
  Told told;
  {
    absl::StatusOr<Store> store = Past("disk", Options(address));
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = 1; step <= 6; ++step) {
      told.asked.insert(step);
      told.acknowledged.insert(step);
      ASSERT_TRUE(StartStep(*store, step).WaitCommitted(kLong).ok());
    }
  }
  const int rounds = ScaledWithServers(50);
  // How many requests the reading has.
  int requests = 0;
  for (const Case& each : kReading) {
    int fired = 0, lost = 0, refused = 0;
    for (int i = 0; i < rounds; ++i) {
      const std::string cache = disks_ / "cache";
      proxy_.Release();
      const auto read = [&] {
        setenv("AWS_ENDPOINT_URL_S3", proxy_.url().c_str(), 1);
        return RemoteFault(address, told, cache);
      };
      if (requests == 0) {
        // A fault of none.
        while (true) {
          proxy_.ArmAt(Fault::kTwice, requests, nullptr);
          ASSERT_EQ(read(), "");
          fs::remove_all(cache);
          if (proxy_.fired() == 0) break;
          ++requests;
        }
        ASSERT_GT(requests, 3);
      }
      proxy_.ArmAt(each.fault, i % requests, nullptr, each.answer);
      std::thread releaser;
      if (each.fault == Fault::kLateAnswer) {
        releaser = std::thread([&] {
          proxy_.AwaitFired();
          proxy_.Release();
        });
      }
      std::string wrong = read();
      if (releaser.joinable()) releaser.join();
      fired += proxy_.fired();
      // A damaged object may be an error by name: the next try reads it.
      if (!wrong.empty() && each.fault == Fault::kCorruptAnswer) {
        EXPECT_THAT(wrong, Not(HasSubstr("other bytes")));
        EXPECT_THAT(wrong, Not(HasSubstr("is lost")));
        ++refused;
        wrong = read();
      }
      EXPECT_EQ(wrong, "") << each.name << " at request " << i % requests;
      lost += !wrong.empty();
      fs::remove_all(cache);
    }
    EXPECT_EQ(fired, rounds) << each.name;
    Tell(absl::StrCat("reading ", each.name, " (", refused, " refused)"),
         rounds, fired, lost);
  }
}

TEST_F(RemoteFaultTest, SavesGoOnWhileTheNetworkIsAway) {
  const int rounds = ScaledWithServers(50);
  StoreOptions options = Options(AddressOf(1));
  options.durable = Durable::kLocal;
  absl::StatusOr<Store> store = Through("disk", options);
  ASSERT_TRUE(store.ok()) << store.status();
  Told told;
  std::int64_t step = 0;
  int fired = 0, lost = 0;
  for (int i = 0; i < rounds; ++i) {
    proxy_.Arm(Fault::kLoseRequest, "", 1'000'000);
    for (int saves = 0; saves < 4; ++saves) {
      told.asked.insert(++step);
      ASSERT_TRUE(StartStep(*store, step).WaitCommitted(kLong).ok());
    }
    proxy_.AwaitFired();
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(store->WaitReplicated(absl::ZeroDuration())));
    EXPECT_GT(store->Info().unshipped, 0);
    fired += proxy_.fired() > 0;
    proxy_.Arm(Fault::kNone, "", 0);
    const absl::Status caught_up = store->WaitReplicated(kLong);
    ASSERT_TRUE(caught_up.ok()) << caught_up;
    for (std::int64_t there = step - 3; there <= step; ++there) {
      told.acknowledged.insert(there);
    }
    if (i % 10 == 0 || i + 1 == rounds) {
      const std::string wrong = Judge(AddressOf(1), told);
      EXPECT_EQ(wrong, "");
      lost += !wrong.empty();
    }
  }
  EXPECT_EQ(fired, rounds);
  Tell("network away", rounds, fired, lost);
}

// New keys are asked for each time.
TEST_F(RemoteFaultTest, ExpiredCredentialsAreRenewedWhileItTrains) {
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
  const int rounds = ScaledWithServers(50);
  Told told;
  int fired = 0;
  {
    absl::StatusOr<Store> store = Through("disk", Options(AddressOf(1)));
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = 1; step <= rounds; ++step) {
      const int served = proxy_.served();
      proxy_.Arm(Fault::kAnswer, "PUT", 1,
                 step % 2 == 0 ? kExpired : kExpiredForbidden);
      told.asked.insert(step);
      const absl::Status saved = StartStep(*store, step).WaitCommitted(kLong);
      ASSERT_TRUE(saved.ok()) << saved;
      told.acknowledged.insert(step);
      EXPECT_EQ(proxy_.fired(), 1);
      EXPECT_GT(proxy_.served(), served);
      fired += proxy_.served() > served;
    }
    EXPECT_TRUE(store->Close().ok());
  }
  setenv("AWS_ACCESS_KEY_ID", key.c_str(), 1);
  setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
  unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  unsetenv("AWS_SHARED_CREDENTIALS_FILE");
  const std::string wrong = Judge(AddressOf(1), told);
  EXPECT_EQ(wrong, "");
  EXPECT_EQ(fired, rounds);
  Tell("credentials that expire and are renewed", rounds, fired,
       !wrong.empty());
}

// The server refuses what was signed at another time; it is named, saves go on,
// and what waits is there once the clock is right.
TEST_F(RemoteFaultTest, AClockThatIsADayOffIsNamedWhileItTrains) {
  if (Environment("CKPTREE_TEST_CEPH_CONF").empty()) {
    GTEST_SKIP() << "moto looks at no date";
  }
  const int rounds = ScaledWithServers(50);
  StoreOptions options = Options(AddressOf(1));
  options.durable = Durable::kLocal;
  absl::StatusOr<Store> store = Past("disk", options);
  ASSERT_TRUE(store.ok()) << store.status();
  Told told;
  int fired = 0;
  for (std::int64_t step = 1; step <= rounds; ++step) {
    signing_offset_seconds = step % 2 == 0 ? 86400 : -86400;
    told.asked.insert(step);
    ASSERT_TRUE(StartStep(*store, step).WaitCommitted(kLong).ok());
    absl::Status waited;
    do {
      waited = store->WaitReplicated(absl::Milliseconds(20));
      ASSERT_FALSE(waited.ok()) << "its clock is a day off, and it is there";
    } while (!absl::StrContains(waited.message(),
                                "the clock of this machine is wrong"));
    ++fired;
    signing_offset_seconds = 0;
    const absl::Status there = store->WaitReplicated(kLong);
    ASSERT_TRUE(there.ok()) << there;
    told.acknowledged.insert(step);
  }
  const std::string wrong = Judge(AddressOf(1), told);
  EXPECT_EQ(wrong, "");
  Tell("a clock that is a day off", rounds, fired, !wrong.empty());
  EXPECT_TRUE(store->Close().ok());
}

// Two who write: one is alive, and its commit under way, while the other takes
// the store over.
TEST_F(RemoteFaultTest, OfTwoWhoWriteOneIsFenced) {
  const int rounds = ScaledWithServers(50);
  Told told;
  std::int64_t step = 0;
  for (const Fault fault : {Fault::kLateRequest, Fault::kLateAnswer}) {
    const std::string address = AddressOf(fault == Fault::kLateRequest ? 1 : 2);
    told = Told();
    int fired = 0, lost = 0;
    for (int i = 0; i < rounds; ++i) {
      const auto disk = [&](const char* who) {
        return absl::StrCat(who, static_cast<int>(fault), "-", i);
      };
      proxy_.Arm(Fault::kNone, "", 0);
      absl::StatusOr<Store> first = Through(disk("first"), Options(address));
      ASSERT_TRUE(first.ok()) << first.status();
      told.asked.insert(++step);
      ASSERT_TRUE(StartStep(*first, step).WaitCommitted(kLong).ok());
      told.acknowledged.insert(step);
      // Its next commit arrives after the other's open; or arrives, and nobody
      // hears of it before.
      step += step % 3 == 2 ? 2 : 1;
      proxy_.Arm(fault, "PUT /commit/",
                 fault == Fault::kLateRequest ? 1'000'000 : 1);
      told.asked.insert(step);
      SaveHandle late = StartStep(*first, step);
      proxy_.AwaitFired();
      absl::StatusOr<Store> second = Past(disk("second"), Options(address));
      ASSERT_TRUE(second.ok()) << second.status();
      fired += proxy_.fired() > 0;
      proxy_.Release();
      proxy_.Arm(Fault::kNone, "", 0);
      const absl::Status saved = late.WaitCommitted(kLong);
      if (saved.ok()) told.acknowledged.insert(step);
      EXPECT_EQ(absl::IsFailedPrecondition(saved), fault == Fault::kLateRequest)
          << saved;
      const std::int64_t refused = step + 1;
      const absl::Status after =
          StartStep(*first, refused).WaitCommitted(kLong);
      EXPECT_TRUE(absl::IsFailedPrecondition(after)) << after;
      told.asked.insert(step += 2);
      const absl::Status mine = StartStep(*second, step).WaitCommitted(kLong);
      EXPECT_TRUE(mine.ok()) << mine;
      told.acknowledged.insert(step);
      first->Close().IgnoreError();
      EXPECT_TRUE(second->Close().ok());
      if (i % 5 == 0 || i + 1 == rounds) {
        const std::string wrong = Judge(address, told);
        EXPECT_EQ(wrong, "") << i;
        lost += !wrong.empty();
      }
      fs::remove_all(disks_ / disk("first"));
      fs::remove_all(disks_ / disk("second"));
    }
    EXPECT_EQ(fired, rounds);
    Tell(fault == Fault::kLateRequest ? "two writers, one late"
                                      : "two writers, one unheard",
         rounds, fired, lost);
  }
}

// In what a process says, in its files and in what it puts into the bucket.
TEST_F(RemoteFaultTest, NoSecretIsInAnyOutput) {
  const std::string secret = Environment("AWS_SECRET_ACCESS_KEY");
  const std::string token = "token-that-nobody-may-see-0123456789";
  ASSERT_GT(secret.size(), 20);
  const std::string signature(64, 'e');
  // Some servers send back what was signed, and with what.
  const std::string body = absl::StrCat(
      "<Error><Code>SignatureDoesNotMatch</Code><Message>", secret,
      "</Message><StringToSign>", token, "</StringToSign><SignatureProvided>",
      signature, "</SignatureProvided></Error>");
  absl::Mutex mu;
  std::string said;
  int errors = 0;
  const auto say = [&](std::string_view text) {
    absl::MutexLock lock(&mu);
    said.append(text).push_back('\n');
    ++errors;
  };
  StoreOptions options = Options(AddressOf(1));
  options.log = [&](LogSeverity, std::string_view, std::string_view text) {
    say(text);
  };
  ::testing::internal::CaptureStderr();
  int fired = 0;
  {
    absl::StatusOr<Store> store = Through("disk", options);
    ASSERT_TRUE(store.ok()) << store.status();
    std::int64_t step = 0;
    for (const char* line :
         {"400 Bad Request", "403 Forbidden", "404 Not Found",
          "500 Internal Server Error", "301 Moved"}) {
      for (const char* method : {"PUT", "HEAD"}) {
        proxy_.Arm(Fault::kAnswer, method, 3,
                   absl::StrCat("HTTP/1.1 ", line, "\r\nLocation: http://x/?",
                                "X-Amz-Signature=", signature,
                                "\r\nContent-Length: ", body.size(), "\r\n\r\n",
                                body));
        SaveHandle save = StartStep(*store, ++step);
        const absl::Status status = save.WaitCommitted(kLong);
        if (!status.ok()) say(status.ToString());
        fired += proxy_.fired();
      }
    }
    proxy_.Arm(Fault::kNone, "", 0);
    EXPECT_TRUE(store->WaitReplicated(kLong).ok());
  }
  // Refused by the server itself: a token that it does not know, another key.
  setenv("AWS_SESSION_TOKEN", token.c_str(), 1);
  say(Past("disk2", options).status().ToString());
  unsetenv("AWS_SESSION_TOKEN");
  const std::string wrong = secret + "x";
  setenv("AWS_SECRET_ACCESS_KEY", wrong.c_str(), 1);
  const absl::Status refused = Past("disk3", options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnauthenticated) << refused;
  say(refused.ToString());
  setenv("AWS_SECRET_ACCESS_KEY", secret.c_str(), 1);
  // An address with one in it.
  say(Past("disk4", Options(absl::StrCat("s3://key:", secret, "@bucket/run")))
          .status()
          .ToString());
  say(::testing::internal::GetCapturedStderr());
  EXPECT_GT(fired, 4);
  EXPECT_GT(errors, 4);

  int looked_at = 0;
  const auto look = [&](const std::string& where, const std::string& text) {
    ++looked_at;
    for (const std::string& hidden : {secret, token, signature}) {
      EXPECT_EQ(text.find(hidden), std::string::npos) << "in " << where;
    }
    EXPECT_EQ(text.find("X-Amz-Signature"), std::string::npos) << where;
  };
  look("what was said", said);
  for (const auto& entry : fs::recursive_directory_iterator(disks_.path())) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    look(entry.path(), std::string(std::istreambuf_iterator<char>(file), {}));
  }
  store_ = ObjectStoreTest::Open();
  const std::vector<std::string> names = List("");
  for (const std::string& name : names) {
    look(name, Read(name, 0, std::size_t{1} << 20));
  }
  EXPECT_GT(names.size(), 5);
  EXPECT_GT(looked_at, static_cast<int>(names.size()) + 5);
}

}  // namespace
}  // namespace ckptree::testing
