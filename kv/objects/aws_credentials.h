// SPDX-License-Identifier: Apache-2.0

// Whose requests to S3 these are: from the environment, from the files that the
// tools of AWS share, or from the container or machine this runs in. Those to
// Google have an HMAC key of the environment.

#ifndef CKPTREE_KV_OBJECTS_AWS_CREDENTIALS_H_
#define CKPTREE_KV_OBJECTS_AWS_CREDENTIALS_H_

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/object_store.h"
#include "kv/objects/http.h"
#include "kv/objects/s3_answer.h"
#include "kv/objects/secret.h"

namespace ckptree::kv {

// Never printed, nor part of an error.
struct AwsKeys {
  std::string key;
  Secret secret;
  std::string token;  // Empty: none is needed.
  absl::Time expires = absl::InfiniteFuture();

  bool whole() const { return !key.empty() && secret != nullptr; }
  // REQUIRES: both are whole.
  bool IsSameAs(const AwsKeys& other) const {
    return key == other.key && secret->view() == other.secret->view() &&
           token == other.token;
  }
};

// The value of `name` in the profile (AWS_PROFILE, else "default") of the
// shared files; empty where there is none.
std::string AwsProfileValue(const std::string& name);

// Thread-safe.
class AwsCredentials {
 public:
  // `http` must outlive it.
  AwsCredentials(Http& http, S3Of of) : http_(http), of_(of) {}

  // The first source that has any: AWS_ACCESS_KEY_ID and the like; the shared
  // files; AWS_CONTAINER_CREDENTIALS_*; the machine's endpoint, unless
  // AWS_EC2_METADATA_DISABLED is true. Asked again before they expire.
  // kUnauthenticated, naming all sources, where there are none. For Google
  // GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY are the one source: nothing of
  // AWS's, a session's token least of all, is sent there.
  absl::StatusOr<AwsKeys> Get(const Call& call);

  // The server refused those that Get() returned as expired: it asks again.
  void Forget();

 private:
  absl::StatusOr<AwsKeys> Find(const Call& call);
  absl::StatusOr<std::optional<AwsKeys>> FromContainer(const Call& call);
  absl::StatusOr<std::optional<AwsKeys>> FromMachine(const Call& call);

  Http& http_;
  const S3Of of_;
  absl::Mutex mu_;
  std::optional<AwsKeys> keys_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_AWS_CREDENTIALS_H_
