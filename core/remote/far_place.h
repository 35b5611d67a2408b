// SPDX-License-Identifier: Apache-2.0

// An object store that segments are in alone, as reads meet it: who does not
// answer is waited for once, somebody hears of it, and may have enough of it.

#ifndef CKPTREE_CORE_REMOTE_FAR_PLACE_H_
#define CKPTREE_CORE_REMOTE_FAR_PLACE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptree/options.h"
#include "core/remote/attended_store.h"
#include "core/remote/reads_attendant.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// Who reads of an object store.
struct FarReader {
  LogSink log = {};  // Hears what is waited for, once that lasts.
  // True ends with kCancelled what waits; it is asked by any thread, before a
  // request and ten times a second. Null: nobody has enough.
  std::function<bool()> cancelled = {};
};

// Thread-safe.
class FarPlace {
 public:
  using OpenFn = std::function<absl::StatusOr<std::unique_ptr<kv::ObjectStore>>(
      const std::string& address, const kv::Call& call)>;

  struct Times {
    // A restore asks for each block by itself, and must not wait for each.
    absl::Duration silence = absl::Seconds(10);
    // What says sooner that it is away, as the folder of a share that is not
    // mounted, is asked each time: nobody waits for it.
    absl::Duration at_once = absl::Milliseconds(100);
    absl::Duration first = absl::Minutes(1);
    // Of one that was silent: a minute was waited for it already.
    absl::Duration of_silent = absl::Seconds(5);
    absl::Duration until_told = absl::Seconds(3);
    // How long the thread that attends stays behind the last read.
    absl::Duration attends = absl::Seconds(1);
  };

  // Connects when it is first asked.
  FarPlace(std::string address, OpenFn open, const FarReader& reader,
           Times times);
  // Of one that is connected.
  FarPlace(std::shared_ptr<kv::ObjectStore> store, const FarReader& reader,
           Times times);

  // What `ask` returns. kUnavailable and kDeadlineExceeded are no answer: where
  // that was waited for, nothing more is asked for the time of the silence, and
  // it is returned again; after it the object store has a few seconds to answer
  // anything at all, before `ask` has its time. kCancelled: its reader has
  // enough, which says nothing of the object store.
  absl::Status Ask(absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask);

  const std::string& address() const { return address_; }
  ReadsAttendant& attendant() { return attendant_; }

 private:
  absl::StatusOr<std::shared_ptr<kv::ObjectStore>> Connected(bool was_silent);
  absl::Status AskNow(
      bool was_silent,
      absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask);

  const std::string address_;
  const OpenFn open_;
  const Times times_;
  const std::shared_ptr<RemoteTrouble> trouble_;
  absl::Mutex mutex_;
  std::shared_ptr<kv::ObjectStore> store_ ABSL_GUARDED_BY(mutex_);
  // Not OK: it did not answer when it was asked last; not asked before
  // `until_`.
  absl::Status silent_ ABSL_GUARDED_BY(mutex_);
  absl::Time until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  ReadsAttendant attendant_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_FAR_PLACE_H_
