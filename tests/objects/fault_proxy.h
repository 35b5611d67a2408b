// SPDX-License-Identifier: Apache-2.0

// Stands between a client of S3 and its server, and does what networks do.

#ifndef CKPTREE_TESTS_OBJECTS_FAULT_PROXY_H_
#define CKPTREE_TESTS_OBJECTS_FAULT_PROXY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/files/descriptor.h"

namespace ckptree::testing {

enum class Fault : std::uint8_t {
  kNone,
  kLoseRequest,     // The connection ends; nothing arrives.
  kLoseAnswer,      // It arrives; the connection ends.
  kLateRequest,     // The connection ends; it arrives at Release().
  kTwice,           // It arrives twice; the second answer is given.
  kCutAnswer,       // Half of the answer, then the connection ends.
  kCorruptRequest,  // A bit of the body is another.
  kSilence,         // It arrives; nothing is answered until Release().
  kAnswer,          // Does not arrive; what Arm() was given is answered.
  kAnswerAfter,     // It arrives; what Arm() was given is answered.
  kLateAnswer,      // It arrives; it is answered at Release().
  kCorruptAnswer,   // A bit of the body of the answer is another.
};

// Answers for kAnswer and kAnswerAfter, as servers of S3 give them.
inline constexpr char kServerError[] =
    "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
inline constexpr char kSlowDown[] =
    "HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 40\r\n\r\n"
    "<Error><Code>SlowDown</Code></Error>    ";
inline constexpr char kConflict[] =
    "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n";
// And as what is between them gives.
inline constexpr char kPortal[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 19\r\n\r\n"
    "<html>portal</html>";
inline constexpr char kHalfHead[] =
    "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Le";
inline constexpr char kExpired[] =
    "HTTP/1.1 400 Bad Request\r\nContent-Length: 44\r\n\r\n"
    "<Error><Code>ExpiredToken</Code></Error>    ";

// Takes one request from each connection. Thread-safe.
class FaultProxy {
 public:
  // In front of the server at 127.0.0.1:`port`.
  explicit FaultProxy(int port);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::string url() const;

  // The next `count` requests of `method` meet the fault; "": of any. "PUT
  // /x/": only those whose path has "/x/" in it.
  void Arm(Fault fault, const std::string& method, int count = 1,
           const std::string& answer = "");
  // The same of the first request of any kind after `skipped` ones; `call` is
  // made when it is lost, or has arrived; it may be null.
  void ArmAt(Fault fault, int skipped, std::function<void()> call,
             const std::string& answer = "");
  // How many have, since Arm().
  int fired();
  // Waits for one that does.
  void AwaitFired();
  // What waits for it goes on; returns after late requests were answered.
  void Release();
  // Answers GETs of this path itself; counted by served().
  void Serve(const std::string& path, std::function<std::string()> body);
  int served();

 private:
  struct Message;
  void Accept();
  void Take(int client);
  std::string Ask(const Message& request) const;
  Fault Meet(const std::string& head, std::string* answer,
             std::function<void()>* call);
  bool MayGo() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !holding_; }

  const int port_;
  int own_port_ = 0;
  kv::Descriptor listener_{-1};
  absl::Mutex mu_;
  Fault fault_ ABSL_GUARDED_BY(mu_) = Fault::kNone;
  std::string method_ ABSL_GUARDED_BY(mu_);
  std::string part_ ABSL_GUARDED_BY(mu_);  // Of the path.
  std::string answer_ ABSL_GUARDED_BY(mu_);
  std::function<void()> call_ ABSL_GUARDED_BY(mu_);
  int skipped_ ABSL_GUARDED_BY(mu_) = 0;
  int left_ ABSL_GUARDED_BY(mu_) = 0;
  int fired_ ABSL_GUARDED_BY(mu_) = 0;
  bool holding_ ABSL_GUARDED_BY(mu_) = false;
  int held_ ABSL_GUARDED_BY(mu_) = 0;
  std::string path_ ABSL_GUARDED_BY(mu_);
  std::function<std::string()> body_ ABSL_GUARDED_BY(mu_);
  int served_ ABSL_GUARDED_BY(mu_) = 0;
  int taking_ ABSL_GUARDED_BY(mu_) = 0;  // Connections.
  std::thread accepter_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_OBJECTS_FAULT_PROXY_H_
