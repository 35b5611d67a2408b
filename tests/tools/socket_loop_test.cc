// SPDX-License-Identifier: Apache-2.0

// The sockets of `ckptree serve`: none makes another wait.

#include "tools/report/socket_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ckptree {
namespace {

using std::chrono::milliseconds;
using tools::SocketLoop;

constexpr char kAsked[] = "GET / HTTP/1.1\r\n\r\n";

std::unique_ptr<SocketLoop> Echo(SocketLoop::Limits limits) {
  return SocketLoop::Listen(
      "127.0.0.1", 0, [](const std::string& head) { return "[" + head + "]"; },
      limits);
}

int Connect(const SocketLoop& loop) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(loop.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(
      connect(made, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return made;
}

void Send(int socket, const std::string& text) {
  EXPECT_EQ(send(socket, text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// All to the end, and closes it.
std::string Rest(int socket) {
  std::string all;
  char some[4096];
  for (ssize_t n; (n = recv(socket, some, sizeof some, 0)) > 0;) {
    all.append(some, static_cast<std::size_t>(n));
  }
  close(socket);
  return all;
}

std::string Ask(const SocketLoop& loop, const std::string& text) {
  const int socket = Connect(loop);
  Send(socket, text);
  return Rest(socket);
}

TEST(SocketLoopTest, AnswersEachHead) {
  const auto loop = Echo({});
  ASSERT_NE(loop, nullptr);
  EXPECT_EQ(Ask(*loop, kAsked), std::string("[") + kAsked + "]");
  // The end in pieces.
  const int socket = Connect(*loop);
  for (const char c : std::string(kAsked)) Send(socket, std::string(1, c));
  EXPECT_EQ(Rest(socket), std::string("[") + kAsked + "]");
  // The other side ends before the head does.
  const int half = Connect(*loop);
  Send(half, "GET");
  shutdown(half, SHUT_WR);
  EXPECT_EQ(Rest(half), "[GET]");
  // And says nothing.
  const int mute = Connect(*loop);
  shutdown(mute, SHUT_WR);
  EXPECT_EQ(Rest(mute), "");
}

TEST(SocketLoopTest, AHeadIsNoLongerThanItMayBe) {
  const auto loop = Echo({.head_bytes = 100});
  ASSERT_NE(loop, nullptr);
  const std::string answer = Ask(*loop, std::string(50'000, 'x'));
  EXPECT_GE(answer.size(), 102u);
  EXPECT_LE(answer.size(), 100u + 4096 + 2);
}

TEST(SocketLoopTest, WhoTricklesIsClosedAtTheEndOfItsTime) {
  const auto loop =
      Echo({.head_bytes = std::size_t{1} << 30, .head_time = milliseconds(50)});
  ASSERT_NE(loop, nullptr);
  const int socket = Connect(*loop);
  // Bytes go on to come; the test's own limit ends it where it is never closed.
  char byte = 'x';
  while (send(socket, &byte, 1, MSG_NOSIGNAL) == 1) {
    const ssize_t got = recv(socket, &byte, 1, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) break;
    EXPECT_LT(got, 0) << "answered";
    byte = 'x';
    if (got > 0) break;
  }
  close(socket);
  // And who says nothing at all.
  EXPECT_EQ(Rest(Connect(*loop)), "");
}

TEST(SocketLoopTest, OneMoreThanItHoldsIsServedAllTheSame) {
  const auto loop =
      Echo({.connections = 8, .head_time = std::chrono::hours(1)});
  ASSERT_NE(loop, nullptr);
  std::vector<int> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(Connect(*loop));
    Send(slow.back(), "GET");
    if (i % 10 == 9) EXPECT_EQ(Ask(*loop, kAsked).front(), '[');
  }
  // The first ones were closed: nothing comes, and that is the end.
  for (std::size_t i = 0; i < slow.size(); ++i) {
    if (i < 90) {
      EXPECT_EQ(Rest(slow[i]), "") << i;
    } else {
      close(slow[i]);
    }
  }
}

TEST(SocketLoopTest, WhoDoesNotReadHoldsNobodyUp) {
  SocketLoop::Limits limits;
  limits.connections = 8;
  const std::string large(std::size_t{32} << 20, 'a');
  const auto loop = SocketLoop::Listen(
      "127.0.0.1", 0,
      [&](const std::string& head) {
        return head.starts_with("GET /large") ? large : "small";
      },
      limits);
  ASSERT_NE(loop, nullptr);
  std::vector<int> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(Connect(*loop));
    Send(slow.back(), "GET /large HTTP/1.1\r\n\r\n");
    EXPECT_EQ(Ask(*loop, kAsked), "small");
  }
  // The last one got its answer, of which it now reads all.
  EXPECT_EQ(Rest(slow.back()).size(), large.size());
  slow.pop_back();
  for (const int socket : slow) close(socket);
}

TEST(SocketLoopTest, SaysWhyItCannotListen) {
  const auto loop = Echo({});
  ASSERT_NE(loop, nullptr);
  errno = 0;
  EXPECT_EQ(
      SocketLoop::Listen("127.0.0.1", loop->port(),
                         [](const std::string&) { return std::string(); }, {}),
      nullptr);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(
      SocketLoop::Listen("no.such.host.invalid", 0,
                         [](const std::string&) { return std::string(); }, {}),
      nullptr);
  EXPECT_EQ(errno, 0);
}

}  // namespace
}  // namespace ckptree
