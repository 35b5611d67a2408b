// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/aws_credentials.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "kv/objects/http.h"
#include "kv/objects/secret.h"
#include "kv/objects/text.h"

namespace ckptree::kv {
namespace {

// They are asked for anew this long before they end.
constexpr absl::Duration kBeforeEnd = absl::Minutes(5);
// Of an endpoint that is beside this process, or not there at all.
constexpr absl::Duration kEndpointPatience = absl::Seconds(2);

std::string SharedFile(const char* variable, const char* name) {
  std::string path = EnvironmentText(variable);
  return path.empty() ? absl::StrCat(EnvironmentText("HOME"), "/.aws/", name)
                      : path;
}

// The value of `name` in [`section`] of an INI file, where it stands in it.
std::string_view IniValue(std::string_view file, std::string_view section,
                          std::string_view name) {
  bool inside = false;
  while (!file.empty()) {
    const std::size_t end = std::min(file.find('\n'), file.size());
    const std::string_view text = Trim(file.substr(0, end));
    file.remove_prefix(std::min(end + 1, file.size()));
    if (text.starts_with("[")) {
      inside = Trim(text.substr(1, text.find(']') - 1)) == section;
      continue;
    }
    const std::size_t equals = text.find('=');
    if (!inside || equals == std::string_view::npos || text.starts_with("#")) {
      continue;
    }
    if (Trim(text.substr(0, equals)) == name) {
      return Trim(text.substr(equals + 1));
    }
  }
  return {};
}

std::string Profile() {
  std::string profile = EnvironmentText("AWS_PROFILE");
  return profile.empty() ? "default" : profile;
}

// What both endpoints answer; nullopt where it is something else.
std::optional<AwsKeys> ParseKeys(const std::string& text) {
  const nlohmann::json answer =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return std::nullopt;
  const auto value = [&answer](const char* name) {
    const auto found = answer.find(name);
    return found != answer.end() && found->is_string()
               ? found->get<std::string>()
               : std::string();
  };
  AwsKeys keys{value("AccessKeyId"), SecretOf(value("SecretAccessKey")),
               value("Token"), absl::InfiniteFuture()};
  if (!keys.whole()) return std::nullopt;
  absl::ParseTime(absl::RFC3339_full, value("Expiration"), &keys.expires,
                  nullptr);
  return keys;
}

// The shared files, as they are at one moment: keys that are changed there are
// not to be mixed with those before. Each has secrets, whatever is looked for.
class SharedFiles {
 public:
  // Of the profile; null where there is none.
  Secret Value(std::string_view name) const {
    Secret value = ValueIn(credentials_, profile_, name);
    if (value != nullptr) return value;
    return ValueIn(
        config_,
        profile_ == "default" ? profile_ : absl::StrCat("profile ", profile_),
        name);
  }
  std::string Text(std::string_view name) const {
    const Secret value = Value(name);
    return value == nullptr ? "" : std::string(value->view());
  }

 private:
  static Secret ValueIn(const Secret& file, std::string_view section,
                        std::string_view name) {
    return file == nullptr ? nullptr
                           : SecretOf(IniValue(file->view(), section, name));
  }

