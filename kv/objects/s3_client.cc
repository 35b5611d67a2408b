// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/s3_client.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kv/object_store.h"
#include "kv/objects/aws_credentials.h"
#include "kv/objects/http.h"
#include "kv/objects/s3_answer.h"
#include "kv/objects/s3_signature.h"
#include "kv/objects/text.h"
#include "kv/objects/wait.h"

namespace ckptree::kv {
namespace {

// The first that says something.
std::string FirstOf(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return "";
}

std::string Encode(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) ||
        std::string_view("-._~").find(c) != std::string_view::npos) {
      encoded.push_back(c);
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", byte);
    }
  }
  return encoded;
}

bool IsThisMachine(std::string_view host) {
  if (host.starts_with("[::1]")) return true;
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host.starts_with("127.");
}

// "https://host:port" of an endpoint.
absl::StatusOr<std::string> CheckEndpoint(std::string endpoint, bool allow_http,
                                          S3Of of) {
  while (endpoint.ends_with("/")) endpoint.pop_back();
  const bool plain = endpoint.starts_with("http://");
  const std::size_t slashes = endpoint.find("://");
  const std::string host =
      slashes == std::string::npos ? "" : endpoint.substr(slashes + 3);
  const bool letters = std::ranges::all_of(host, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view(".-:[]").find(c) != std::string_view::npos;
  });
  if ((!plain && !endpoint.starts_with("https://")) || host.empty() ||
      !letters) {
    // It could hold a secret, so it is not shown.
    return absl::InvalidArgumentError(absl::StrCat(
        of == S3Of::kGoogle
            ? "CKPTREE_GS_ENDPOINT is https://storage.googleapis.com, or like "
            : "the endpoint of S3 is like ",
        "https://host:port, without a user, a path or parameters"));
  }
  if (plain && !allow_http && !IsThisMachine(host)) {
    return absl::FailedPreconditionError(
        absl::StrCat(endpoint,
                     ": plain http would show everybody on the way what is "
                     "stored; use https, or allow http by the option"));
  }
  return endpoint;
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Open(
    const ObjectAddress& address, const ObjectStoreOptions& options) {
  const std::string& bucket = address.place;
  const S3Of of = address.scheme == "gs" ? S3Of::kGoogle : S3Of::kAmazon;
  // Not by make_unique: the constructor is private.
  std::unique_ptr<S3Client> client(new S3Client(of));
  client->region_ =
      of == S3Of::kGoogle
          ? FirstOf({options.region, "auto"})
          : FirstOf({options.region, EnvironmentText("AWS_REGION"),
                     EnvironmentText("AWS_DEFAULT_REGION"),
                     AwsProfileValue("region"), "us-east-1"});
  const bool letters = std::ranges::all_of(client->region_, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
  });
  if (!letters) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(client->region_),
        "' is no region of S3, which are like us-east-1; it comes from "
        "AWS_REGION, AWS_DEFAULT_REGION or the file of AWS's settings"));
  }
  std::string endpoint =
      of == S3Of::kGoogle
          ? FirstOf({options.endpoint, EnvironmentText("CKPTREE_GS_ENDPOINT")})
          : FirstOf({options.endpoint, EnvironmentText("AWS_ENDPOINT_URL_S3"),
                     EnvironmentText("AWS_ENDPOINT_URL"),
                     AwsProfileValue("endpoint_url")});
  if (endpoint.empty() && bucket.find(".") == std::string_view::npos) {
    client->shown_ =
        absl::StrCat(bucket, ".s3.", client->region_, ".amazonaws.com");
    client->url_ = absl::StrCat("https://", client->shown_);
    return client;
  }
  if (endpoint.empty()) {
    endpoint = absl::StrCat("https://s3.", client->region_, ".amazonaws.com");
  }
  CKPTREE_ASSIGN_OR_RETURN(
      endpoint, CheckEndpoint(std::move(endpoint), options.allow_http, of));
  client->here_ = IsThisMachine(endpoint.substr(endpoint.find("://") + 3));
  client->url_ = absl::StrCat(endpoint, "/", bucket);
  client->shown_ = client->url_.substr(client->url_.find("://") + 3);
  return client;
}

