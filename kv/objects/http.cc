// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/http.h"

#include <curl/curl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/require.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "kv/objects/text.h"
#include "kv/objects/wait.h"

namespace ckptree::kv {
namespace {

// Of a host that takes no connection, and of one that stays silent in the
// middle: others may be asked again before the deadline.
constexpr long kConnectSeconds = 10;
constexpr long kStallSeconds = 30;

// One request under way, and its answer.
struct Exchange {
  const HttpRequest* request = nullptr;
  HttpAnswer* answer = nullptr;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  std::size_t sent = 0;
};

// What `take` returns; for want of memory 0, which ends the transfer: nothing
// may be thrown through libcurl.
template <typename Take>
std::size_t Guarded(const Take& take) noexcept {
  try {
    return take();
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

std::size_t TakeHeader(char* data, std::size_t size, std::size_t count,
                       void* user) {
  HttpAnswer& answer = *static_cast<Exchange*>(user)->answer;
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    answer.headers.clear();
    answer.head_ended = false;
  }
  if (line == "\r\n" || line == "\n") answer.head_ended = true;
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos && answer.headers.size() < 100) {
    answer.headers[absl::AsciiStrToLower(std::string(line.substr(0, colon)))] =
        std::string(Trim(line.substr(colon + 1)));
  }
  return line.size();
}

std::size_t TakeBody(char* data, std::size_t size, std::size_t count,
                     void* user) {
  const Exchange& exchange = *static_cast<Exchange*>(user);
  HttpAnswer& answer = *exchange.answer;
  const std::string_view piece(data, size * count);
  long status = 0;
  curl_easy_getinfo(exchange.easy, CURLINFO_RESPONSE_CODE, &status);
  const std::span<std::byte> into = exchange.request->into;
  if ((status == 200 || status == 206) && into.data() != nullptr) {
    const std::size_t some =
        std::min(piece.size(), into.size() - answer.filled);
    piece.copy(reinterpret_cast<char*>(into.data()) + answer.filled, some);
    answer.filled += some;
    answer.cut_short = some < piece.size();
    return some;  // Fewer end the transfer.
  }
  if (answer.body.size() + piece.size() > Http::kMaxBody) return 0;
  answer.body.append(piece);
  return piece.size();
}

std::size_t OnHeader(char* data, std::size_t size, std::size_t count,
                     void* user) {
  return Guarded([&] { return TakeHeader(data, size, count, user); });
}

std::size_t OnBody(char* data, std::size_t size, std::size_t count,
                   void* user) {
  return Guarded([&] { return TakeBody(data, size, count, user); });
}

std::size_t OnSend(char* into, std::size_t size, std::size_t count,
                   void* user) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  const std::size_t some =
      exchange.request->body.copy(into, size * count, exchange.sent);
  exchange.sent += some;
  return some;
}

// A connection that turns out to be closed is taken again from the start.
int OnSeek(void* user, curl_off_t offset, int origin) {
  Exchange& exchange = *static_cast<Exchange*>(user);
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_CANTSEEK;
  exchange.sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

// False: there is no memory for all that it says, and it must not go without.
bool Prepare(Exchange& exchange, const Call& call) {
  const HttpRequest& request = *exchange.request;
  CURL* easy = exchange.easy;
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, &exchange);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  if (request.past_proxies) curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
  for (const std::string& header : request.headers) {
    curl_slist* const longer =
        curl_slist_append(exchange.headers, header.c_str());
    if (longer == nullptr) return false;
    exchange.headers = longer;
  }
  if (request.method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, OnSend);
    curl_easy_setopt(easy, CURLOPT_READDATA, &exchange);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, OnSeek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, &exchange);
    curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE,
                     static_cast<curl_off_t>(request.body.size()));
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
  }
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST,
                   request.method == "HEAD" ? nullptr : request.method.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange.headers);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 512L << 10);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  const absl::Duration left = call.deadline - MonotonicNow();
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                   static_cast<long>(std::clamp<std::int64_t>(
                       absl::ToInt64Milliseconds(left), 1, 1'000'000'000)));
  return true;
}

std::string HostOf(const std::string& url) {
  const std::size_t begin = url.find("://") + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

void Finish(const Exchange& exchange, CURLcode result) {
  HttpAnswer& answer = *exchange.answer;
  long status = 0, sent = 0;
  curl_easy_getinfo(exchange.easy, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(exchange.easy, CURLINFO_REQUEST_SIZE, &sent);
  answer.status = static_cast<int>(status);
  answer.sent = sent > 0;
  answer.error = absl::OkStatus();
  if (result == CURLE_OK && !answer.head_ended) {
    answer.error = absl::UnavailableError(
        absl::StrCat(HostOf(exchange.request->url),
                     ": the connection ended within the head of an answer"));
    return;
  }
  if (result == CURLE_OK || answer.cut_short) return;
  answer.untrusted = result == CURLE_PEER_FAILED_VERIFICATION ||
                     result == CURLE_SSL_CACERT_BADFILE ||
                     result == CURLE_SSL_ISSUER_ERROR;
  answer.error = absl::UnavailableError(absl::StrCat(
      HostOf(exchange.request->url), ": ", curl_easy_strerror(result)));
}

}  // namespace

struct Http::Connections {
  CURLM* multi = curl_multi_init();
  std::vector<CURL*> spare;

  Connections() { base::Require(multi != nullptr, "curl_multi_init"); }
  ~Connections() {
    for (CURL* easy : spare) curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void Run(std::span<Exchange> exchanges, const Call& call) {
    for (Exchange& exchange : exchanges) {
      if (spare.empty()) {
        spare.push_back(curl_easy_init());
        base::Require(spare.back() != nullptr, "curl_easy_init");
      }
      exchange.easy = spare.back();
      spare.pop_back();
      if (Prepare(exchange, call)) {
        curl_multi_add_handle(multi, exchange.easy);
        continue;
      }
      exchange.answer->sent = false;
      exchange.answer->error = absl::Status(
          absl::StatusCode::kResourceExhausted, "no memory for a request");
    }
    const std::stop_callback wake(call.cancelled,
                                  [this] { curl_multi_wakeup(multi); });
    int running = 1;
    while (running > 0 && !call.cancelled.stop_requested()) {
      curl_multi_perform(multi, &running);
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
        Exchange* exchange = nullptr;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
        Finish(*exchange, message->data.result);
      }
      if (running > 0) curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
    for (Exchange& exchange : exchanges) {
      curl_multi_remove_handle(multi, exchange.easy);
      curl_slist_free_all(exchange.headers);
      curl_easy_reset(exchange.easy);  // What was asked is not kept.
      spare.push_back(exchange.easy);
    }
  }
};

std::string HttpAnswer::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Http::Http() : process_(getpid()) {
  // Thread-safe where it is counted by libcurl, as it is since 7.84.
  curl_global_init(CURL_GLOBAL_DEFAULT);
}

Http::~Http() {
  // Those of another process have its sockets.
  absl::MutexLock lock(&mu_);
  if (getpid() == process_) return;
  for (std::unique_ptr<Connections>& each : idle_) {
    [[maybe_unused]] Connections* left = each.release();
  }
}

std::unique_ptr<Http::Connections> Http::Borrow() {
  absl::MutexLock lock(&mu_);
  if (idle_.empty()) return std::make_unique<Connections>();
  std::unique_ptr<Connections> some = std::move(idle_.back());
  idle_.pop_back();
  return some;
}

std::vector<HttpAnswer> Http::Send(std::span<const HttpRequest> requests,
                                   const Call& call) {
  std::vector<HttpAnswer> answers(requests.size());
  std::vector<Exchange> exchanges(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    exchanges[i].request = &requests[i];
    exchanges[i].answer = &answers[i];
    // Until it is finished; where the call ends before, it may have been sent.
    answers[i].error = absl::CancelledError(
        absl::StrCat(HostOf(requests[i].url), ": the call ended before"));
    answers[i].sent = true;
  }
  absl::Status begun =
      getpid() == process_
          ? CheckCall(call, "a request")
          : absl::FailedPreconditionError(
                "an object store is dead in a forked child: open it there");
  if (!begun.ok()) {
    for (HttpAnswer& answer : answers) {
      answer.error = begun;
      answer.sent = false;
    }
    return answers;
  }
  std::unique_ptr<Connections> connections = Borrow();
  connections->Run(exchanges, call);
  absl::MutexLock lock(&mu_);
  idle_.push_back(std::move(connections));
  return answers;
}

HttpAnswer Http::Send(const HttpRequest& request, const Call& call) {
  return std::move(Send(std::span(&request, 1), call).front());
}

}  // namespace ckptree::kv
