// SPDX-License-Identifier: Apache-2.0

// One step, open for reading: the body of ckptree::Step.

#ifndef CKPTREE_CORE_ENGINE_STEP_READER_H_
#define CKPTREE_CORE_ENGINE_STEP_READER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/step.h"
#include "core/engine/engine.h"
#include "core/version/catalog.h"
#include "core/version/read_plan.h"
#include "core/version/step_tree.h"
#include "schema/leaf_record.h"
#include "schema/step_record.h"

namespace ckptree::internal {

// Thread-safe: nothing changes after Open().
class StepReader {
 public:
  static absl::StatusOr<std::unique_ptr<StepReader>> Open(
      std::shared_ptr<Engine> engine, StepRecordPtr record);

  const StepInfo& info() const { return info_; }
  const base::Digest& digest() const { return record_->digest; }
  std::string step_name() const { return StepText(info_.branch, info_.step); }
  absl::StatusOr<StepMetadata> Metadata() const;
  absl::StatusOr<std::vector<LeafInfo>> Leaves(std::string_view glob) const;
  // Those of some pages of the tree of a step of one part, in order. REQUIRES:
  // parts().size() == 1, begin <= end <= parts()[0].tree->page_count().
  absl::StatusOr<std::vector<LeafInfo>> LeavesOfPages(std::size_t begin,
                                                      std::size_t end) const;
  absl::StatusOr<std::optional<LeafInfo>> Find(const Path& path) const;
  // kNotFound, with the closest name.
  absl::Status NoSuchPath(const Path& path) const;
  absl::StatusOr<std::vector<LeafDetail>> Details(
      const std::vector<LeafInfo>& leaves) const;
  absl::Status ReadMany(std::span<const ReadRequest> requests,
                        const ReadOptions& options) const;
  // The same of one.
  absl::Status ReadOne(const Path& path, const std::optional<BoxSpec>& box,
                       std::span<std::byte> destination,
                       const ReadOptions& options) const;
  absl::StatusOr<LeafValue> Value(const Path& path) const;
  // The records of an array or value, one for each part that holds some of it.
  struct Located {
    std::shared_ptr<const schema::TreeEntry> entry;  // Never null.
    std::vector<schema::LeafRecord> records;
  };
  absl::StatusOr<Located> Locate(const Path& path) const;
  const Engine& engine() const { return *engine_; }
  struct Part {
    std::uint16_t part = 0;
    std::shared_ptr<const StepTree> tree;
    schema::LeafMap map;
  };
  const std::vector<Part>& parts() const { return parts_; }
  // What names and types stand in, and which record has the value of a leaf.
  // Records are written once: where both are alike, so is the leaf.
  struct RecordName {
    base::Digest tree;
    schema::Space place = schema::Space::kSmall;
    std::uint64_t version = 0;
    std::uint32_t source = 0;

    friend bool operator==(const RecordName&, const RecordName&) = default;
  };
  // By its encoded path. Nothing of a tie, of a step of several parts, and
  // where no leaf is.
  std::optional<RecordName> RecordOf(std::string_view encoded) const;
  // Of the leaf whose record that is, as Details() gives it.
  absl::StatusOr<LeafDetail> DetailOf(const RecordName& name) const;
  // Names the step; an error of a step that another process collected says so.
  absl::Status Annotate(const absl::Status& status) const;

 private:
  // Where a leaf is: part index and ordinal, in each part that has it.
  struct Place {
    std::size_t part = 0;
    std::uint32_t ordinal = 0;
    std::size_t read = 0;  // Of many that are read of a part, which one.
  };

  StepReader(std::shared_ptr<Engine> engine, StepRecordPtr record);

  struct Found {
    std::shared_ptr<const schema::TreeEntry> entry;  // Never null.
    absl::InlinedVector<Place, 1> places;
  };

  // The entry and its places; follows a tie. kNotFound names close paths.
  absl::StatusOr<Found> Lookup(const Path& path) const;
  // The same of what has a value: kInvalidArgument where it has none.
  absl::StatusOr<Found> LookupValue(const Path& path) const;
  LeafOfStep At(const Place& place) const;
  // The whole value without its record, where that can be: see PackGuesses.
  bool ReadProved(const Found& found, std::span<std::byte> destination,
                  PackGuesses::Trial* trial) const;
  absl::StatusOr<Located> LocateFound(const Path& path, Found found,
                                      const PackGuesses::Trial& trial) const;
  // read_many.cc: the records of what was found, by part and `read` of their
  // places, which it sets; on this thread alone where `here`.
  absl::StatusOr<std::vector<std::vector<schema::LeafRecord>>> RecordsOf(
      std::span<Found> found, bool here) const;
  // Of these leaves, on this thread.
  absl::Status DetailsHere(std::span<const LeafInfo> leaves,
                           std::span<LeafDetail> details) const;
  absl::Status AddRead(const Path& path, const std::optional<BoxSpec>& asked,
                       std::span<std::byte> destination,
                       const schema::TreeEntry& entry,
                       std::span<const schema::LeafRecord> records,
                       ReadPlan* plan) const;
  // read_many.cc: of one part, these pages of it in parallel.
  absl::StatusOr<std::vector<LeafInfo>> LeavesOf(const StepTree& tree,
                                                 std::size_t begin,
                                                 std::size_t end,
                                                 std::string_view glob) const;
  // Adds all of `found`, which are those of the requests, to what is read;
  // `here`: on this thread alone.
  absl::Status AddAll(std::span<const ReadRequest* const> requests,
                      std::span<Found> found, bool here, ReadPlan* plan) const;
  // In the order in which all of it stands on disk.
  absl::Status ReadAll(std::span<const ReadRequest> requests,
                       ReadPlan* plan) const;
  // Many leaves, most of them small: some after the other.
  static bool AreManySmall(std::span<const ReadRequest> requests);
  absl::Status ReadInBatches(std::span<const ReadRequest> requests,
                             ReadPlan* plan) const;

  const std::shared_ptr<Engine> engine_;
  const StepRecordPtr record_;
  // Keeps the version from being collected.
  std::shared_ptr<const void> pin_;
  const StepInfo info_;
  std::vector<Part> parts_;
};

bool HasStepGone(const absl::Status& status);

// What `entry` says, as the public type.
LeafInfo InfoOf(const schema::TreeEntry& entry);

// What the records of one leaf say, one for each part that holds some of it;
// takes their boxes. `whole`: the shape of an array, which one of several
// records without boxes has all of.
LeafDetail DetailOf(const kv::Database& database,
                    std::span<schema::LeafRecord> records,
                    const Shape* whole = nullptr);

// Of the chunks of the box of that index.
const Shape& ChunkShapeOf(const LeafDetail& detail, std::size_t box);

// Whether equal values of the two would have equal digests.
bool CutAlike(const LeafDetail& a, const LeafDetail& b);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_STEP_READER_H_
