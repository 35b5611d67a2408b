// SPDX-License-Identifier: Apache-2.0

// The segments of a store that is read by its address: where they are, and
// what is fetched of them.

#ifndef CKPTREE_CORE_REMOTE_REMOTE_SEGMENTS_H_
#define CKPTREE_CORE_REMOTE_REMOTE_SEGMENTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/process/out_of_reach.h"
#include "core/remote/far_place.h"
#include "core/remote/mirror.h"
#include "kv/far_segments.h"
#include "kv/object_store.h"
#include "kv/options.h"
#include "schema/remote_record.h"
#include "schema/spaces.h"

namespace ckptree::internal {

// The list of a mirror is a file, never half there. kDataLoss: it is not whole.
absl::Status WriteSegmentList(const kv::Options& options,
                              const std::string& path,
                              const LivingSegments& segments);
absl::StatusOr<LivingSegments> ReadSegmentList(const kv::Options& options,
                                               const std::string& path);

// Of a list that other processes may replace. Segments that are no
// longer in it are known on: an opened step goes on as long as they are there.
class RemoteSegments : public kv::FarSegments {
 public:
  // Segments of leaf records are kept in `folder`, by their attempt.
  RemoteSegments(std::shared_ptr<kv::ObjectStore> store,
                 const FarReader& reader, std::string uuid, std::string list,
                 std::string folder, kv::Options options);

  // Once, before all else. An error: the list cannot be read.
  absl::Status Load();
  // Nobody reads any more for now.
  void Rest() { place_.attendant().Rest(); }

  bool any() override { return true; }
  std::vector<kv::FarSegmentPtr> List() override;
  kv::FarSegmentPtr Find(schema::Space space, std::string_view key) override;
  kv::FarSegmentPtr FindFrom(schema::Space space,
                             std::string_view key) override;
  absl::Status Read(const kv::FarSegment& segment, std::uint64_t offset,
                    std::span<std::byte> into) override;
  absl::StatusOr<Copy> Fetch(const kv::FarSegment& segment) override;
  void Doubt(bool doubt) override;
  absl::Status Check(const kv::FarSegment& segment) override;

 private:
  struct Known;
  using Place = std::pair<schema::Space, std::string>;  // Of the first key.
  // Which file it was.
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };

  absl::Status LoadIfNew();
  kv::FarSegmentPtr FindKnown(schema::Space space, std::string_view key);

  absl::Status Ask(
      absl::FunctionRef<absl::Status(kv::ObjectStore& store)> ask) {
    return OfObjectStore(place_.Ask(ask), place_.address());
  }

  FarPlace place_;
  const std::string uuid_;
  const std::string list_;
  const std::string folder_;
  const kv::Options options_;
  absl::Mutex mutex_;
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);
  std::map<Place, std::shared_ptr<const Known>> known_ ABSL_GUARDED_BY(mutex_);
  std::set<Place> listed_ ABSL_GUARDED_BY(mutex_);
  int doubts_ ABSL_GUARDED_BY(mutex_) = 0;
  // How they were found since, by attempt: OK, or the damage.
  std::map<std::string, absl::Status> found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_REMOTE_SEGMENTS_H_
