// SPDX-License-Identifier: Apache-2.0

// The sockets of a server that answers heads of HTTP requests. One thread waits
// for all of them, so none that is slow makes another wait: a worker for each
// would be held by whoever sends a byte now and then.

#ifndef CKPTREE_TOOLS_REPORT_SOCKET_LOOP_H_
#define CKPTREE_TOOLS_REPORT_SOCKET_LOOP_H_

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ckptree::tools {

class SocketLoop {
 public:
  using Clock = std::chrono::steady_clock;
  struct Limits {
    // Where one more comes, the one that keeps us waiting longest is closed.
    std::size_t connections = 256;
    // Of a request, to its empty line. What is longer is answered as it is.
    std::size_t head_bytes = std::size_t{16} << 10;
    // From the first moment to the end of the head, however it trickles.
    std::chrono::milliseconds head_time = std::chrono::seconds(5);
    // For the answer to be taken, and for the other side to close.
    std::chrono::milliseconds answer_time = std::chrono::minutes(2);
    std::chrono::milliseconds close_time = std::chrono::seconds(1);
  };
  // The whole answer to the head of a request; what comes behind the head is
  // read by nobody. Called by one thread.
  using Answerer = std::function<std::string(const std::string& head)>;

  // Listens at `host` and `port` (0: any that is free) until it is destroyed.
  // Null where that cannot be had: `errno` says why, 0: there is no such host.
  static std::unique_ptr<SocketLoop> Listen(const std::string& host, int port,
                                            Answerer answer, Limits limits);
  ~SocketLoop();
  SocketLoop(const SocketLoop&) = delete;
  SocketLoop& operator=(const SocketLoop&) = delete;

  int port() const { return port_; }

 private:
  enum class Phase { kHead, kAnswer, kClosing, kClosed };
  struct Connection {
    int socket = -1;
    Phase phase = Phase::kHead;
    Clock::time_point deadline;
    std::string text = {};  // The head, then the answer.
    std::size_t sent = 0;
  };

  SocketLoop(int listener, int wake, int port, Answerer answer, Limits limits)
      : answer_(std::move(answer)),
        limits_(limits),
        listener_(listener),
        wake_(wake),
        port_(port),
        thread_([this] { Run(); }) {}

  void Run();
  void Accept();
  // Makes room for one more.
  void CloseSlowest();
  // Each goes on as far as the socket allows.
  void ReadHead(Connection* connection);
  void SendAnswer(Connection* connection);
  static void ReadToEnd(Connection* connection);
  static void Close(Connection* connection);

  const Answerer answer_;
  const Limits limits_;
  const int listener_;
  const int wake_;  // Readable when all has to end.
  const int port_;
  std::vector<Connection> connections_;  // Of the thread alone.
  std::thread thread_;                   // The last member: it uses the others.
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_SOCKET_LOOP_H_
