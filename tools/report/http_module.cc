// SPDX-License-Identifier: Apache-2.0

#include "tools/report/http_module.h"

#include <httplib.h>

#include <thread>

namespace ckptree::tools {
namespace {

// Pages for people, and a scraper: few at a time.
constexpr std::size_t kThreads = 8;
constexpr time_t kSeconds = 5;

class Server : public HttpServer {
 public:
  explicit Server(HttpHandler handler) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    server_.set_keep_alive_timeout(kSeconds);
    server_.set_read_timeout(kSeconds);
    server_.set_write_timeout(kSeconds);
    server_.set_payload_max_length(0);
    // Its own options let two servers share a port, and each gets a part of the
    // requests: here the second is told that the port is taken.
    server_.set_socket_options([](socket_t socket) {
      const int on = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    });
    // Before any other handling, whatever the method is.
    server_.set_pre_routing_handler([handler = std::move(handler)](
                                        const httplib::Request& request,
                                        httplib::Response& response) {
      const HttpAnswer answer =
          handler({.method = request.method,
                   .path = request.path,
                   // Of two it could not be said which one is meant.
                   .host = request.get_header_value_count("Host") == 1
                               ? request.get_header_value("Host")
                               : std::string(),
                   .authorization = request.get_header_value("Authorization"),
                   .token = request.get_param_value("token")});
      response.status = answer.status;
      for (const auto& [name, value] : answer.headers) {
        response.set_header(name, value);
      }
      response.set_content(answer.body, answer.type);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  ~Server() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  bool Start(const std::string& host, int port) {
    port_ = port != 0            ? port
            : server_.is_valid() ? server_.bind_to_any_port(host)
                                 : -1;
    if (port != 0 && !server_.bind_to_port(host, port)) return false;
    if (port_ <= 0) return false;
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    // stop() before it listens would do nothing.
    while (!server_.is_running()) std::this_thread::yield();
    return true;
  }

  int port() const override { return port_; }

 private:
  httplib::Server server_;
  std::thread thread_;
  int port_ = 0;
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
