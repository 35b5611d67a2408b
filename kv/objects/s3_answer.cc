// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/s3_answer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kv/object_store.h"
#include "kv/objects/http.h"
#include "kv/objects/names.h"
#include "kv/objects/text.h"

namespace ckptree::kv {
namespace {

constexpr absl::Duration kMaxPause = absl::Minutes(1);

// A code of an error is a word of letters; nothing else of an answer is shown:
// some servers quote the request there, and what signed it.
std::string CodeOf(const HttpAnswer& answer) {
  std::string code = S3Text(answer.body, "Code");
  std::erase_if(code, [](char c) {
    return !absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
  return code.substr(0, 64);
}

absl::Duration PauseAsked(const HttpAnswer& answer) {
  int seconds = 0;
  if (!ParseNumber(answer.Header("retry-after"), &seconds)) {
    return absl::ZeroDuration();
  }
  return std::clamp(absl::Seconds(seconds), absl::ZeroDuration(), kMaxPause);
}

bool IsOneOf(std::string_view code,
             std::initializer_list<std::string_view> codes) {
  return std::ranges::find(codes, code) != codes.end();
}

S3Verdict Refused(absl::StatusCode code, const std::string& what,
                  const std::string& why) {
  return {S3Meaning::kRefused,
          absl::Status(code, absl::StrCat(what, ": ", why)),
          absl::ZeroDuration(), true};
}

absl::StatusOr<pugi::xml_node> RootOf(pugi::xml_document& document,
                                      const std::string& body,
                                      const char* name) {
  const pugi::xml_node root = document.load_buffer(body.data(), body.size())
                                  ? document.child(name)
                                  : pugi::xml_node();
  if (root) return root;
  return absl::UnknownError(absl::StrCat("the store answered with no ", name));
}

}  // namespace

std::string S3Text(const std::string& body, const char* name) {
  pugi::xml_document document;
  if (!document.load_buffer(body.data(), body.size())) return "";
  return document.document_element().child_value(name);
}

std::string S3Root(const std::string& body) {
  pugi::xml_document document;
  if (!document.load_buffer(body.data(), body.size())) return "";
  return document.document_element().name();
}

S3Verdict JudgeS3(const HttpAnswer& answer, const std::string& what, S3Of of) {
  const absl::Duration none = absl::ZeroDuration();
  if (answer.untrusted) {
    return Refused(absl::StatusCode::kUnauthenticated, what,
                   absl::StrCat(answer.error.message(),
                                "; its certificate is not one that this "
                                "machine trusts (SSL_CERT_FILE names others)"));
  }
  if (absl::IsFailedPrecondition(answer.error)) {
    return Refused(answer.error.code(), what,
                   std::string(answer.error.message()));
  }
  if (!answer.error.ok()) {
    return {S3Meaning::kAgain,
            absl::Status(answer.error.code(),
                         absl::StrCat(what, ": ", answer.error.message())),
            none, !answer.sent};
  }
  const int status = answer.status;
  if (status >= 200 && status < 300) {
    return {S3Meaning::kDone, absl::OkStatus(), none, false};
  }
  const std::string code = CodeOf(answer);
  const std::string said =
      absl::StrCat(what, ": ", status, code.empty() ? "" : " ", code);
  if (status == 412) {
    return {S3Meaning::kTaken, absl::AlreadyExistsError(said), none, true};
  }
  if (status == 416) {
    return {S3Meaning::kPastEnd, absl::OutOfRangeError(said), none, true};
  }
  if (code == "NoSuchBucket") {
    return Refused(absl::StatusCode::kFailedPrecondition, what,
                   "there is no such bucket; make it first, or correct the "
                   "address");
  }
  // One that has a text of another kind is of what stands before the store.
  if (status == 404 && !answer.body.empty() && S3Root(answer.body) != "Error") {
    return {S3Meaning::kAgain,
            absl::UnavailableError(absl::StrCat(
                said,
                ", and not in the words of S3: is the endpoint that of an "
                "object store, and is that up?")),
            PauseAsked(answer), false};
  }
  if (status == 404) {
    return {S3Meaning::kAbsent, absl::NotFoundError(said), none, true};
  }
  if (IsOneOf(code, {"ExpiredToken", "TokenRefreshRequired", "InvalidToken"})) {
    return {S3Meaning::kExpired,
            absl::UnauthenticatedError(absl::StrCat(
                said, ": the credentials have expired; renew them")),
            none, true};
  }
  if (code == "RequestTimeTooSkewed") {
    return Refused(absl::StatusCode::kUnauthenticated, what,
                   absl::StrCat("the clock of this machine is wrong: it is ",
                                "more than 15 minutes from the server's (",
                                answer.Header("date"), "); set it"));
  }
  if (IsOneOf(code, {"InvalidAccessKeyId", "SignatureDoesNotMatch",
                     "InvalidSecurity"})) {
    S3Verdict unknown =
        Refused(absl::StatusCode::kUnauthenticated, what,
                absl::StrCat(code,
                             ": the server does not know these "
                             "credentials; look at ",
                             of == S3Of::kGoogle
                                 ? "GS_ACCESS_KEY_ID and "
                                   "GS_SECRET_ACCESS_KEY"
                                 : "AWS_ACCESS_KEY_ID, AWS_PROFILE and the "
                                   "region"));
    unknown.meaning = S3Meaning::kUnknownKeys;
    return unknown;
  }
  // Ceph's gateway says it with 403.
  if (status == 507 || code == "QuotaExceeded") {
    return Refused(absl::StatusCode::kResourceExhausted, what,
                   absl::StrCat(status, " ", code, ": the store is full"));
  }
  if (status == 401 || status == 403) {
    return Refused(absl::StatusCode::kPermissionDenied, what,
                   absl::StrCat(status, code.empty() ? "" : " ", code,
                                ": these credentials may not do that"));
  }
  if (status >= 300 && status < 400 && of == S3Of::kGoogle) {
    return Refused(absl::StatusCode::kFailedPrecondition, what,
                   absl::StrCat(status,
                                ": the bucket is elsewhere; look at "
                                "CKPTREE_GS_ENDPOINT"));
  }
  if (status >= 300 && status < 400) {
    const auto region = answer.Header("x-amz-bucket-region");
    return Refused(absl::StatusCode::kFailedPrecondition, what,
                   region.empty()
                       ? absl::StrCat(status,
                                      ": the bucket is elsewhere; look at "
                                      "AWS_REGION and AWS_ENDPOINT_URL")
                       : absl::StrCat("the bucket is in the region '", region,
                                      "'; set AWS_REGION"));
  }
  // A server without what a header asks for says so each time.
  if (status == 501 && code == "NotImplemented") {
    return Refused(absl::StatusCode::kUnimplemented, what,
                   "501 NotImplemented: the server cannot do that");
  }
  // What arrived is not what was sent, or not all of it did.
  const bool mangled = IsOneOf(code, {"XAmzContentSHA256Mismatch", "BadDigest",
                                      "IncompleteBody", "RequestTimeout"});
  if (mangled || status >= 500 || status == 409 || status == 429 ||
      status == 408) {
    return {S3Meaning::kAgain, absl::UnavailableError(said), PauseAsked(answer),
            mangled};
  }
  return Refused(absl::StatusCode::kUnknown, what,
                 absl::StrCat(status, code.empty() ? "" : " ", code));
}

absl::StatusOr<S3List> ParseS3List(const std::string& body,
                                   std::string_view base) {
  pugi::xml_document document;
  CKPTREE_ASSIGN_OR_RETURN(const pugi::xml_node root,
                           RootOf(document, body, "ListBucketResult"));
  S3List list;
  list.page.more = std::string_view(root.child_value("IsTruncated")) == "true";
  list.next = root.child_value("NextContinuationToken");
  for (const pugi::xml_node entry : root.children("Contents")) {
    const std::string_view key = entry.child_value("Key");
    if (list.last.empty()) list.first = key;
    list.last = key;
    ObjectInfo info;
    if (!key.starts_with(base) ||
        !ParseNumber(entry.child_value("Size"), &info.size) ||
        !absl::ParseTime(absl::RFC3339_full, entry.child_value("LastModified"),
                         &info.modified, nullptr)) {
      continue;
    }
    info.name = key.substr(base.size());
    if (!CheckObjectName(info.name).ok()) continue;
    list.page.objects.push_back(std::move(info));
  }
  return list;
}

absl::StatusOr<S3Uploads> ParseS3Uploads(const std::string& body,
                                         std::string_view base) {
  pugi::xml_document document;
  CKPTREE_ASSIGN_OR_RETURN(
      const pugi::xml_node root,
      RootOf(document, body, "ListMultipartUploadsResult"));
  S3Uploads found;
  found.more = std::string_view(root.child_value("IsTruncated")) == "true";
  found.key_marker = root.child_value("NextKeyMarker");
  found.id_marker = root.child_value("NextUploadIdMarker");
  for (const pugi::xml_node entry : root.children("Upload")) {
    const std::string_view key = entry.child_value("Key");
    if (!key.starts_with(base)) continue;
    Upload upload{std::string(key.substr(base.size())),
                  entry.child_value("UploadId")};
    if (CheckObjectName(upload.name).ok() && !upload.id.empty()) {
      found.uploads.push_back(std::move(upload));
    }
  }
  return found;
}

std::optional<S3Range> ParseContentRange(std::string_view header) {
  S3Range range{0, 0};
  const std::size_t dash = header.find('-');
  const std::size_t slash = header.find('/');
  if (!header.starts_with("bytes ") || dash == std::string_view::npos ||
      slash == std::string_view::npos || dash < 6 ||
      !ParseNumber(header.substr(6, dash - 6), &range.first) ||
      !ParseNumber(header.substr(slash + 1), &range.total)) {
    return std::nullopt;
  }
  return range;
}

}  // namespace ckptree::kv
