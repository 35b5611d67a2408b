// SPDX-License-Identifier: Apache-2.0

#include "tests/objects/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/require.h"
#include "kv/files/descriptor.h"

namespace ckptree::testing {
namespace {

sockaddr_in AddressOf(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// Appends what comes next; false at the end.
bool Receive(int socket, std::string* bytes) {
  char piece[65536];
  const ssize_t got = recv(socket, piece, sizeof(piece), 0);
  if (got <= 0) return false;
  bytes->append(piece, static_cast<std::size_t>(got));
  return true;
}

// Where the value of a header stands, by its name in lower case with a colon;
// npos where it does not.
std::size_t ValueAt(const std::string& head, const std::string& name) {
  const std::size_t at =
      absl::AsciiStrToLower(head).find(absl::StrCat("\r\n", name));
  return at == std::string::npos ? at : at + 2 + name.size();
}

}  // namespace

struct FaultProxy::Message {
  std::string head;  // With the empty line.
  std::string body;
};

FaultProxy::FaultProxy(int port) : port_(port) {
  listener_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = AddressOf(0);
  socklen_t size = sizeof(address);
  base::Require(
      bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
          listen(listener_.get(), 64) == 0 &&
          getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address),
                      &size) == 0,
      "a socket to listen at");
  own_port_ = ntohs(address.sin_port);
  accepter_ = std::thread([this] { Accept(); });
}

FaultProxy::~FaultProxy() {
  Release();
  shutdown(listener_.get(), SHUT_RDWR);
  accepter_.join();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](int* taking) { return *taking == 0; }, &taking_));
}

std::string FaultProxy::url() const {
  return absl::StrCat("http://127.0.0.1:", own_port_);
}

void FaultProxy::Arm(Fault fault, const std::string& method, int count,
                     const std::string& answer) {
  absl::MutexLock lock(&mu_);
  fault_ = fault;
  const std::size_t space = std::min(method.find(' '), method.size());
  method_ = method.substr(0, space);
  part_ = space == method.size() ? "" : method.substr(space + 1);
  answer_ = answer;
  call_ = nullptr;
  skipped_ = 0;
  left_ = count;
  fired_ = 0;
  holding_ = true;
}

void FaultProxy::ArmAt(Fault fault, int skipped, std::function<void()> call,
                       const std::string& answer) {
  absl::MutexLock lock(&mu_);
  fault_ = fault;
  method_.clear();
  part_.clear();
  answer_ = answer;
  call_ = std::move(call);
  skipped_ = skipped;
  left_ = 1;
  fired_ = 0;
  holding_ = true;
}

void FaultProxy::AwaitFired() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](int* fired) { return *fired > 0; }, &fired_));
}

int FaultProxy::fired() {
  absl::MutexLock lock(&mu_);
  return fired_;
}

void FaultProxy::Release() {
  absl::MutexLock lock(&mu_);
  holding_ = false;
  mu_.Await(absl::Condition(
      +[](int* held) { return *held == 0; }, &held_));
}

void FaultProxy::Serve(const std::string& path,
                       std::function<std::string()> body) {
  absl::MutexLock lock(&mu_);
  path_ = path;
  body_ = std::move(body);
}

int FaultProxy::served() {
  absl::MutexLock lock(&mu_);
  return served_;
}

void FaultProxy::Accept() {
  while (true) {
    const int client = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    {
      absl::MutexLock lock(&mu_);
      ++taking_;
    }
    // Nobody joins it: there are more of them than threads may be kept.
    std::thread([this, client] {
      Take(client);
      absl::MutexLock lock(&mu_);
      --taking_;
    }).detach();
  }
}

Fault FaultProxy::Meet(const std::string& head, std::string* answer,
                       std::function<void()>* call) {
  const std::string_view line =
      std::string_view(head).substr(0, head.find("\r\n"));
  const std::string_view method = line.substr(0, line.find(' '));
  absl::MutexLock lock(&mu_);
  if (left_ == 0 || (!method_.empty() && method != method_) ||
      line.find(part_) == std::string_view::npos) {
    return Fault::kNone;
  }
  if (skipped_ > 0) {
    --skipped_;
    return Fault::kNone;
  }
  --left_;
  ++fired_;
  *answer = answer_;
  *call = call_;
  if (fault_ == Fault::kLateRequest || fault_ == Fault::kSilence ||
      fault_ == Fault::kLateAnswer) {
    ++held_;
  }
  return fault_;
}

