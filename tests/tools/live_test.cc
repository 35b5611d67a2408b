// SPDX-License-Identifier: Apache-2.0

// The program beside a trainer: what it asks for, the trainer does. What comes
// of it is read out of the store.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/request_box.h"
#include "kv/store_lock.h"
#include "nlohmann/json.hpp"
#include "schema/store_request.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::int64_t kMost = 4 << 20;

class LiveTest : public CommandRunner {
 protected:
  void SetUp() override { MakeStore(own_); }

  void Open() {
    absl::StatusOr<Store> store = Store::Open(own_);
    ASSERT_TRUE(store.ok()) << store.status();
    trainer_.emplace(*std::move(store));
  }

  Running StartHere(std::vector<std::string> words) {
    words.insert(words.begin(), {"-C", own_});
    return Start(std::move(words));
  }
  Result Do(std::vector<std::string> words) {
    return Finish(StartHere(std::move(words)));
  }

  // "name=step" of all.
  std::vector<std::string> Tags() {
    std::vector<std::string> names;
    const std::vector<TagInfo> tags = trainer_->Tags().value();
    for (const TagInfo& tag : tags) {
      names.push_back(absl::StrFormat("%s=%d", tag.name, tag.step));
    }
    return names;
  }

  std::string By() { return absl::StrFormat("done by pid %d on ", getpid()); }
  std::string Requests() { return own_ + "/requests"; }
  std::string FileOf(const std::string& prefix, const std::string& id) {
    return Requests() + "/" + prefix + absl::BytesToHexString(id);
  }
  // An event, not a time: a test that waits for ever has failed.
  static void Await(const std::function<bool()>& what) {
    while (!what()) std::this_thread::yield();
  }

  // A request in which stands `bytes`, by this process.
  std::unique_ptr<kv::PostedRequest> Post(std::string* id,
                                          const std::string& bytes) {
    *id = kv::PostedRequest::NewId();
    return kv::PostedRequest::Post(own_, *id, bytes).value();
  }
  schema::StoreAnswer AnswerTo(kv::PostedRequest* posted) {
    Await([&] {
      return posted->Look().value() == kv::PostedRequest::State::kAnswered;
    });
    return schema::DecodeStoreAnswer(posted->Answer(kMost).value()).value();
  }

  const std::string own_ = scratch_ / "own";
  std::optional<Store> trainer_;
};

