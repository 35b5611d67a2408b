// SPDX-License-Identifier: Apache-2.0

// What `ckptree serve` and its HTTP server say to each other. The server stands
// in a module of its own, which is loaded when it is asked for: cpp-httplib of
// Debian brings OpenSSL and Brotli, and every other command would start ten
// milliseconds later for them. Both sides are of one build.

#ifndef CKPTREE_TOOLS_REPORT_HTTP_MODULE_H_
#define CKPTREE_TOOLS_REPORT_HTTP_MODULE_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ckptree::tools {

struct HttpRequest {
  std::string method = {};
  std::string path = {};  // Without what stands behind "?".
  std::string host = {};  // The header; empty: none.
  std::string authorization = {};
  std::string token = {};  // Of the query.
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Called by one thread. Must not throw.
using HttpHandler = std::function<HttpAnswer(const HttpRequest&)>;

// A server that answers until it is destroyed.
class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
};

// Starts one at `host` and `port` (0: any that is free). Null where that cannot
// be had. The module has it under this name.
using StartHttpFunction = HttpServer*(const std::string& host, int port,
                                      HttpHandler handler);
inline constexpr char kStartHttpName[] = "CkptreeStartHttp";
inline constexpr char kHttpModuleFile[] = "ckptree_http.so";

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_HTTP_MODULE_H_
