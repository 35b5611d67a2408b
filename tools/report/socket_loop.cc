// SPDX-License-Identifier: Apache-2.0

#include "tools/report/socket_loop.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace ckptree::tools {
namespace {

// A socket that listens there; -1, and `errno`.
int ListenAt(const addrinfo& place) {
  const int made = ::socket(place.ai_family,
                            place.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                            place.ai_protocol);
  if (made < 0) return -1;
  // Of one that has just ended. That two servers share a port, and each gets a
  // part of the requests, is another option: the second is told that it is
  // taken.
  const int on = 1;
  ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (place.ai_family == AF_INET6) {
    const int off = 0;
    ::setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(made, place.ai_addr, place.ai_addrlen) == 0 &&
      ::listen(made, SOMAXCONN) == 0) {
    return made;
  }
  const int why = errno;
  ::close(made);
  errno = why;
  return -1;
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) !=
      0) {
    return 0;
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

bool MayGoOn(int why) { return why == EAGAIN || why == EINTR; }

}  // namespace

std::unique_ptr<SocketLoop> SocketLoop::Listen(const std::string& host,
                                               int port, Answerer answer,
                                               Limits limits) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* places = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints,
                    &places) != 0) {
    errno = 0;
    return nullptr;
  }
  int listener = -1;
  for (const addrinfo* at = places; at != nullptr && listener < 0;
       at = at->ai_next) {
    listener = ListenAt(*at);
  }
  const int why = errno;
  ::freeaddrinfo(places);
  errno = why;
  if (listener < 0) return nullptr;
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    const int lacking = errno;
    ::close(listener);
    errno = lacking;
    return nullptr;
  }
  return std::unique_ptr<SocketLoop>(new SocketLoop(
      listener, wake, PortOf(listener), std::move(answer), limits));
}

SocketLoop::~SocketLoop() {
  const std::uint64_t one = 1;
  // Eight bytes of an eventfd are written as a whole.
  static_cast<void>(!::write(wake_, &one, sizeof one));
  thread_.join();
  for (Connection& connection : connections_) Close(&connection);
  ::close(listener_);
  ::close(wake_);
}

void SocketLoop::Run() {
  std::vector<pollfd> polled;
  for (;;) {
    polled = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    Clock::time_point next = Clock::time_point::max();
    for (const Connection& connection : connections_) {
      const bool sends = connection.phase == Phase::kAnswer;
      polled.push_back(
          {connection.socket, static_cast<short>(sends ? POLLOUT : POLLIN), 0});
      next = std::min(next, connection.deadline);
    }
    int wait = -1;
    if (!connections_.empty()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
      wait = static_cast<int>(
          std::max<std::chrono::milliseconds::rep>(left.count(), 0));
    }
    if (::poll(polled.data(), polled.size(), wait) < 0) continue;
    if (polled[0].revents != 0) return;
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      // Even where it goes on and on.
      if (now >= connection.deadline) {
        Close(&connection);
      } else if (polled[i + 2].revents != 0) {
        switch (connection.phase) {
          case Phase::kHead:
            ReadHead(&connection);
            break;
          case Phase::kAnswer:
            SendAnswer(&connection);
            break;
          case Phase::kClosing:
            ReadToEnd(&connection);
            break;
          case Phase::kClosed:
            break;
        }
      }
    }
    if (polled[1].revents != 0) Accept();
    std::erase_if(connections_, [](const Connection& connection) {
      return connection.phase == Phase::kClosed;
    });
  }
}

void SocketLoop::Accept() {
  // Those that are there are served before more of them come.
  for (int i = 0; i < 16; ++i) {
    const int socket =
        ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      // Of descriptors there are no more than the process may have.
      if (errno == EMFILE || errno == ENFILE) CloseSlowest();
      return;
    }
    if (connections_.size() >= limits_.connections) CloseSlowest();
    Connection connection;
    connection.socket = socket;
    connection.deadline = Clock::now() + limits_.head_time;
    connections_.push_back(std::move(connection));
    // Who asks as others do has sent it all with the first packet.
    ReadHead(&connections_.back());
  }
}

void SocketLoop::CloseSlowest() {
  // Heads before answers, and of each the one that began first: a request of a
  // browser is whole at once.
  const auto slowest = std::min_element(
      connections_.begin(), connections_.end(),
      [](const Connection& a, const Connection& b) {
        const bool a_sends = a.phase == Phase::kAnswer;
        const bool b_sends = b.phase == Phase::kAnswer;
        return a_sends != b_sends ? b_sends : a.deadline < b.deadline;
      });
  if (slowest == connections_.end()) return;
  Close(&*slowest);
  connections_.erase(slowest);
}

void SocketLoop::ReadHead(Connection* connection) {
  char some[4096];
  bool ends = false;
  while (!ends) {
    const ssize_t got = ::recv(connection->socket, some, sizeof some, 0);
    if (got < 0) {
      if (!MayGoOn(errno)) Close(connection);
      return;
    }
    // An end may stand across two pieces.
    const std::size_t before = connection->text.size();
    connection->text.append(some, static_cast<std::size_t>(got));
    ends = got == 0 || connection->text.size() >= limits_.head_bytes ||
           connection->text.find("\r\n\r\n", before < 3 ? 0 : before - 3) !=
               std::string::npos;
  }
  if (connection->text.empty()) {
    Close(connection);
    return;
  }
  connection->text = answer_(connection->text);
  connection->phase = Phase::kAnswer;
  connection->deadline = Clock::now() + limits_.answer_time;
  SendAnswer(connection);
}

void SocketLoop::SendAnswer(Connection* connection) {
  while (connection->sent < connection->text.size()) {
    const ssize_t sent =
        ::send(connection->socket, connection->text.data() + connection->sent,
               connection->text.size() - connection->sent, MSG_NOSIGNAL);
    if (sent < 0) {
      if (!MayGoOn(errno)) Close(connection);
      return;
    }
    connection->sent += static_cast<std::size_t>(sent);
  }
  // What is closed with bytes unread takes the answer with it.
  ::shutdown(connection->socket, SHUT_WR);
  std::string().swap(connection->text);
  connection->phase = Phase::kClosing;
  connection->deadline = Clock::now() + limits_.close_time;
  ReadToEnd(connection);
}

void SocketLoop::ReadToEnd(Connection* connection) {
  char some[4096];
  const ssize_t got = ::recv(connection->socket, some, sizeof some, 0);
  // What goes on is read when there is nothing else to do, to the deadline.
  if (got == 0 || (got < 0 && !MayGoOn(errno))) Close(connection);
}

void SocketLoop::Close(Connection* connection) {
  if (connection->phase == Phase::kClosed) return;
  ::close(connection->socket);
  connection->phase = Phase::kClosed;
}

}  // namespace ckptree::tools
