// SPDX-License-Identifier: Apache-2.0

// `ckptree serve`: who may ask what, and the page beside a trainer that saves.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/status_matchers.h"
#include "tests/tools/command_runner.h"
#include "tests/tools/report_page.h"
#include "tools/report/live_run.h"
#include "tools/report/page.h"
#include "tools/report/web_answer.h"

namespace ckptree {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using tools::HttpAnswer;
using tools::HttpRequest;

constexpr char kToken[] = "0123456789abcdef";

void Save(Store* store, std::int64_t step) {
  const float value = static_cast<float>(step);
  StepBuilder builder = store->Begin(step);
  builder.Put("w", {.dtype = DType::kFloat32, .shape = {1}, .data = &value});
  builder.SetMetric("a \"loss\"\\", 0.5);
  ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
}

class WebAnswersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tools::EmbeddedPage() == nullptr) {
      GTEST_SKIP() << "built without Chart.js (libjs-chart.js)";
    }
    const std::string directory = scratch_ / "store";
    ASSERT_OK_AND_ASSIGN(Store writer,
                         Store::Open(directory, {.create_if_missing = true}));
    writer_.emplace(std::move(writer));
    ASSERT_OK_AND_ASSIGN(Store reader,
                         Store::Open(directory, {.read_only = true}));
    reader_.emplace(std::move(reader));
    tools::ReportOptions options;
    options.name = "store";
    run_.emplace(&*reader_, "", std::move(options));
    answers_.emplace(&*run_, kToken, std::vector<std::string>{"trainer"});
  }

  HttpAnswer Ask(std::string path, std::string host = "127.0.0.1:8642",
                 std::string token = kToken, std::string method = "GET") {
    return answers_->Answer({.method = std::move(method),
                             .path = std::move(path),
                             .host = std::move(host),
                             .token = std::move(token)});
  }

  testing::TempDir scratch_;
  std::optional<Store> writer_;
  std::optional<Store> reader_;
  std::optional<tools::LiveRun> run_;
  std::optional<tools::WebAnswers> answers_;
};

TEST_F(WebAnswersTest, AnswersUnderItsOwnNamesAlone) {
  Save(&*writer_, 1);
  for (const char* host :
       {"localhost", "LOCALHOST:8642", "127.0.0.1", "127.0.0.1:8642", "[::1]",
        "[::1]:8642", "10.0.0.7:80", "trainer:8642", "Trainer"}) {
    EXPECT_EQ(Ask("/version", host).status, 200) << host;
  }
  for (const char* host :
       {"", "evil.com", "evil.com:8642", "127.0.0.1.evil.com", "[evil]", "[",
        "localhost.evil.com", "trainer.evil.com", "localhost@evil.com",
        "127.0.0.1:8642@evil.com", "localhost:", "localhost:x", "[::1]evil",
        "[::1]:80@evil.com"}) {
    EXPECT_EQ(Ask("/version", host).status, 421) << host;
  }
}

