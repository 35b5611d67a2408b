// SPDX-License-Identifier: Apache-2.0

// Fuzzes leaf records, leaf maps and dead lists.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "schema/dead_list.h"
#include "schema/envelope.h"
#include "schema/leaf_map.h"
#include "schema/leaf_record.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/stored_record.h"

namespace ckptree::fuzz {
namespace {

constexpr std::uint8_t kLeafMap = 16;  // After the kinds of records.

std::string EncodeLeaf(const schema::LeafRecord& record) {
  std::string out;
  schema::EncodeLeafRecord(record, &out);
  return out;
}

void FuzzLeaf(std::string_view bytes) {
  RequireRoundTrip(bytes, EncodeLeaf, schema::DecodeLeafRecord);
  const auto record = schema::DecodeLeafRecord(bytes);
  if (!record.ok()) return;
  const auto again = schema::DecodeLeafRecord(EncodeLeaf(*record));
  Require(schema::ValueDigest(*record) == schema::ValueDigest(*again),
          "a record written again has the same value");
  Statistics all;
  for (const Statistics& part : record->statistics) all.Merge(part);
}

// A map has one coding, and no envelope.
void FuzzMap(std::string_view bytes) {
  const absl::StatusOr<schema::LeafMap> map = schema::DecodeLeafMap(bytes);
  if (!map.ok()) {
    Require(absl::IsDataLoss(map.status()), "a bad map is damage");
    return;
  }
  Require(schema::EncodeLeafMap(*map) == bytes, "a map has one coding");
  Require(map->SourceCount() <= map->runs().size(), "sources are of runs");
  for (const schema::MapRun& run : map->runs()) {
    const std::uint32_t last = run.first + run.count - 1;
    Require(map->At(last).source == run.source + run.count - 1,
            "the last leaf of a run has the last record");
  }
}

void FuzzDead(std::string_view bytes) {
  RequireRoundTrip(bytes, schema::EncodeDeadList, schema::DecodeDeadList);
  const absl::StatusOr<schema::DeadList> list = schema::DecodeDeadList(bytes);
  if (!list.ok()) return;
  for (const schema::DeadPart& part : list->parts) {
    std::vector<schema::BlockRun> halves[2];
    for (std::size_t i = 0; i < part.runs.size(); ++i) {
      halves[i % 2].push_back(part.runs[i]);
    }
    Require(schema::MergeRuns(halves[0], halves[1]) == part.runs,
            "runs are the fewest that there can be");
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  using ckptree::schema::RecordKind;
  const std::string_view input = ckptree::fuzz::TextOf(data, size);
  if (input.empty()) return 0;
  if (data[0] == ckptree::fuzz::kLeafMap) {
    ckptree::fuzz::FuzzMap(input.substr(1));
    return 0;
  }
  const ckptree::fuzz::StoredRecord stored = ckptree::fuzz::RecordOf(input);
  if (stored.kind == static_cast<int>(RecordKind::kLeafRecord)) {
    ckptree::fuzz::FuzzLeaf(stored.bytes);
  } else if (stored.kind == static_cast<int>(RecordKind::kDeadList)) {
    ckptree::fuzz::FuzzDead(stored.bytes);
  }
  return 0;
}
