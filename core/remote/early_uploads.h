// SPDX-License-Identifier: Apache-2.0

// Segments of a save, uploaded while it still writes others.

#ifndef CKPTREE_CORE_REMOTE_EARLY_UPLOADS_H_
#define CKPTREE_CORE_REMOTE_EARLY_UPLOADS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Nothing names these objects before the commit of their save is shipped. Where
// that never is they are what a failed try leaves: names of this era, of which
// the next writer gets rid. Thread-safe.
class EarlyUploads {
 public:
  // Segments at a time, each of which has up to 64 MiB in memory.
  static constexpr std::size_t kAtOnce = 4;

  // `store` outlives it.
  EarlyUploads(kv::Options options, kv::ObjectStore* store, std::string uuid,
               std::uint64_t era)
      : options_(std::move(options)),
        store_(store),
        uuid_(std::move(uuid)),
        era_(era) {}
  ~EarlyUploads() { Stop(); }
  EarlyUploads(const EarlyUploads&) = delete;
  EarlyUploads& operator=(const EarlyUploads&) = delete;

  // The segment of that row is whole, and in the file `path` until its save is
  // committed. Quick.
  void Add(const std::string& row_key, std::string path);

  // The segment as it was uploaded, by its row. Waits for that where it has
  // begun, until `cancelled`. Nothing where it was not, or failed; it does not
  // begin any more then.
  std::optional<schema::RemoteSegment> Find(const std::string& row_key,
                                            const std::stop_token& cancelled);

  // Nobody asks any more for what saves of up to this version built.
  void Forget(std::uint64_t version);

  // Ends what is under way.
  void Stop();

 private:
  enum class State : std::uint8_t { kWaiting, kSending, kEnded };
  struct Segment {
    schema::SegmentKeyFields fields;
    std::string path;
    State state = State::kWaiting;
    std::optional<schema::RemoteSegment> uploaded;
  };

  void Work();
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return stopping_ || !waiting_.empty();
  }

  const kv::Options options_;
  kv::ObjectStore* const store_;
  const std::string uuid_;
  const std::uint64_t era_;
  std::stop_source stop_;

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, Segment> segments_ ABSL_GUARDED_BY(mu_);  // By rows.
  // Rows of segments, some of which are not waited for any more.
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_EARLY_UPLOADS_H_
