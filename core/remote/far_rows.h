// SPDX-License-Identifier: Apache-2.0

// The segments of a directory that its rows say are elsewhere alone: where they
// are, and how they are read there.

#ifndef CKPTREE_CORE_REMOTE_FAR_ROWS_H_
#define CKPTREE_CORE_REMOTE_FAR_ROWS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/digest.h"
#include "ckptree/options.h"
#include "core/remote/far_place.h"
#include "kv/database.h"
#include "kv/far_segments.h"
#include "kv/object_store.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Knows none before Begin(). The object stores are connected to when the first
// segment of theirs is read, with the credentials of this process.
//
// Thread-safe, but for Begin().
class FarRows : public kv::FarSegments {
 public:
  // As FarPlace takes them.
  FarRows(FarPlace::OpenFn open, FarReader reader);

  // `database` outlives all reads. Where a row cannot be read, what it is of
  // is missing.
  void Begin(const kv::Database* database, const std::string& uuid);
  // Nobody reads any more for now.
  void Rest();
  // After a commit of such rows. Reads meet commits of others by themselves,
  // with the view of the database.
  void Load();

  bool any() override;
  std::vector<kv::FarSegmentPtr> List() override;
  kv::FarSegmentPtr Find(schema::Space space, std::string_view key) override;
  kv::FarSegmentPtr FindFrom(schema::Space space,
                             std::string_view key) override;
  absl::Status Read(const kv::FarSegment& segment, std::uint64_t offset,
                    std::span<std::byte> into) override;
  absl::StatusOr<Copy> Fetch(const kv::FarSegment& segment) override;
  absl::Status Answers() override;
  void Doubt(bool) override {}  // Nothing is kept.
  absl::Status Check(const kv::FarSegment& segment) override;

 private:
  struct Known;
  absl::Status With(
      const Known& known,
      absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask);
  FarPlace& PlaceOf(const std::string& address);
  void LoadIfNew();

  const FarPlace::OpenFn open_;
  const FarReader reader_;
  const kv::Database* database_ = nullptr;
  std::string uuid_;
  std::atomic<bool> any_ = false;
  std::atomic<std::uint64_t> view_ = 0;  // That was loaded, and one more.
  absl::Mutex loading_;                  // Before mutex_; held over reads.
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<const Known>, std::less<>> known_
      ABSL_GUARDED_BY(mutex_);  // By their first keys.
  // None goes.
  std::map<std::string, FarPlace> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_FAR_ROWS_H_
