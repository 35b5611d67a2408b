// SPDX-License-Identifier: Apache-2.0

#include "tools/report/web_answer.h"

#include <arpa/inet.h>

#include <algorithm>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/report/page.h"

namespace ckptree::tools {
namespace {

// In the same time for every wrong token of the same length.
bool SameText(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// What may stand behind a host: nothing, or a colon and a port.
bool IsPort(std::string_view text) {
  if (text.empty()) return true;
  if (text[0] != ':') return false;
  text.remove_prefix(1);
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

HttpAnswer Refusal(int status, std::string text) {
  return {.status = status, .body = std::move(text) + "\n"};
}

}  // namespace

bool WebAnswers::IsOurs(const std::string& host) const {
  std::string name = host;
  if (name.starts_with('[')) {  // [::1]:8000
    const std::size_t end = name.find(']');
    if (end == std::string::npos) return false;
    return IsAddress(name.substr(1, end - 1)) && IsPort(name.substr(end + 1));
  }
  const std::size_t colon = std::min(name.find(':'), name.size());
  if (!IsPort(name.substr(colon))) return false;
  name = absl::AsciiStrToLower(name.substr(0, colon));
  return name == "localhost" || IsAddress(name) ||
         std::find(names_.begin(), names_.end(), name) != names_.end();
}

bool WebAnswers::MayRead(const HttpRequest& request) const {
  constexpr std::string_view kBearer = "bearer ";
  if (SameText(request.token, token_)) return true;
  // The name of a scheme has no case (RFC 9110).
  return absl::AsciiStrToLower(
             request.authorization.substr(0, kBearer.size())) == kBearer &&
         SameText(request.authorization.substr(kBearer.size()), token_);
}

HttpAnswer WebAnswers::Read(const std::string& path) {
  absl::StatusOr<std::string> body;
  HttpAnswer answer;
  if (path == "/version") {
    body = run_.Version();
  } else if (path == "/metrics") {
    answer.type = "text/plain; version=0.0.4; charset=utf-8";
    body = run_.Metrics();
  } else {
    std::string version;
    body = run_.Data(&version);
    answer.type = "application/octet-stream";
    if (body.ok() && path == "/") {
      answer.type = "text/html; charset=utf-8";
      body = MakePage(*body, version);
    }
  }
  if (absl::IsNotFound(body.status())) {
    // The first save brings some; the browser asks again by itself.
    answer = Refusal(503, "The store has no steps yet.");
    answer.headers.emplace_back("Refresh", "2");
    return answer;
  }
  if (!body.ok()) {
    return Refusal(500, absl::StrFormat("%s", body.status().message()));
  }
  answer.body = *std::move(body);
  return answer;
}

HttpAnswer WebAnswers::Answer(const HttpRequest& request) {
  HttpAnswer answer;
  const std::string& path = request.path;
  if (!IsOurs(request.host)) {
    answer = Refusal(421, "This server is not asked under that name.");
  } else if (request.method != "GET" && request.method != "HEAD") {
    answer = Refusal(405, "This server is only read.");
    answer.headers.emplace_back("Allow", "GET, HEAD");
  } else if (!MayRead(request)) {
    answer = Refusal(401,
                     "The token is missing or wrong: open the address that "
                     "`ckptree serve` printed.");
    answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  } else if (path != "/" && path != "/data" && path != "/version" &&
             path != "/metrics") {
    answer = Refusal(404, "There is /, /data, /version and /metrics.");
  } else {
    answer = Read(path);
  }
  for (const auto& [name, value] :
       {std::pair("Cache-Control", "no-store"),
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Cross-Origin-Resource-Policy", "same-origin"}}) {
    answer.headers.emplace_back(name, value);
  }
  return answer;
}

}  // namespace ckptree::tools
