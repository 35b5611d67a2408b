// SPDX-License-Identifier: Apache-2.0

// Asks the process that has a store open for writing to change it.

#ifndef CKPTREE_CORE_ENGINE_ASK_H_
#define CKPTREE_CORE_ENGINE_ASK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv/request_box.h"
#include "kv/store_lock.h"
#include "schema/store_request.h"

namespace ckptree::internal {

struct AskOptions {
  absl::Duration timeout = absl::Seconds(10);
  bool wait_once_taken = false;  // For the answer, however long.
  // Asked now and then, on the thread of the call; true gives up.
  std::function<bool()> cancelled = {};
};

// What became of a request.
struct Asked {
  enum class Outcome {
    kAnswered,    // `answer` says how it went.
    kNoWriter,    // Nobody has the store open. Nothing was done, and won't be.
    kNotTaken,    // In time. Nothing was done, and nothing will be.
    kUnanswered,  // It was taken, and may be done.
    kWriterGone,  // It was taken, and its taker ended without an answer.
  };
  Outcome outcome = Outcome::kNotTaken;
  schema::StoreAnswer answer;
  kv::LockHolder writer;  // Who had the store last, as far as it is known.
  std::unique_ptr<kv::PostedRequest> posted;  // Its files go with it.

  // After kWriterGone, where this process has opened the store for writing:
  // whether it was the first to do so since. Then what is not there was not
  // done, and can be done now.
  bool NobodyBetween() const;
};

// Who has the store open for writing, this process included.
absl::StatusOr<std::optional<kv::LockHolder>> WriterOf(
    const std::string& directory);

// Fills in the id and who asks. Errors: kPermissionDenied and those of the file
// system, after which nothing was asked.
absl::StatusOr<Asked> Ask(const std::string& directory,
                          schema::StoreRequest request,
                          const AskOptions& options);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_ASK_H_
