// SPDX-License-Identifier: Apache-2.0

// What other processes ask of the one that has a store open for writing: files
// in <store>/requests. ID is 32 hexadecimal digits, PID the writer's.
//
//   new-ID       being written by who asks
//   ask-ID       waits to be taken
//   taken-ID-PID a writer has it: from now on it may be done, once
//   lost-ID-PID  a later writer, PID, found it taken by one that is gone
//   reply-ID, answer-ID  what came of it
//
// Who asks holds a lock on its file as long as it lives; that of a dead one is
// removed, and not done unless it was taken before. Each change of a name is
// one rename, which one of two sees done: so nothing is done that was
// withdrawn, and nothing twice. As leases, these files are no part of the
// store, and are neither synced nor fault-injected.

#ifndef CKPTREE_KV_REQUEST_BOX_H_
#define CKPTREE_KV_REQUEST_BOX_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace ckptree::kv {

std::string RequestFolder(const std::string& directory);

// One request, of the process that asks. Its files go with it. Confined to one
// thread.
class PostedRequest {
 public:
  enum class State {
    kWaiting,   // Nobody took it.
    kTaken,     // By writer().
    kLost,      // Its taker is gone; the first later writer is writer().
    kAnswered,  // Answer() has it.
    kGone,      // Somebody removed it.
  };

  // 16 bytes that nothing else has.
  static std::string NewId();

  // kPermissionDenied, naming the owner, where only that one may ask.
  static absl::StatusOr<std::unique_ptr<PostedRequest>> Post(
      const std::string& directory, const std::string& id,
      std::string_view bytes, int permissions = 0666);
  ~PostedRequest();
  PostedRequest(const PostedRequest&) = delete;
  PostedRequest& operator=(const PostedRequest&) = delete;

  absl::StatusOr<State> Look();
  std::int64_t writer() const { return writer_; }
  // True: nobody took it, and nobody will.
  bool Withdraw();
  // REQUIRES: kAnswered. Refused where it has more than `most` bytes.
  absl::StatusOr<std::string> Answer(std::int64_t most);

 private:
  PostedRequest(std::string folder, std::string name, int fd)
      : folder_(std::move(folder)), name_(std::move(name)), fd_(fd) {}
  void RemoveFiles();

  const std::string folder_;
  const std::string name_;  // The id in hexadecimal digits.
  const int fd_;
  std::int64_t writer_ = 0;
};

// A request that this writer has taken, and must answer.
struct TakenRequest {
  std::string id;  // 16 bytes.
  std::uint32_t user = 0;
  // OK; else why it must not be done: it is another user's, or no such file.
  absl::Status status;
  std::string bytes;
};

// Of the process that has the store open for writing. Thread-safe.
class RequestBox {
 public:
  explicit RequestBox(std::string directory, int permissions = 0666);

  // What a writer before this one took and did not answer will never be. Also
  // removes what the dead began to write.
  void DisownOld();
  // The request that waits longest; nothing where none does. Removes what the
  // dead have left. Files of more than `most` bytes are refused.
  absl::StatusOr<std::optional<TakenRequest>> Take(std::int64_t most);
  absl::Status Answer(const std::string& id, std::string_view bytes);

 private:
  absl::StatusOr<std::optional<TakenRequest>> TakeFile(const std::string& name,
                                                       std::int64_t most)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string directory_;
  const std::string folder_;
  const int permissions_;
  absl::Mutex mu_;
  std::set<std::string> taken_ ABSL_GUARDED_BY(mu_);  // Ids, in hex.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_REQUEST_BOX_H_
