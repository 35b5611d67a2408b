// SPDX-License-Identifier: Apache-2.0

// Requests to one bucket: where they go, how they are signed, and when they are
// sent again.

#ifndef CKPTREE_KV_OBJECTS_S3_CLIENT_H_
#define CKPTREE_KV_OBJECTS_S3_CLIENT_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/object_store.h"
#include "kv/objects/aws_credentials.h"
#include "kv/objects/http.h"
#include "kv/objects/names.h"
#include "kv/objects/s3_answer.h"

namespace ckptree::kv {

struct S3Request {
  std::string method = {};
  std::string key = {};  // In the bucket; empty: the bucket itself.
  // By their names, as the signature needs them; values are not encoded yet.
  std::map<std::string, std::string> query = {};
  std::vector<std::string> headers = {};
  std::string_view body = {};  // Must outlive the request.
  std::span<std::byte> into = {};
};
struct S3Reply {
  HttpAnswer answer;
  S3Verdict verdict;
};

// Thread-safe.
class S3Client {
 public:
  // Of s3:// or gs://; errors as OpenS3Store.
  static absl::StatusOr<std::unique_ptr<S3Client>> Open(
      const ObjectAddress& address, const ObjectStoreOptions& options);

  // Sends each, all at the same time; `once`: one that may have arrived is not
  // sent again. Others are, until the call ends, those that expired credentials
  // signed with new ones.
  std::vector<S3Reply> Send(std::span<const S3Request> requests,
                            const Call& call, bool once = false);
  S3Reply Send(const S3Request& request, const Call& call, bool once = false);

  // That answers, with its port; for messages.
  std::string host() const { return shown_.substr(0, shown_.find('/')); }

 private:
  explicit S3Client(S3Of of) : of_(of), credentials_(http_, of) {}
  HttpRequest Build(const S3Request& request, const AwsKeys& keys) const;
  std::string What(const S3Request& request) const;

  const S3Of of_;
  std::string shown_;  // Host, port and bucket, for messages.
  std::string url_;    // Of the bucket.
  std::string region_;
  bool here_ = false;  // On this machine.
  Http http_;
  AwsCredentials credentials_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_S3_CLIENT_H_