std::string S3Client::What(const S3Request& request) const {
  return absl::StrCat(request.method, " ",
                      request.key.empty() ? "the bucket" : request.key, " at ",
                      shown_);
}

HttpRequest S3Client::Build(const S3Request& request,
                            const AwsKeys& keys) const {
  HttpRequest built{.method = request.method,
                    .url = url_,
                    .headers = request.headers,
                    .body = request.body,
                    .into = request.into,
                    .past_proxies = here_};
  // The names of objects need no encoding.
  absl::StrAppend(&built.url, "/", request.key);
  if (!request.query.empty()) {
    absl::StrAppend(
        &built.url, "?",
        absl::StrJoin(request.query, "&", [](std::string* out, const auto& q) {
          absl::StrAppend(out, q.first, "=", Encode(q.second));
        }));
  }
  SignS3Request(keys, region_, absl::FromTimeT(std::time(nullptr)), &built);
  return built;
}

std::vector<S3Reply> S3Client::Send(std::span<const S3Request> requests,
                                    const Call& call, bool once) {
  std::vector<S3Reply> replies(requests.size());
  std::vector<std::size_t> pending(requests.size());
  for (std::size_t i = 0; i < pending.size(); ++i) pending[i] = i;
  for (int tries = 1; !pending.empty(); ++tries) {
    absl::StatusOr<AwsKeys> keys = credentials_.Get(call);
    if (!keys.ok()) {
      for (const std::size_t i : pending) {
        replies[i].verdict = {
            S3Meaning::kRefused,
            absl::Status(
                keys.status().code(),
                absl::StrCat(What(requests[i]), ": ", keys.status().message())),
            absl::ZeroDuration(), true};
      }
      break;
    }
    std::vector<HttpRequest> built;
    for (const std::size_t i : pending) {
      built.push_back(Build(requests[i], *keys));
    }
    std::vector<HttpAnswer> answers = http_.Send(built, call);
    const auto means = [&](S3Meaning meaning) {
      return std::ranges::any_of(pending, [&](std::size_t i) {
        return replies[i].verdict.meaning == meaning;
      });
    };
    for (std::size_t i = 0; i < pending.size(); ++i) {
      S3Reply& reply = replies[pending[i]];
      reply.verdict = JudgeS3(answers[i], What(requests[pending[i]]), of_);
      reply.answer = std::move(answers[i]);
    }
    const bool expired = tries == 1 && means(S3Meaning::kExpired);
    const bool unknown = tries == 1 && means(S3Meaning::kUnknownKeys);
    if (expired || unknown) credentials_.Forget();
    // They may have been changed where they stand.
    bool changed = false;
    if (unknown) {
      const absl::StatusOr<AwsKeys> now = credentials_.Get(call);
      changed = now.ok() && !now->IsSameAs(*keys);
    }
    std::vector<std::size_t> again;
    absl::Duration pause;
    for (const std::size_t i : pending) {
      const S3Verdict& verdict = replies[i].verdict;
      if ((expired && verdict.meaning == S3Meaning::kExpired) ||
          (changed && verdict.meaning == S3Meaning::kUnknownKeys) ||
          (verdict.meaning == S3Meaning::kAgain &&
           (!once || verdict.certainly_undone))) {
        pause = std::max(pause, verdict.pause);
        again.push_back(i);
      }
    }
    if (again.empty()) break;
    if (call.heard) call.heard(replies[again.front()].verdict.error);
    if (!expired && !changed) WaitOrEnd(call, PauseBefore(tries, pause));
    if (const absl::Status over = CheckCall(call, "requests to S3");
        !over.ok()) {
      for (const std::size_t i : again) {
        // What the server said last stands behind it.
        absl::Status& error = replies[i].verdict.error;
        error = absl::Status(over.code(),
                             absl::StrCat(error.message(), " (", tries,
                                          " tries, then the call ended)"));
      }
      break;
    }
    pending = std::move(again);
  }
  return replies;
}

S3Reply S3Client::Send(const S3Request& request, const Call& call, bool once) {
  return std::move(Send(std::span(&request, 1), call, once).front());
}

}  // namespace ckptree::kv