  const std::string profile_ = Profile();
  const Secret credentials_ =
      ReadSecretFile(SharedFile("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
  const Secret config_ =
      ReadSecretFile(SharedFile("AWS_CONFIG_FILE", "config"));
};

// The variable's own memory is that of the environment.
Secret EnvironmentSecret(const char* name) {
  const char* const value = std::getenv(name);
  return SecretOf(value == nullptr ? "" : value);
}

Call Briefly(const Call& call) {
  return {std::min(call.deadline, MonotonicNow() + kEndpointPatience),
          call.cancelled};
}

}  // namespace

std::string AwsProfileValue(const std::string& name) {
  return SharedFiles().Text(name);
}

absl::StatusOr<std::optional<AwsKeys>> AwsCredentials::FromContainer(
    const Call& call) {
  std::string url = EnvironmentText("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string relative =
      EnvironmentText("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (!relative.empty()) url = absl::StrCat("http://169.254.170.2", relative);
  if (url.empty()) return std::nullopt;
  HttpRequest request{.method = "GET", .url = url, .past_proxies = true};
  std::string token = EnvironmentText("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  if (const std::string path =
          EnvironmentText("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
      !path.empty()) {
    std::ifstream file(path);
    std::getline(file, token);
  }
  if (!token.empty() && IsOneLine(token)) {
    request.headers.push_back(absl::StrCat("Authorization: ", token));
  }
  const HttpAnswer answer = http_.Send(request, Briefly(call));
  std::optional<AwsKeys> keys;
  if (answer.error.ok() && answer.status == 200) keys = ParseKeys(answer.body);
  if (!keys.has_value()) {
    return absl::UnauthenticatedError(
        "AWS_CONTAINER_CREDENTIALS_*: the endpoint gave no credentials");
  }
  return keys;
}

absl::StatusOr<std::optional<AwsKeys>> AwsCredentials::FromMachine(
    const Call& call) {
  if (absl::EqualsIgnoreCase(EnvironmentText("AWS_EC2_METADATA_DISABLED"),
                             "true")) {
    return std::nullopt;
  }
  std::string host = EnvironmentText("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (host.empty()) host = "http://169.254.169.254";
  while (host.ends_with("/")) host.pop_back();
  const Call brief = Briefly(call);
  const HttpAnswer token =
      http_.Send({.method = "PUT",
                  .url = absl::StrCat(host, "/latest/api/token"),
                  .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
                  .past_proxies = true},
                 brief);
  if (!token.error.ok() || token.status != 200 || !IsOneLine(token.body)) {
    return std::nullopt;  // No such machine.
  }
  HttpRequest request{
      .method = "GET",
      .url = absl::StrCat(host, "/latest/meta-data/iam/security-credentials/"),
      .headers = {absl::StrCat("X-aws-ec2-metadata-token: ", token.body)},
      .past_proxies = true};
  const HttpAnswer roles = http_.Send(request, brief);
  if (!roles.error.ok() || roles.status != 200) return std::nullopt;
  const std::string_view role =
      Trim(std::string_view(roles.body).substr(0, roles.body.find('\n')));
  request.url += role;
  const HttpAnswer answer = http_.Send(request, brief);
  if (!answer.error.ok() || answer.status != 200) return std::nullopt;
  return ParseKeys(answer.body);
}

absl::StatusOr<AwsKeys> AwsCredentials::Find(const Call& call) {
  if (of_ == S3Of::kGoogle) {
    AwsKeys hmac{EnvironmentText("GS_ACCESS_KEY_ID"),
                 EnvironmentSecret("GS_SECRET_ACCESS_KEY"), ""};
    if (hmac.whole()) return hmac;
    return absl::UnauthenticatedError(
        "no credentials for gs://: set GS_ACCESS_KEY_ID and "
        "GS_SECRET_ACCESS_KEY to an HMAC key of the bucket's project (`gcloud "
        "storage hmac create` makes one); those of AWS are not used there");
  }
  AwsKeys keys{EnvironmentText("AWS_ACCESS_KEY_ID"),
               EnvironmentSecret("AWS_SECRET_ACCESS_KEY"),
               EnvironmentText("AWS_SESSION_TOKEN")};
  if (keys.whole()) return keys;
  const SharedFiles files;
  keys = {files.Text("aws_access_key_id"), files.Value("aws_secret_access_key"),
          files.Text("aws_session_token")};
  if (keys.whole()) return keys;
  CKPTREE_ASSIGN_OR_RETURN(std::optional<AwsKeys> found, FromContainer(call));
  if (!found.has_value()) {
    CKPTREE_ASSIGN_OR_RETURN(found, FromMachine(call));
  }
  if (found.has_value()) return *std::move(found);
  return absl::UnauthenticatedError(absl::StrCat(
      "no credentials for S3: neither AWS_ACCESS_KEY_ID and "
      "AWS_SECRET_ACCESS_KEY are set, nor does the profile '",
      Profile(),
      "' of ~/.aws/credentials have any, nor does an endpoint of a "
      "container or machine give any"));
}

absl::StatusOr<AwsKeys> AwsCredentials::Get(const Call& call) {
  {
    absl::MutexLock lock(&mu_);
    if (keys_.has_value() && absl::Now() + kBeforeEnd < keys_->expires) {
      return *keys_;
    }
  }
  // Two that find them at once find the same.
  absl::StatusOr<AwsKeys> found = Find(call);
  absl::MutexLock lock(&mu_);
  if (found.ok()) {
    keys_ = *found;
  } else if (keys_.has_value() && absl::Now() < keys_->expires) {
    return *keys_;  // The endpoint is asked again by the next request.
  }
  return found;
}

void AwsCredentials::Forget() {
  absl::MutexLock lock(&mu_);
  keys_.reset();
}

}  // namespace ckptree::kv
