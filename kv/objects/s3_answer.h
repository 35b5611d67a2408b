// SPDX-License-Identifier: Apache-2.0

// What S3 answers: what it means for the request, and what is in it.

#ifndef CKPTREE_KV_OBJECTS_S3_ANSWER_H_
#define CKPTREE_KV_OBJECTS_S3_ANSWER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv/object_store.h"
#include "kv/objects/http.h"

namespace ckptree::kv {

enum class S3Meaning : std::uint8_t {
  kDone,
  kAbsent,       // No such object or upload.
  kTaken,        // 412: it is there already.
  kPastEnd,      // 416: the range begins at the end, or behind it.
  kExpired,      // The credentials are: with new ones it may be asked again.
  kUnknownKeys,  // They are not the server's: others may be there by now.
  kAgain,        // It may do when it is asked again; this one may yet be done.
  kRefused,      // It was not done, and will not be.
};
struct S3Verdict {
  S3Meaning meaning;
  absl::Status error;     // OK with kDone; else what to tell.
  absl::Duration pause;   // As long the server asks to wait.
  bool certainly_undone;  // It never arrived.
};

// Whose bucket it is: Amazon's, and all that are as that one; or Google's, of
// which credentials and settings have other names.
enum class S3Of : std::uint8_t { kAmazon, kGoogle };

// `what` begins the messages: what was asked for, and where. Of what the server
// says they have its code and, in one line of letters, the beginning.
S3Verdict JudgeS3(const HttpAnswer& answer, const std::string& what, S3Of of);

// The objects of a ListObjectsV2; names without `base`, those that do not begin
// with it or could be no object's left out. kUnknown where it is no such list.
struct S3List {
  ObjectPage page;
  // The keys that it begins and ends with, with `base`, of those left out, too.
  std::string first, last;
  std::string next;  // The token of the page behind it; empty: the last one.
};
absl::StatusOr<S3List> ParseS3List(const std::string& body,
                                   std::string_view base);

// Of a ListMultipartUploads, likewise; and where the next page begins.
struct S3Uploads {
  std::vector<Upload> uploads;
  bool more = false;
  std::string key_marker, id_marker;
};
absl::StatusOr<S3Uploads> ParseS3Uploads(const std::string& body,
                                         std::string_view base);

// The text of `name` in the root of an answer; empty where it is not there.
std::string S3Text(const std::string& body, const char* name);
// The name of the root.
std::string S3Root(const std::string& body);

// Of "bytes 0-9/100": the first byte, and the length of the whole object.
struct S3Range {
  std::uint64_t first, total;
};
std::optional<S3Range> ParseContentRange(std::string_view header);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_S3_ANSWER_H_
