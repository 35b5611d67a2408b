// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "core/version/leaf_reader.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_text.h"
#include "core/process/arena.h"
#include "core/process/first_error.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

// A record this near to the last one is reached faster by Next() than by a
// seek.
constexpr std::uint32_t kNearRecords = 64;
constexpr std::size_t kBatch = 4096;

struct Target {
  schema::Space place;
  std::uint64_t version;
  std::uint32_t source;
  std::size_t index;  // In the result.

  auto order() const { return std::tie(place, version, source); }
};

std::string KeyOf(std::uint16_t part, schema::Space place,
                  std::uint64_t version, std::uint32_t source) {
  return place == schema::Space::kSmall
             ? schema::SmallKey(version, part, schema::BlockKind::kLeafRecord,
                                source + 1)
             : schema::BlockKey(version, part,
                                schema::BlockNumber(0, source + 1));
}

absl::Status Missing(schema::Space place, const std::string& key) {
  return absl::DataLossError(absl::StrFormat("leaf record %s is missing",
                                             schema::DescribeKey(place, key)));
}

absl::Status AtKey(schema::Space place, std::string_view key,
                   const absl::Status& status) {
  return base::WithText(
      status, absl::StrFormat("%s: %s", schema::DescribeKey(place, key),
                              status.message()));
}

absl::StatusOr<schema::LeafRecord> Decode(schema::Space place,
                                          std::string_view key,
                                          std::string_view value) {
  absl::StatusOr<schema::LeafRecord> record = schema::DecodeLeafRecord(value);
  if (!record.ok()) return AtKey(place, key, record.status());
  return record;
}

class BatchReader {
 public:
  BatchReader(const kv::Database& database, std::uint16_t part)
      : database_(database), part_(part) {}

  // Calls take(target, its key, its bytes as they are stored) for each, until
  // one is not OK.
  template <typename Take>
  absl::Status Read(std::span<const Target> targets, const Take& take) {
    std::optional<kv::Iterator> scan;
    const Target* last = nullptr;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const Target& target = targets[t];
      const std::string key =
          KeyOf(part_, target.place, target.version, target.source);
      const bool near = last != nullptr && last->place == target.place &&
                        last->version == target.version &&
                        target.source - last->source < kNearRecords;
      if (near) {
        while (scan->Valid() && scan->key() < key) scan->Next();
      } else {
        if (!scan.has_value() || last == nullptr ||
            last->place != target.place || last->version != target.version) {
          const schema::KeyRange range =
              schema::BlocksOfVersion(target.version);
          CKPTREE_ASSIGN_OR_RETURN(
              scan, database_.Scan(target.place, range.begin, range.end));
        }
        scan->Seek(key);
      }
      last = &target;
      if (!scan->Valid() || scan->key() != key) {
        CKPTREE_RETURN_IF_ERROR(scan->status());
        return Missing(target.place, key);
      }
      CKPTREE_RETURN_IF_ERROR(take(target, key, scan->value()));
    }
    return absl::OkStatus();
  }

 private:
  const kv::Database& database_;
  const std::uint16_t part_;
};

// All of them, in the order that they stand in.
absl::StatusOr<std::vector<Target>> TargetsOf(
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals) {
  std::vector<Target> targets;
  targets.reserve(ordinals.size());
  for (std::size_t i = 0; i < ordinals.size(); ++i) {
    if (ordinals[i] >= map.size()) {
      return absl::DataLossError(absl::StrFormat(
          "leaf %d of a map of %d leaves", ordinals[i], map.size()));
    }
    const schema::MapRun run = map.At(ordinals[i]);
    targets.push_back({run.place, run.version, run.source, i});
  }
  const auto before = [](const Target& a, const Target& b) {
    return a.order() < b.order();
  };
  if (!std::is_sorted(targets.begin(), targets.end(), before)) {
    std::sort(targets.begin(), targets.end(), before);
  }
  return targets;
}