TEST_F(LiveTest, EachVerbIsDoneByTheTrainer) {
  Open();
  Result result = Do({"tag", "v1", "300"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("@v1 is step 300"));
  EXPECT_THAT(result.err, HasSubstr(By()));
  EXPECT_THAT(Tags(), ::testing::ElementsAre("v1=300", "warm=200"));
  EXPECT_EQ(Do({"tag", "v1", "300"}).code, 0);
  result = Do({"tag", "v1", "400"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--move"));
  EXPECT_EQ(Do({"tag", "v1", "400", "--move", "-q"}).err, "");
  EXPECT_THAT(Tags(), ::testing::ElementsAre("v1=400", "warm=200"));
  EXPECT_EQ(Do({"tag", "--delete", "v1"}).code, 0);
  EXPECT_EQ(Do({"tag", "--delete", "v1"}).code, 3);
  EXPECT_THAT(Tags(), ::testing::ElementsAre("warm=200"));

  EXPECT_EQ(Do({"pin", "200..300", "500"}).code, 0);
  for (const std::int64_t step : {100, 200, 300, 400, 500}) {
    ASSERT_OK_AND_ASSIGN(const StepInfo info, trainer_->Resolve(AtStep(step)));
    EXPECT_EQ(info.pinned, step != 400) << step;
  }
  EXPECT_EQ(Do({"pin", "--delete", "100..500"}).code, 0);

  EXPECT_EQ(Do({"fork", "300", "--branch", "trial"}).code, 0);
  EXPECT_EQ(trainer_->Branches().value().size(), 2u);
  EXPECT_EQ(Do({"fork", "300", "--branch", "trial"}).code, 2);
  EXPECT_EQ(Do({"fork", "--drop", "trial", "-y"}).code, 0);
  EXPECT_EQ(Do({"fork", "--drop", "trial", "-y"}).code, 3);
  EXPECT_EQ(trainer_->Branches().value().size(), 1u);

  result = Do({"rm", "300..400", "-y"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              StartsWith("removed step 300\nremoved step 400\nfreed "));
  EXPECT_EQ(trainer_->Steps().value().size(), 3u);
  EXPECT_EQ(Do({"rm", "200", "-y"}).code, 2);  // It is tagged.
  EXPECT_EQ(Do({"rm", "400", "-y"}).code, 3);

  result = Do({"gc", "--json"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"ckptree.gc/2\""));

  result = Do({"policy", "--set", "latest(1)"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(trainer_->Policy().value().text, "latest(1)");
  result = Do({"policy", "--apply", "-y"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("removed step 100\n"));
  EXPECT_THAT(result.err, HasSubstr(By()));
  EXPECT_EQ(trainer_->Steps().value().size(), 2u);  // 200 is tagged.
  EXPECT_THAT(std::filesystem::directory_iterator(Requests()),
              std::filesystem::directory_iterator());
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, trainer_->Verify());
  EXPECT_TRUE(report.findings.empty());
}

// A trainer that starts then goes by what LOCK says.
TEST_F(LiveTest, ACommandWithoutATrainerSaysThatItIsBrief) {
  ASSERT_EQ(Do({"tag", "v1", "300"}).code, 0);
  EXPECT_THAT(ReadFile(own_ + "/LOCK"), HasSubstr("brief"));
  Open();
  EXPECT_THAT(ReadFile(own_ + "/LOCK"), Not(HasSubstr("brief")));
}

TEST_F(LiveTest, ManyAtOnceAreEachDoneOnce) {
  Open();
  std::vector<Running> running;
  for (int i = 0; i < 6; ++i) {
    running.push_back(StartHere({"tag", absl::StrFormat("t%d", i), "300"}));
  }
  // The name of one is the name of all: the first has it.
  for (const char* step : {"100", "400", "500"}) {
    running.push_back(StartHere({"tag", "one", step}));
  }
  int done = 0;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const Result result = Finish(running[i]);
    if (i < 6) EXPECT_EQ(result.code, 0) << result.err;
    if (i >= 6) done += result.code == 0;
    if (i >= 6 && result.code != 0) EXPECT_EQ(result.code, 2) << result.err;
  }
  EXPECT_EQ(done, 1);
  EXPECT_EQ(Tags().size(), 8u);
}

// Without a trainer each is the other's for a moment, and closes the store when
// its own work is done: what the other asked is not refused by that.
TEST_F(LiveTest, ShortOnesAtOnceAreEachDone) {
  const std::string path = scratch_ / "short";
  constexpr int kRounds = 12;
  {
    ASSERT_OK_AND_ASSIGN(Store store, Store::Create(path));
    const std::vector<float> values(3000, 1);
    for (int step = 1; step <= 2 * kRounds + 1; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.Put(
          "w",
          {.dtype = DType::kFloat32, .shape = {3000}, .data = values.data()});
      ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
    }
    ASSERT_OK(store.Close());
  }
  for (int i = 0; i < kRounds; ++i) {
    std::vector<Running> running;
    for (const int step : {2 * i + 1, 2 * i + 2}) {
      running.push_back(Start(
          {"-C", path, "rm", "-y", "--timeout", "60", std::to_string(step)}));
    }
    running.push_back(Start({"-C", path, "gc", "--full", "--timeout", "60"}));
    for (const Running& one : running) {
      const Result result = Finish(one);
      EXPECT_EQ(result.code, 0) << result.out << result.err;
    }
  }
  ASSERT_OK_AND_ASSIGN(const Store store,
                       Store::Open(path, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const std::vector<StepInfo> steps, store.Steps());
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 2 * kRounds + 1);
}

TEST_F(LiveTest, AStepThatWasSavedAnewIsNotMeant) {
  Open();
  schema::StoreRequest request;
  request.kind = schema::RequestKind::kDelete;
  ASSERT_OK_AND_ASSIGN(const StepInfo old, trainer_->Resolve(AtStep(300)));
  request.steps = {{"", 300, old.version}};
  ASSERT_OK(trainer_->Begin(300, {.overwrite = true})
                .PutInt("n", 1)
                .Commit()
                .WaitCommitted());
  request.id = kv::PostedRequest::NewId();
  const auto posted = kv::PostedRequest::Post(
                          own_, request.id, schema::EncodeStoreRequest(request))
                          .value();
  const schema::StoreAnswer answer = AnswerTo(posted.get());
  EXPECT_EQ(answer.code,
            static_cast<std::uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(answer.text, HasSubstr("step 300 was saved anew"));
  EXPECT_OK(trainer_->OpenStep(300).status());
}

TEST_F(LiveTest, WhatADeadProcessAskedIsNotDone) {
  schema::StoreRequest request;
  request.kind = schema::RequestKind::kUntag;
  request.name = "warm";
  request.id = kv::PostedRequest::NewId();
  std::filesystem::create_directory(Requests());
  // Nobody holds its lock.
  const std::string path = FileOf("ask-", request.id);
  const std::string unfinished = FileOf("new-", request.id);
  const std::string others = Requests() + "/ask-somebody else's";
  for (const std::string& name : {unfinished, others, path}) {
    std::ofstream(scratch_ / "file", std::ios::binary)
        << schema::EncodeStoreRequest(request);
    std::filesystem::rename(scratch_ / "file", name);
    if (name == unfinished) {
      Open();
      EXPECT_FALSE(std::filesystem::exists(unfinished));
    }
  }
  Await([&] { return !std::filesystem::exists(path); });
  EXPECT_TRUE(std::filesystem::exists(others));
  EXPECT_THAT(Tags(), ::testing::ElementsAre("warm=200"));
  // The next one is served.
  EXPECT_EQ(Do({"tag", "v1", "300"}).code, 0);
}

TEST_F(LiveTest, AKilledCommandLeavesNothingBehind) {
  {
    // A writer that answers nothing: the command waits for it.
    ASSERT_OK_AND_ASSIGN(const auto lock, kv::StoreLock::Acquire(own_, 0));
    const Running command = StartHere({"tag", "v1", "300"});
    Await([&] {
      std::error_code error;
      for (const auto& entry :
           std::filesystem::directory_iterator(Requests(), error)) {
        if (entry.path().filename().string().starts_with("ask-")) return true;
      }
      return false;
    });
    kill(command.pid, SIGKILL);
    EXPECT_EQ(Finish(command).code, 128 + SIGKILL);
    EXPECT_FALSE(std::filesystem::is_empty(Requests()));
  }
  Open();
  Await([&] { return std::filesystem::is_empty(Requests()); });
  EXPECT_THAT(Tags(), ::testing::ElementsAre("warm=200"));
}

TEST_F(LiveTest, AnotherUsersRequestIsRefusedByName) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another's file";
  {
    ASSERT_OK_AND_ASSIGN(const auto lock, kv::StoreLock::Acquire(own_, 0));
    std::string id;
    schema::StoreRequest request;
    request.kind = schema::RequestKind::kUntag;
    request.name = "warm";
    request.id = kv::PostedRequest::NewId();
    const auto posted =
        kv::PostedRequest::Post(own_, request.id,
                                schema::EncodeStoreRequest(request))
            .value();
    ASSERT_EQ(chown(FileOf("ask-", request.id).c_str(), 12345, 12345), 0);
    kv::RequestBox box(own_);
    ASSERT_OK_AND_ASSIGN(const auto taken, box.Take(kMost));
    ASSERT_TRUE(taken.has_value());
    EXPECT_TRUE(absl::IsPermissionDenied(taken->status)) << taken->status;
    EXPECT_EQ(taken->user, 12345u);
    EXPECT_THAT(std::string(taken->status.message()),
                HasSubstr("request is of uid 12345"));
    EXPECT_EQ(taken->bytes, "");
  }
  // And the whole way.
  Open();
  std::string id;
  ASSERT_EQ(Do({"tag", "v1", "300"}).code, 0);  // The folder is there.
  const std::string path = scratch_ / "file";
  std::ofstream(path) << "whatever";
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
  id = kv::PostedRequest::NewId();
  std::filesystem::rename(path, FileOf("ask-", id));
  Await([&] { return std::filesystem::exists(FileOf("answer-", id)); });
  const auto answer =
      schema::DecodeStoreAnswer(ReadFile(FileOf("answer-", id))).value();
  EXPECT_EQ(answer.code,
            static_cast<std::uint32_t>(absl::StatusCode::kPermissionDenied));
  close(fd);
}

TEST_F(LiveTest, WhatIsNoRequestIsAnsweredAndHarmsNothing) {
  Open();
  schema::StoreRequest request;
  request.kind = schema::RequestKind::kUntag;
  request.name = "warm";
  request.id = kv::PostedRequest::NewId();
  const std::string good = schema::EncodeStoreRequest(request);
  for (const std::string& bytes :
       {std::string(), std::string("x"), good,  // Of another id.
        good.substr(0, good.size() - 1), std::string(kMost + 1, '\0')}) {
    std::string id;
    const auto posted = Post(&id, bytes);
    const schema::StoreAnswer answer = AnswerTo(posted.get());
    EXPECT_EQ(answer.code,
              static_cast<std::uint32_t>(absl::StatusCode::kInvalidArgument))
        << bytes.size();
  }
  // A link, a hard link, a folder, a pipe.
  const std::string id = kv::PostedRequest::NewId();
  std::filesystem::create_symlink("/etc/passwd", FileOf("ask-", id));
  Await([&] { return !std::filesystem::is_symlink(FileOf("ask-", id)); });
  for (int kind = 0; kind < 3; ++kind) {
    const std::string path = scratch_ / "file";
    const std::string other = kv::PostedRequest::NewId();
    int fd = -1;
    if (kind == 0) {
      std::ofstream(path) << good;
      std::filesystem::create_hard_link(path, scratch_ / "other");
      fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      struct flock lock {};
      lock.l_type = F_WRLCK;
      ASSERT_EQ(fcntl(fd, F_OFD_SETLK, &lock), 0);
    } else if (kind == 1) {
      std::filesystem::create_directory(path);
    } else {
      ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    }
    std::filesystem::rename(path, FileOf("ask-", other));
    Await([&] { return !std::filesystem::exists(FileOf("ask-", other)); });
    if (fd >= 0) close(fd);
  }
  EXPECT_EQ(Do({"tag", "v1", "300"}).code, 0);
  EXPECT_THAT(Tags(), ::testing::ElementsAre("v1=300", "warm=200"));
  ASSERT_OK(trainer_->Close());
}

TEST_F(LiveTest, ANameThatWasTakenIsNotTakenAgain) {
  ASSERT_OK_AND_ASSIGN(const auto lock, kv::StoreLock::Acquire(own_, 0));
  kv::RequestBox box(own_);
  std::string id;
  const auto posted = Post(&id, "bytes");
  ASSERT_OK_AND_ASSIGN(auto taken, box.Take(kMost));
  ASSERT_TRUE(taken.has_value());
  EXPECT_FALSE(posted->Withdraw());
  std::filesystem::rename(
      absl::StrFormat("%s-%d", FileOf("taken-", id), getpid()),
      FileOf("ask-", id));
  ASSERT_OK_AND_ASSIGN(taken, box.Take(kMost));
  EXPECT_FALSE(taken.has_value());
}

TEST_F(LiveTest, OneThatAnswersNothingIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto lock, kv::StoreLock::Acquire(own_, 0));
  const Result result = Do({"rm", "300", "-y", "--timeout", "1"});
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.err,
              HasSubstr(absl::StrFormat("held by pid %d on host", getpid())));
  EXPECT_THAT(result.err, HasSubstr("nothing was changed"));
  EXPECT_TRUE(std::filesystem::is_empty(Requests()));
  EXPECT_EQ(Do({"get", "300:lr"}).code, 0);
}

// What the command does whose trainer took the request and went.
TEST_F(LiveTest, AfterTheEndOfItsTrainerTheCommandDoesItOnce) {
  auto lock = kv::StoreLock::Acquire(own_, 0).value();
  kv::RequestBox box(own_);
  const Running command = StartHere({"rm", "300", "-y"});
  Await([&] { return box.Take(kMost).value().has_value(); });
  lock.reset();
  const Result result = Finish(command);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("ended before it was done"));
  EXPECT_EQ(Do({"get", "300:lr"}).code, 3);
  EXPECT_TRUE(std::filesystem::is_empty(Requests()));
}

TEST_F(LiveTest, WhereAnotherCameBetweenItIsNotKnown) {
  auto lock = kv::StoreLock::Acquire(own_, 0).value();
  kv::RequestBox box(own_);
  const Running command = StartHere({"tag", "v1", "300"});
  Await([&] { return box.Take(kMost).value().has_value(); });
  // As the next writer does when it opens the store.
  kv::RequestBox(own_).DisownOld();
  const Result result = Finish(command);
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("may have been done"));
  lock.reset();
  EXPECT_THAT(Do({"tag", "-o", "tsv", "--no-header"}).out,
              Not(HasSubstr("v1")));
}

// It holds all that it lists while it runs, which is no reason to stay.
TEST_F(LiveTest, WhatDuHoldsItselfIsNotKept) {
  const std::vector<std::string> words = {"du", "--free", "100", "--json"};
  const Result alone = Do(words);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto steps = [this] {
    return nlohmann::json::parse(Do({"du", "--json"}).out)["steps"];
  };
  const nlohmann::json all = steps();
  Open();
  EXPECT_EQ(Do(words).out, alone.out);
  EXPECT_EQ(steps(), all);
  // Another reader is one.
  ASSERT_OK_AND_ASSIGN(Store reader, Store::Open(own_, {.read_only = true}));
  ASSERT_OK_AND_ASSIGN(const Step held, reader.OpenStep(AtStep(100)));
  EXPECT_THAT(Do({"du", "--free", "100"}).out + Do({"du", "--free", "100"}).err,
              HasSubstr("kept"));
}

TEST_F(LiveTest, WhereNobodyTookItTheCommandActsItself) {
  auto lock = kv::StoreLock::Acquire(own_, 0).value();
  const Running command = StartHere({"pin", "300"});
  Await([&] {
    std::error_code error;
    return std::filesystem::exists(Requests(), error) &&
           !std::filesystem::is_empty(Requests(), error);
  });
  lock.reset();
  const Result result = Finish(command);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("done by")));
  Open();
  EXPECT_TRUE(trainer_->Resolve(AtStep(300)).value().pinned);
}

TEST_F(LiveTest, AnUnansweredRequestIsSaidToBeUnknown) {
  const auto lock = kv::StoreLock::Acquire(own_, 0).value();
  kv::RequestBox box(own_);
  const Running command = StartHere({"pin", "300", "--timeout", "1"});
  Await([&] { return box.Take(kMost).value().has_value(); });
  const Result result = Finish(command);
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("may still be done"));
}

}  // namespace
}  // namespace ckptree
