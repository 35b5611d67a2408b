// SPDX-License-Identifier: Apache-2.0

#include "tools/report/http_module.h"

#include <httplib.h>
#include <strings.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "tools/report/socket_loop.h"

namespace ckptree::tools {
namespace {

// The head of a request that is there, and the answer to it.
class Exchange : public httplib::Stream {
 public:
  explicit Exchange(const std::string& head) : head_(head) {}

  bool is_readable() const override { return read_ < head_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, std::size_t size) override {
    const std::size_t some = std::min(size, head_.size() - read_);
    std::memcpy(to, head_.data() + read_, some);
    read_ += some;
    return static_cast<ssize_t>(some);
  }
  ssize_t write(const char* from, std::size_t size) override {
    answer_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return INVALID_SOCKET; }

  std::string TakeAnswer() { return std::move(answer_); }

 private:
  const std::string& head_;
  std::size_t read_ = 0;
  std::string answer_;
};

struct Target {
  std::string path;
  std::string host;  // Empty: not said.
};

// A proxy, and who takes this server for one, asks for `http://host/path`
// (RFC 9112, 3.2.2).
Target TargetOf(const std::string& text) {
  constexpr std::string_view kScheme = "http://";
  if (strncasecmp(text.c_str(), kScheme.data(), kScheme.size()) != 0) {
    return {text, ""};
  }
  const std::size_t path =
      std::min(text.find('/', kScheme.size()), text.size());
  return {path == text.size() ? "/" : text.substr(path),
          text.substr(kScheme.size(), path - kScheme.size())};
}

// The one host that `request` is for. Empty: of two it could not be said which
// one is meant.
std::string HostOf(const httplib::Request& request, const Target& target) {
  if (request.get_header_value_count("Host") != 1) return "";
  const std::string host = request.get_header_value("Host");
  const bool one =
      target.host.empty() || strcasecmp(target.host.c_str(), host.c_str()) == 0;
  return one ? host : "";
}

// The head of a request without its Range: the whole is an answer, too (RFC
// 9110, 14.2). cpp-httplib would answer before the token is looked at, and make
// a copy of the page for each of thousands of ranges.
std::string WithoutRanges(std::string_view head) {
  constexpr std::string_view kName = "range:";
  std::string kept;
  while (!head.empty()) {
    const std::size_t line = std::min(head.find('\n'), head.size() - 1) + 1;
    if (line < kName.size() ||
        strncasecmp(head.data(), kName.data(), kName.size()) != 0) {
      kept.append(head.substr(0, line));
    }
    head.remove_prefix(line);
  }
  return kept;
}

// What a request says, by cpp-httplib, and the answer as HTTP has it. Its own
// sockets are not used: see socket_loop.h.
class Parser : public httplib::Server {
 public:
  explicit Parser(HttpHandler handler) {
    set_payload_max_length(0);
    // Before any other handling, whatever the method is.
    set_pre_routing_handler([handler = std::move(handler)](
                                const httplib::Request& request,
                                httplib::Response& response) {
      const Target target = TargetOf(request.path);
      const HttpAnswer answer =
          handler({.method = request.method,
                   .path = target.path,
                   .host = HostOf(request, target),
                   .authorization = request.get_header_value("Authorization"),
                   .token = request.get_param_value("token")});
      response.status = answer.status;
      response.set_header("Accept-Ranges", "none");
      for (const auto& [name, value] : answer.headers) {
        response.set_header(name, value);
      }
      response.set_content(answer.body, answer.type);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  std::string Answer(const std::string& head) {
    const std::string whole = WithoutRanges(head);
    Exchange exchange(whole);
    bool closed = false;
    try {
      process_request(exchange, /*close_connection=*/true, closed, nullptr);
      return exchange.TakeAnswer();
    } catch (const std::exception&) {  // No memory, mostly.
      return "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n"
             "Content-Length: 0\r\n\r\n";
    }
  }
};

class Server : public HttpServer {
 public:
  explicit Server(HttpHandler handler) : parser_(std::move(handler)) {}

  bool Start(const std::string& host, int port) {
    loop_ = SocketLoop::Listen(
        host, port,
        [this](const std::string& head) { return parser_.Answer(head); }, {});
    return loop_ != nullptr;
  }

  int port() const override { return loop_->port(); }

 private:
  Parser parser_;
  std::unique_ptr<SocketLoop> loop_;  // The last: it uses the parser.
};

}  // namespace
}  // namespace ckptree::tools

extern "C" __attribute__((visibility("default"))) ckptree::tools::HttpServer*
CkptreeStartHttp(const std::string& host, int port,
                 ckptree::tools::HttpHandler handler) {
  auto server = std::make_unique<ckptree::tools::Server>(std::move(handler));
  if (!server->Start(host, port)) return nullptr;
  return server.release();
}