// Calls take(target, record, its bytes as they are stored) for each, by several
// threads at once.
template <typename Take>
absl::Status ReadTargets(const kv::Database& database, std::uint16_t part,
                         const schema::LeafMap& map,
                         std::span<const std::uint32_t> ordinals, bool here,
                         Take take) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<Target> targets,
                           TargetsOf(map, ordinals));
  const auto decode = [&take](const Target& target, std::string_view key,
                              std::string_view value) -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(schema::LeafRecord record,
                             Decode(target.place, key, value));
    take(target, std::move(record), value.size());
    return absl::OkStatus();
  };
  if (here || targets.size() <= kBatch) {
    return BatchReader(database, part).Read(targets, decode);
  }
  const std::size_t batches = (targets.size() + kBatch - 1) / kBatch;
  FirstError error;
  ForEach(0, batches, [&](std::size_t b) {
    const std::size_t begin = b * kBatch;
    const std::size_t count = std::min(kBatch, targets.size() - begin);
    error.Note(BatchReader(database, part)
                   .Read(std::span<const Target>(targets).subspan(begin, count),
                         decode));
  });
  return error.status();
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const BaseLeaf>>> ReadLeaves(
    const kv::Database& database, std::uint16_t part,
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals) {
  std::vector<std::shared_ptr<const BaseLeaf>> result(ordinals.size());
  CKPTREE_RETURN_IF_ERROR(ReadTargets(
      database, part, map, ordinals, /*here=*/false,
      [&result](const Target& target, schema::LeafRecord record,
                std::size_t encoded_bytes) {
        auto leaf = std::make_shared<BaseLeaf>();
        leaf->encoded_bytes = static_cast<std::uint32_t>(encoded_bytes);
        leaf->place = target.place;
        leaf->version = target.version;
        leaf->source = target.source;
        leaf->value_digest = schema::ValueDigest(record);
        leaf->record = std::move(record);
        result[target.index] = std::move(leaf);
      }));
  return result;
}

absl::StatusOr<std::vector<schema::LeafRecord>> ReadRecords(
    const kv::Database& database, std::uint16_t part,
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals,
    bool here) {
  std::vector<schema::LeafRecord> result(ordinals.size());
  CKPTREE_RETURN_IF_ERROR(ReadTargets(
      database, part, map, ordinals, here,
      [&result](const Target& target, schema::LeafRecord record, std::size_t) {
        result[target.index] = std::move(record);
      }));
  return result;
}

absl::Status VisitRecords(
    const kv::Database& database, std::uint16_t part,
    const schema::LeafMap& map, std::span<const std::uint32_t> ordinals,
    absl::FunctionRef<void(std::size_t at, const schema::LeafRecord& record)>
        take) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<Target> targets,
                           TargetsOf(map, ordinals));
  schema::LeafRecord record;
  return BatchReader(database, part)
      .Read(targets,
            [&](const Target& target, std::string_view key,
                std::string_view value) -> absl::Status {
              const absl::Status status =
                  schema::DecodeLeafRecordInto(value, &record);
              if (!status.ok()) return AtKey(target.place, key, status);
              take(target.index, record);
              return absl::OkStatus();
            });
}

void ReadEach(
    const kv::Database& database, std::span<const LeafPlace> leaves,
    absl::FunctionRef<void(std::size_t at, schema::LeafRecord* record)> take) {
  std::vector<std::string> keys;  // Of those in `small`.
  std::vector<std::size_t> places;
  keys.reserve(leaves.size());
  places.reserve(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const schema::MapRun& run = leaves[i].run;
    if (run.place != schema::Space::kSmall) continue;
    keys.push_back(KeyOf(leaves[i].part, run.place, run.version, run.source));
    places.push_back(i);
  }
  std::vector<bool> taken(leaves.size());
  schema::LeafRecord record;
  database.ReadWritten(schema::Space::kSmall, keys,
                       [&](std::size_t k, std::string_view value) {
                         if (!schema::DecodeLeafRecordInto(value, &record).ok())
                           return;
                         taken[places[k]] = true;
                         take(places[k], &record);
                       });
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (taken[i]) continue;
    auto read = ReadLeaf(database, leaves[i].part, leaves[i].run);
    if (read.ok()) take(i, &*read);
  }
}

absl::StatusOr<schema::LeafRecord> ReadLeaf(const kv::Database& database,
                                            std::uint16_t part,
                                            const schema::MapRun& run) {
  const std::string key = KeyOf(part, run.place, run.version, run.source);
  if (const auto straight = database.ReadWritten(run.place, key)) {
    // Else the database says what is wrong with it.
    auto record = schema::DecodeLeafRecord(*straight);
    if (record.ok()) return record;
  }
  CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> value,
                           database.Get(run.place, key));
  if (!value.has_value()) return Missing(run.place, key);
  return Decode(run.place, key, *value);
}

}  // namespace ckptree::internal