TEST_F(WebAnswersTest, WantsTheToken) {
  Save(&*writer_, 1);
  for (const char* token :
       {"", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"}) {
    for (const char* path : {"/", "/data", "/version", "/metrics", "/x"}) {
      EXPECT_EQ(Ask(path, "localhost", token).status, 401) << token << path;
    }
  }
  HttpRequest request = {.method = "GET", .path = "/", .host = "localhost"};
  request.authorization = std::string("Bearer ") + kToken;
  EXPECT_EQ(answers_->Answer(request).status, 200);
  request.authorization = std::string("bearer ") + kToken;
  EXPECT_EQ(answers_->Answer(request).status, 200);
  request.authorization = std::string("Basic ") + kToken;
  EXPECT_EQ(answers_->Answer(request).status, 401);
}

TEST_F(WebAnswersTest, IsOnlyReadAndHasNoFiles) {
  Save(&*writer_, 1);
  for (const char* method :
       {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "X"}) {
    EXPECT_EQ(Ask("/", "localhost", kToken, method).status, 405) << method;
  }
  EXPECT_EQ(Ask("/", "localhost", kToken, "HEAD").status, 200);
  for (const char* path : {"", "/../etc/passwd", "/LOCK", "//", "/data/",
                           "/journal", "/index.html"}) {
    EXPECT_EQ(Ask(path).status, 404) << path;
  }
}

TEST_F(WebAnswersTest, SaysWhereThereAreNoStepsYet) {
  EXPECT_EQ(Ask("/").status, 503);
  EXPECT_THAT(Ask("/").body, HasSubstr("no steps yet"));
  EXPECT_EQ(Ask("/metrics").status, 200);
}

TEST_F(WebAnswersTest, ThePageIsLiveAndFollows) {
  Save(&*writer_, 1);
  const ReadPage page = Read(Ask("/").body);
  EXPECT_EQ(page.kind, "live:" + Ask("/version").body);
  EXPECT_TRUE(Holds(page.around, "connect-src 'self'"));
  const std::string version = Ask("/version").body;
  EXPECT_EQ(Ask("/version").body, version);
  Save(&*writer_, 2);
  // Gathering again takes a tenth of the time at most: what was gathered last
  // stays until then, and has its name.
  ReadPage now;
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (Ask("/version").body == version) ASSERT_LT(absl::Now(), end);
  now.packed = Ask("/data").body;
  Unpack(&now);
  EXPECT_EQ(Integers(now, now.json["steps"]["step"]).size(), 2u);
}

TEST_F(WebAnswersTest, ATagIsSeenToo) {
  Save(&*writer_, 1);
  Ask("/data");
  const std::string version = Ask("/version").body;
  ASSERT_OK(writer_->Tag("good", 1));
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (Ask("/version").body == version) ASSERT_LT(absl::Now(), end);
}

TEST_F(WebAnswersTest, MetricsAreAsPrometheusReadsThem) {
  Save(&*writer_, 7);
  ASSERT_OK(writer_->Fork(7, "trial"));
  const HttpAnswer answer = Ask("/metrics");
  EXPECT_THAT(answer.type, HasSubstr("version=0.0.4"));
  EXPECT_THAT(answer.body, HasSubstr("\nckptree_steps{branch=\"\"} 1\n"));
  EXPECT_THAT(answer.body, HasSubstr("\nckptree_steps{branch=\"trial\"} 0\n"));
  EXPECT_THAT(answer.body, HasSubstr("\nckptree_newest_step{branch=\"\"} 7"));
  EXPECT_THAT(answer.body, HasSubstr("\nckptree_metric{branch=\"\",name=\"a "
                                     "\\\"loss\\\"\\\\\"} 0.5\n"));
  EXPECT_THAT(answer.body, HasSubstr("\nckptree_disk_bytes "));
  // Every line is a comment or "name{labels} number".
  std::istringstream lines(answer.body);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ") || line.starts_with("# TYPE ")) continue;
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value))
        << line;
    EXPECT_TRUE(line.starts_with("ckptree_")) << line;
  }
}

// The program, its address, and what it answers.
class ServeTest : public CommandRunner {
 protected:
  void TearDown() override {
    if (pid_ > 0) Stop(SIGKILL);
  }

