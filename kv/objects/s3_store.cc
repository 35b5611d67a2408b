// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/s3_store.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_of.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "kv/objects/http.h"
#include "kv/objects/names.h"
#include "kv/objects/pieces.h"
#include "kv/objects/s3_answer.h"
#include "kv/objects/s3_client.h"
#include "kv/objects/text.h"
#include "kv/objects/wait.h"

namespace ckptree::kv {
namespace {

constexpr std::uint64_t kInOnePart = std::uint64_t{64} << 20;
// S3 takes at most 10 000 parts, and none but the last below 5 MiB.
constexpr std::uint64_t kPartSize = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxParts = 9000;
// How many at a time: this many parts are in memory.
constexpr std::size_t kPartsAtOnce = 4;
constexpr std::size_t kDeletesAtOnce = 16;
constexpr char kWriteId[] = "x-amz-meta-ckptree-write-id";

// Answers to one request that are not of S3: a proxy's, or one that was cut.
constexpr int kMostStrange = 5;

// By this Sensible() knows such an answer; callers do not see it.
constexpr char kStrange[] = "strange";

// What `once` returns; strange answers are asked for again, after pauses, and
// then they are kUnavailable.
template <typename Once>
auto Sensible(const Call& call, Once once) -> decltype(once()) {
  for (int tries = 1;; ++tries) {
    auto result = once();
    const absl::Status& status = base::StatusOf(result);
    if (!status.GetPayload(kStrange).has_value()) return result;
    if (tries == kMostStrange || !CheckCall(call, "").ok()) {
      return absl::UnavailableError(status.message());
    }
    WaitOrEnd(call, PauseBefore(tries, absl::ZeroDuration()));
  }
}

// Each answer with an object or to a PUT has one; a page of a portal has none.
bool HasTag(const HttpAnswer& answer) {
  const std::string tag = answer.Header("etag");
  return !tag.empty() && tag.find("<") == std::string::npos;
}

absl::Time ParseHttpTime(const std::string& text) {
  absl::Time time = absl::InfinitePast();
  absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", text, &time, nullptr);
  return time;
}

class S3Store : public ObjectStore {
 public:
  S3Store(std::string address, const std::string& prefix,
          std::unique_ptr<S3Client> client)
      : address_(std::move(address)),
        base_(prefix.empty() ? "" : absl::StrCat(prefix, "/")),
        client_(std::move(client)) {}

  const std::string& address() const override { return address_; }

  absl::StatusOr<PutAnswer> PutIfAbsent(const std::string& name,
                                        std::string_view bytes,
                                        const std::string& write_id,
                                        const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckConditionalPut(name, bytes, write_id));
    S3Reply reply =
        client_->Send({.method = "PUT",
                       .key = base_ + name,
                       .headers = {"If-None-Match: *",
                                   absl::StrCat(kWriteId, ": ", write_id)},
                       .body = bytes},
                      call, /*once=*/true);
    switch (reply.verdict.meaning) {
      case S3Meaning::kDone:
        if (HasTag(reply.answer)) {
          return PutAnswer{PutOutcome::kCreated, absl::OkStatus()};
        }
        return PutAnswer{
            PutOutcome::kUnknown,
            absl::UnavailableError(Strange("PUT " + name).message())};
      case S3Meaning::kTaken:
        return PutAnswer{PutOutcome::kExists, absl::OkStatus()};
      default:
        break;
    }
    if (reply.verdict.certainly_undone) return reply.verdict.error;
    return PutAnswer{PutOutcome::kUnknown, std::move(reply.verdict.error)};
  }

  absl::Status Put(const std::string& name, const ObjectSource& source,
                   const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    if (source.size() > kInOnePart) {
      return Sensible(call, [&] { return PutInParts(name, source, call); });
    }
    std::string bytes(static_cast<std::size_t>(source.size()), '\0');
    CKPTREE_RETURN_IF_ERROR(
        source.Read(0, std::as_writable_bytes(std::span(bytes))));
    return Sensible(call, [&]() -> absl::Status {
      const S3Reply reply = client_->Send(
          {.method = "PUT", .key = base_ + name, .body = bytes}, call);
      CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
      return HasTag(reply.answer) ? absl::OkStatus() : Strange("PUT " + name);
    });
  }

  absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                       std::uint64_t offset,
                                       std::span<std::byte> into,
                                       const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    if (into.empty()) {
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<ObjectInfo> info,
                               Head(name, call));
      if (info.has_value()) return 0;
      return absl::NotFoundError(absl::StrCat(name, " is not there"));
    }
    return Sensible(call, [&] { return GetOnce(name, offset, into, call); });
  }

  absl::StatusOr<std::optional<ObjectInfo>> Head(const std::string& name,
                                                 const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    return Sensible(call, [&] { return HeadOnce(name, call); });
  }

  absl::StatusOr<ObjectPage> List(const std::string& prefix,
                                  const std::string& after,
                                  const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectPrefix(prefix));
    S3Request request{
        .method = "GET",
        .query = {{"list-type", "2"}, {"prefix", base_ + prefix}}};
    std::string from = after.empty() ? "" : base_ + after;
    while (true) {
      if (!from.empty()) request.query["start-after"] = from;
      CKPTREE_ASSIGN_OR_RETURN(
          S3List list, Sensible(call, [&]() -> absl::StatusOr<S3List> {
            const S3Reply reply = client_->Send(request, call);
            CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
            absl::StatusOr<S3List> parsed =
                ParseS3List(reply.answer.body, base_);
            return parsed.ok() ? parsed : Strange("a list of " + prefix);
          }));
      // Else who goes through all pages meets the first one for ever, and who
      // looks behind a name takes for new what stands before it.
      if (!from.empty() && !list.last.empty() && list.first <= from) {
        return absl::FailedPreconditionError(absl::StrCat(
            address_, " lists what stands before ", from,
            " where it was asked ",
            "for what is behind it: it does not keep to start-after of ",
            "ListObjectsV2, and cannot be used"));
      }
      if (!list.page.objects.empty() || !list.page.more) {
        return std::move(list.page);
      }
      // A page of what is not ours, or of nothing.
      if (list.last > from) {
        from = list.last;
        request.query.erase("continuation-token");
      } else if (!list.next.empty()) {
        request.query["continuation-token"] = list.next;
      } else {
        return absl::UnavailableError(absl::StrCat(
            address_, ": a list of ", prefix,
            " is cut off where it begins, and does not say how it goes on"));
      }
    }
  }

  absl::Status Delete(std::span<const std::string> names,
                      const Call& call) override {
    for (std::size_t at = 0; at < names.size(); at += kDeletesAtOnce) {
      std::vector<S3Request> requests;
      for (const std::string& name :
           names.subspan(at, std::min(kDeletesAtOnce, names.size() - at))) {
        CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
        requests.push_back({.method = "DELETE", .key = base_ + name});
      }
      const auto send = [&]() -> absl::Status {
        for (const S3Reply& reply : client_->Send(requests, call)) {
          if (reply.verdict.meaning == S3Meaning::kAbsent) continue;
          CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
          if (!reply.answer.body.empty()) return Strange("DELETE");
        }
        return absl::OkStatus();
      };
      CKPTREE_RETURN_IF_ERROR(Sensible(call, send));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Upload>> ListUploads(const std::string& prefix,
                                                  const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectPrefix(prefix));
    std::vector<Upload> all;
    S3Request request{.method = "GET",
                      .query = {{"prefix", base_ + prefix}, {"uploads", ""}}};
    while (true) {
      const S3Reply reply = client_->Send(request, call);
      CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
      CKPTREE_ASSIGN_OR_RETURN(S3Uploads found,
                               ParseS3Uploads(reply.answer.body, base_));
      std::ranges::move(found.uploads, std::back_inserter(all));
      if (!found.more || found.key_marker.empty()) return all;
      request.query["key-marker"] = found.key_marker;
      request.query["upload-id-marker"] = found.id_marker;
    }
  }

  absl::Status AbortUpload(const Upload& upload, const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(upload.name));
    const S3Reply reply = client_->Send({.method = "DELETE",
                                         .key = base_ + upload.name,
                                         .query = {{"uploadId", upload.id}}},
                                        call);
    return reply.verdict.meaning == S3Meaning::kAbsent ? absl::OkStatus()
                                                       : reply.verdict.error;
  }

 private:
  absl::Status Strange(const std::string& what) const {
    absl::Status strange = absl::UnavailableError(absl::StrCat(
        what, ", of ", address_, ": that is no answer of S3, which host ",
        client_->host(), " gave: see whether the endpoint (AWS_ENDPOINT_URL) ",
        "is that of an object store"));
    strange.SetPayload(kStrange, absl::Cord());
    return strange;
  }

  // Not empty.
  absl::StatusOr<std::size_t> GetOnce(const std::string& name,
                                      std::uint64_t offset,
                                      std::span<std::byte> into,
                                      const Call& call) {
    const S3Reply reply = client_->Send(
        {.method = "GET",
         .key = base_ + name,
         // An answer from a cache could be of before the object was made.
         .headers = {absl::StrCat("Range: bytes=", offset, "-",
                                  offset + into.size() - 1),
                     "Cache-Control: no-cache"},
         .into = into},
        call);
    if (reply.verdict.meaning == S3Meaning::kPastEnd) return 0;
    CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
    const HttpAnswer& answer = reply.answer;
    const std::optional<S3Range> range =
        ParseContentRange(answer.Header("content-range"));
    // Without a range it is the whole object.
    std::uint64_t total = 0;
    const bool whole = answer.status == 200 && offset == 0 &&
                       ParseNumber(answer.Header("content-length"), &total);
    if (range.has_value()) total = range->total;
    if (!HasTag(answer) || (!range.has_value() && !whole) ||
        (range.has_value() && range->first != offset) || total < offset ||
        answer.filled != std::min<std::uint64_t>(into.size(), total - offset)) {
      return Strange(absl::StrCat("GET ", name, " from ", offset));
    }
    return answer.filled;
  }

  absl::StatusOr<std::optional<ObjectInfo>> HeadOnce(const std::string& name,
                                                     const Call& call) {
    const S3Reply reply =
        client_->Send({.method = "HEAD", .key = base_ + name}, call);
    const int status = reply.answer.status;
    if (reply.answer.error.ok() && status >= 400 && status < 500) {
      // An answer to HEAD says no more than its number: not whether the bucket
      // is there, nor what is wrong with the credentials.
      const S3Reply why = client_->Send({.method = "GET",
                                         .key = base_ + name,
                                         .headers = {"Range: bytes=0-0"}},
                                        call);
      if (why.verdict.meaning == S3Meaning::kAbsent) return std::nullopt;
      if (why.verdict.meaning == S3Meaning::kDone ||
          why.verdict.meaning == S3Meaning::kPastEnd) {
        // It was made in the meantime, or new credentials do; or something
        // on the way lets no HEAD through.
        return Strange(absl::StrCat("HEAD ", name, " (", status,
                                    ", and GET has an answer)"));
      }
      return why.verdict.error;
    }
    CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
    ObjectInfo info;
    info.name = name;
    info.modified = ParseHttpTime(reply.answer.Header("last-modified"));
    if (!ParseNumber(reply.answer.Header("content-length"), &info.size) ||
        !HasTag(reply.answer)) {
      return Strange("HEAD " + name);
    }
    const std::string id = reply.answer.Header(kWriteId);
    if (!id.empty()) info.write_id = id;
    return info;
  }

  absl::Status PutInParts(const std::string& name, const ObjectSource& source,
                          const Call& call) {
    const std::string id = NewWriteId();
    const S3Reply begun =
        client_->Send({.method = "POST",
                       .key = base_ + name,
                       .query = {{"uploads", ""}},
                       .headers = {absl::StrCat(kWriteId, ": ", id)}},
                      call);
    CKPTREE_RETURN_IF_ERROR(begun.verdict.error);
    const Upload upload{name, S3Text(begun.answer.body, "UploadId")};
    if (upload.id.empty()) {
      return Strange(absl::StrCat("POST ", name, ", which begins an upload"));
    }
    absl::Status done = SendParts(upload, id, source, call);
    if (!done.ok()) {
      // The call may be over; what is left is seen by ListUploads.
      AbortUpload(upload, Call::Within(absl::Seconds(5), call.cancelled))
          .IgnoreError();
    }
    return done;
  }

  // `id`: what the object is known by once it is whole.
  absl::Status SendParts(const Upload& upload, const std::string& id,
                         const ObjectSource& source, const Call& call) {
    const std::uint64_t size =
        std::max(kPartSize, (source.size() + kMaxParts - 1) / kMaxParts);
    std::vector<std::string> tags((source.size() + size - 1) / size);
    const auto send = [&](std::uint64_t number,
                          std::string_view bytes) -> absl::Status {
      const S3Reply reply =
          client_->Send({.method = "PUT",
                         .key = base_ + upload.name,
                         .query = {{"partNumber", absl::StrCat(number + 1)},
                                   {"uploadId", upload.id}},
                         .body = bytes},
                        call);
      CKPTREE_RETURN_IF_ERROR(reply.verdict.error);
      if (!HasTag(reply.answer)) {
        return Strange(absl::StrCat("PUT ", upload.name, ", a part"));
      }
      tags[number] = reply.answer.Header("etag");
      return absl::OkStatus();
    };
    CKPTREE_RETURN_IF_ERROR(SendPieces(source, size, kPartsAtOnce, send));
    std::string list = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < tags.size(); ++i) {
      absl::StrAppend(&list, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>",
                      tags[i], "</ETag></Part>");
    }
    list += "</CompleteMultipartUpload>";
    const S3Reply reply = client_->Send({.method = "POST",
                                         .key = base_ + upload.name,
                                         .query = {{"uploadId", upload.id}},
                                         .body = list},
                                        call);
    const bool done =
        reply.verdict.meaning == S3Meaning::kDone &&
        S3Root(reply.answer.body) == "CompleteMultipartUploadResult";
    if (done) return absl::OkStatus();
    // It is said before it is done, and may fail after that. Or the answer to
    // an earlier try was lost, and the upload is gone because it is complete.
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<ObjectInfo> there,
                             Head(upload.name, call));
    if (there.has_value() && there->write_id == id) return absl::OkStatus();
    if (!reply.verdict.error.ok()) return reply.verdict.error;
    const std::string root = S3Root(reply.answer.body);
    const std::string what =
        absl::StrCat("POST ", upload.name,
                     ": the server did not put the parts together: ", root);
    return root == "Error" ? absl::UnavailableError(what) : Strange(what);
  }

  const std::string address_;
  const std::string base_;  // Before each name.
  const std::unique_ptr<S3Client> client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenS3Store(
    const std::string& address, const ObjectAddress& parsed,
    const ObjectStoreOptions& options) {
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<S3Client> client,
                           S3Client::Open(parsed, options));
  return std::make_unique<S3Store>(address, parsed.path, std::move(client));
}

}  // namespace ckptree::kv