std::string FaultProxy::Ask(const Message& request) const {
  const kv::Descriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = AddressOf(port_);
  std::string answer;
  if (connect(server.get(), reinterpret_cast<sockaddr*>(&address),
              sizeof(address)) != 0) {
    return answer;
  }
  // Not signed, so it may be added; the answer ends with the connection.
  const std::string head =
      absl::StrCat(request.head.substr(0, request.head.size() - 2),
                   "Connection: close\r\n\r\n");
  if (!SendAll(server.get(), head) || !SendAll(server.get(), request.body)) {
    return answer;
  }
  while (Receive(server.get(), &answer)) {
  }
  return answer;
}

void FaultProxy::Take(int descriptor) {
  kv::Descriptor client(descriptor);
  Message request;
  std::string& head = request.head;
  std::size_t end = std::string::npos;
  while (end == std::string::npos) {
    if (!Receive(client.get(), &head)) return;
    end = head.find("\r\n\r\n");
  }
  request.body = head.substr(end + 4);
  head.resize(end + 4);
  const std::size_t length_at = ValueAt(head, "content-length:");
  const std::size_t length =
      length_at == std::string::npos
          ? 0
          : std::strtoull(head.c_str() + length_at, nullptr, 10);
  if (const std::size_t at = ValueAt(head, "expect:");
      at != std::string::npos) {
    const std::size_t begin = at - std::string_view("expect:").size();
    head.erase(begin, head.find("\r\n", at) + 2 - begin);
    SendAll(client.get(), "HTTP/1.1 100 Continue\r\n\r\n");
  }
  while (request.body.size() < length) {
    if (!Receive(client.get(), &request.body)) return;
  }
  std::function<std::string()> own;
  {
    absl::MutexLock lock(&mu_);
    if (!path_.empty() && head.starts_with(absl::StrCat("GET ", path_, " "))) {
      ++served_;
      own = body_;
    }
  }
  if (own) {
    const std::string body = own();
    SendAll(client.get(), absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ",
                                       body.size(), "\r\n\r\n", body));
    return;
  }
  std::string given;
  std::function<void()> call;
  const Fault fault = Meet(head, &given, &call);
  if (fault == Fault::kLoseRequest) {
    if (call) call();
    return;
  }
  if (fault == Fault::kLateRequest || fault == Fault::kSilence ||
      fault == Fault::kLateAnswer) {
    std::string answer;
    if (call) call();
    if (fault == Fault::kLateRequest) {
      client.Reset(-1);
    } else {
      answer = Ask(request);
    }
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &FaultProxy::MayGo));
    if (fault == Fault::kLateRequest) Ask(request);
    if (fault == Fault::kLateAnswer) SendAll(client.get(), answer);
    --held_;
    return;
  }
  if (fault == Fault::kCorruptRequest) request.body[length / 2] ^= 4;
  std::string answer;
  if (fault != Fault::kAnswer) answer = Ask(request);
  if (fault == Fault::kTwice) answer = Ask(request);
  if (fault != Fault::kNone && call) call();
  if (fault == Fault::kLoseAnswer) return;
  if (fault == Fault::kAnswer || fault == Fault::kAnswerAfter) answer = given;
  if (fault == Fault::kCutAnswer) {
    const std::size_t body = answer.find("\r\n\r\n") + 4;
    answer.resize(answer.size() > body ? body + (answer.size() - body) / 2
                                       : body / 2);
  }
  if (fault == Fault::kCorruptAnswer) {
    const std::size_t body = answer.find("\r\n\r\n") + 4;
    if (answer.size() > body) answer[body + (answer.size() - body) / 2] ^= 4;
  }
  SendAll(client.get(), answer);
}

}  // namespace ckptree::testing