  // False where the command was built without a server.
  bool Start(std::vector<std::string> words) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    words.insert(words.begin(),
                 {CKPTREE_BINARY, "-C", served_, "-q", "serve", "--port", "0"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    const std::string err = scratch_ / "serve_err";
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(),
                                     O_CREAT | O_TRUNC | O_WRONLY, 0600);
    EXPECT_EQ(posix_spawn(&pid_, CKPTREE_BINARY, &actions, nullptr, argv.data(),
                          environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char byte;
    while (read(ends[0], &byte, 1) == 1 && byte != '\n') address_ += byte;
    close(ends[0]);
    if (!address_.empty()) return true;
    EXPECT_THAT(ReadFile(err), AnyOf(HasSubstr("libcpp-httplib-dev"),
                                     HasSubstr("libjs-chart.js")));
    EXPECT_EQ(Stop(0), 2);
    return false;
  }

  int Stop(int signal) {
    if (signal != 0) kill(pid_, signal);
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(pid_, 0), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  int Port() const {
    const std::size_t at = address_.rfind(':') + 1;
    return std::stoi(address_.substr(at));
  }

  int Connect() const {
    const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(Port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address),
        0);
    return socket_;
  }

  // What is answered to `text`, whole.
  std::string Send(const std::string& text, bool ends = false) const {
    const int socket_ = Connect();
    EXPECT_EQ(send(socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
    if (ends) shutdown(socket_, SHUT_WR);
    std::string answer(1 << 16, '\0'), all;
    for (ssize_t n; (n = recv(socket_, answer.data(), answer.size(), 0)) > 0;) {
      all.append(answer.data(), static_cast<std::size_t>(n));
    }
    close(socket_);
    return all;
  }
  std::string Get(const std::string& path,
                  const std::string& host = "localhost",
                  const std::string& method = "GET") const {
    return Send(method + " " + path + " HTTP/1.1\r\nHost: " + host +
                "\r\nConnection: close\r\n\r\n");
  }
  std::string Token() const { return address_.substr(address_.find('?')); }

  const std::string store_ = scratch_ / "store";
  std::string served_ = store_;  // What -C says.
  std::string address_;
  pid_t pid_ = 0;
};

TEST_F(ServeTest, ServesBesideATrainerUntilCtrlC) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  if (!Start({})) GTEST_SKIP() << "built without cpp-httplib or Chart.js";
  EXPECT_THAT(address_, HasSubstr("http://127.0.0.1:"));
  EXPECT_EQ(Token().size(), std::string("?token=").size() + 32);
  ASSERT_OK_AND_ASSIGN(Store trainer, Store::Open(store_));

  EXPECT_TRUE(Holds(Get("/" + Token()), "HTTP/1.1 200 "));
  EXPECT_THAT(Get("/"), HasSubstr("HTTP/1.1 401 "));
  EXPECT_THAT(Get("/" + Token(), "evil.com"), HasSubstr("HTTP/1.1 421 "));
  EXPECT_THAT(Get("/" + Token(), "localhost\r\nHost: evil.com"),
              HasSubstr("HTTP/1.1 421 "));
  EXPECT_THAT(Get("/" + Token(), "localhost", "DELETE"),
              HasSubstr("HTTP/1.1 405 "));
  EXPECT_THAT(Get("/..%2f..%2fetc/passwd" + Token()),
              HasSubstr("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/metrics" + Token()), HasSubstr("ckptree_steps"));
  // As who takes it for a proxy asks.
  EXPECT_THAT(Get("http://localhost/metrics" + Token()),
              HasSubstr("ckptree_steps"));
  EXPECT_THAT(Get("HTTP://localhost" + Token()), HasSubstr("HTTP/1.1 200 "));
  EXPECT_THAT(Get("http://evil.com/metrics" + Token()),
              HasSubstr("HTTP/1.1 421 "));
  EXPECT_THAT(Get("http://localhost/metrics" + Token(), "evil.com"),
              HasSubstr("HTTP/1.1 421 "));
  // What is no request at all gets an answer or none, and the next is served.
  for (const char* text :
       {"\r\n\r\n", "GET\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n"}) {
    EXPECT_FALSE(Holds(Send(text, true), "200 OK"));
  }
  Save(&trainer, 600);
  EXPECT_THAT(Get("/metrics" + Token()),
              HasSubstr("ckptree_newest_step{branch=\"\"} 600"));
  EXPECT_EQ(Stop(SIGINT), 130);
  ASSERT_OK(trainer.Close());
}

// With each range a copy of the page, one request would take any memory.
TEST_F(ServeTest, AnswersWithTheWholeWhateverRangesAreAskedFor) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  if (!Start({})) GTEST_SKIP() << "built without cpp-httplib or Chart.js";
  const auto with = [&](const std::string& path, const std::string& range) {
    return Get(path, "localhost\r\n" + range);
  };
  const std::string page = Get("/" + Token());
  EXPECT_TRUE(Holds(page, "HTTP/1.1 200 "));
  EXPECT_TRUE(Holds(page, "\r\nAccept-Ranges: none\r\n"));
  std::string many = "Range: bytes=0-";
  for (int i = 0; i < 2000; ++i) many += ",0-";
  for (const std::string& range :
       {many, std::string("range: bytes=0-8"),
        std::string("RANGE:bytes=999999999-\r\nRange: bytes=5-2")}) {
    const std::string answer = with("/" + Token(), range);
    EXPECT_TRUE(Holds(answer, "HTTP/1.1 200 "));
    EXPECT_EQ(answer.size(), page.size());
    EXPECT_THAT(with("/", range), HasSubstr("HTTP/1.1 401 "));
  }
  // Another header is none of them.
  EXPECT_THAT(with("/version" + Token(), "If-Range: x\r\nX-Range: bytes=0-8"),
              HasSubstr("HTTP/1.1 200 "));
  EXPECT_EQ(Stop(SIGINT), 130);
}

TEST_F(ServeTest, AnswersWhileHundredsOfOthersAreSlow) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  if (!Start({})) GTEST_SKIP() << "built without cpp-httplib or Chart.js";
  std::vector<int> slow;
  const auto open_slow = [&](const std::string& text) {
    slow.push_back(Connect());
    EXPECT_EQ(send(slow.back(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  };
  for (int i = 0; i < 600; ++i) {
    // The page is not read by those that ask for it.
    open_slow(i % 3 == 0 ? "GET / HT"
              : i % 3 == 1
                  ? "GET / HTTP/1.1\r\nHost: localhost\r\nX: "
                  : "GET /" + Token() + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (i % 100 == 99) {
      EXPECT_THAT(Get("/version" + Token()), HasSubstr("HTTP/1.1 200 "));
    }
  }
  EXPECT_THAT(Get("/metrics" + Token()), HasSubstr("ckptree_steps"));
  // What it does not hold it has closed.
  int closed = 0;
  for (const int socket_ : slow) {
    char byte;
    const ssize_t got = recv(socket_, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (got == 0 || (got < 0 && errno != EAGAIN)) ++closed;
    close(socket_);
  }
  EXPECT_GE(closed, 100);
  EXPECT_THAT(Get("/version" + Token()), HasSubstr("HTTP/1.1 200 "));
}

// A run of another machine, by its address.
TEST_F(ServeTest, FollowsAStoreByItsAddress) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  setenv("XDG_CACHE_HOME", (scratch_ / "cache").c_str(), 1);
  served_ = "file://" + (scratch_ / "far");
  ASSERT_OK_AND_ASSIGN(Store trainer, Store::Open(store_, {.remote = served_}));
  ASSERT_OK(trainer.WaitReplicated(absl::Minutes(2)));
  if (!Start({})) GTEST_SKIP() << "built without cpp-httplib or Chart.js";
  EXPECT_TRUE(Holds(Get("/" + Token()), "HTTP/1.1 200 "));
  EXPECT_THAT(Get("/metrics" + Token()),
              HasSubstr("ckptree_newest_step{branch=\"\"} 500"));
  Save(&trainer, 600);
  ASSERT_OK(trainer.WaitReplicated(absl::Minutes(2)));
  EXPECT_THAT(Get("/metrics" + Token()),
              HasSubstr("ckptree_newest_step{branch=\"\"} 600"));
  EXPECT_EQ(Stop(SIGINT), 130);
  ASSERT_OK(trainer.Close());
}

TEST_F(ServeTest, TakesATokenFromAFile) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  const std::string file = scratch_ / "token";
  const auto write = [&](const std::string& text) {
    std::ofstream(file) << text;
  };
  write("my-secret_token-01\n");
  if (!Start({"--token-file", file})) {
    GTEST_SKIP() << "built without cpp-httplib or Chart.js";
  }
  EXPECT_EQ(Token(), "?token=my-secret_token-01");
  EXPECT_THAT(Get("/version" + Token()), HasSubstr("HTTP/1.1 200 "));
  EXPECT_EQ(Stop(SIGTERM), 143);
  const auto fails = [&](const std::string& says) {
    const Result result =
        Run({"-C", store_, "serve", "--token-file", file, "--port", "0"});
    EXPECT_NE(result.code, 0);
    EXPECT_THAT(result.err, HasSubstr(says));
  };
  write("short\n");
  fails("shorter than 16");
  write("with blanks and <marks>\n");
  fails("letters, digits");
  std::filesystem::remove(file);
  fails("cannot be read");
}

TEST_F(ServeTest, WhatCannotBeIsSaidByName) {
  ASSERT_NO_FATAL_FAILURE(MakeStore(store_));
  if (!Start({})) GTEST_SKIP() << "built without cpp-httplib or Chart.js";
  const auto fails = [&](std::vector<std::string> words, int code,
                         const std::string& says) {
    words.insert(words.begin(), {"-C", store_, "serve"});
    const Result result = Run(words);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(says));
  };
  // One server has the port.
  fails({"--port", std::to_string(Port())}, 4, std::to_string(Port()));
  fails({"--port", "70000"}, 2, "70000");
  fails({"--host", "no.such.host.invalid"}, 2, "no.such.host.invalid");
  fails({"--host", "999.1.1.1", "--port", "0"}, 2, "999.1.1.1");
  fails({"-b", "nobody"}, 3, "nobody");
  fails({"-k", "a//b"}, 2, "an empty part");
}

}  // namespace
}  // namespace ckptree
