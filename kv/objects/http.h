// SPDX-License-Identifier: Apache-2.0

// Requests over HTTP by libcurl, many at once.

#ifndef CKPTREE_KV_OBJECTS_HTTP_H_
#define CKPTREE_KV_OBJECTS_HTTP_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/object_store.h"

namespace ckptree::kv {

struct HttpRequest {
  std::string method = {};  // GET, HEAD, PUT, POST, DELETE
  std::string url = {};
  std::vector<std::string> headers = {};  // "name: value"
  std::string_view body = {};             // Must outlive the request.
  // Where the body of an answer with status 200 or 206 goes; without it, and
  // with any other status, it goes to HttpAnswer::body.
  std::span<std::byte> into = {};
  bool past_proxies = false;  // The environment's are not for this one.
};

struct HttpAnswer {
  // Why there is no answer, with the host; OK: `status` says what came.
  absl::Status error;
  bool sent = false;       // Some of it may have arrived.
  bool untrusted = false;  // The host's certificate is not.
  int status = 0;
  std::map<std::string, std::string> headers;  // Names in lower case.
  std::string body;                            // At most kMaxBody bytes.
  std::size_t filled = 0;                      // Bytes of `into`.
  bool head_ended = false;                     // Else the rest is not known.
  // `into` was too small: the connection was left.
  bool cut_short = false;

  // Empty where it is not there.
  std::string Header(const std::string& name) const;
};

// Keeps connections open between requests. Thread-safe; for the process that
// made it alone.
class Http {
 public:
  static constexpr std::size_t kMaxBody = std::size_t{8} << 20;

  Http();
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // Sends each once, all at the same time, and waits for all answers or for
  // the end of the call.
  std::vector<HttpAnswer> Send(std::span<const HttpRequest> requests,
                               const Call& call);
  HttpAnswer Send(const HttpRequest& request, const Call& call);

 private:
  struct Connections;
  std::unique_ptr<Connections> Borrow();

  const pid_t process_;
  absl::Mutex mu_;
  std::vector<std::unique_ptr<Connections>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_HTTP_H_
