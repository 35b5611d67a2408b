// SPDX-License-Identifier: Apache-2.0

// One valid value of every record kind, and how to decode each.

#ifndef CKPTREE_TESTS_SCHEMA_SAMPLES_H_
#define CKPTREE_TESTS_SCHEMA_SAMPLES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/path.h"
#include "schema/dead_list.h"
#include "schema/envelope.h"
#include "schema/leaf_record.h"
#include "schema/part_handoff.h"
#include "schema/rank_message.h"
#include "schema/remote_record.h"
#include "schema/segment_record.h"
#include "schema/step_record.h"
#include "schema/store_record.h"
#include "schema/store_request.h"
#include "schema/tree.h"

namespace ckptree::schema {

inline std::string Encoded(const LeafRecord& record) {
  std::string out;
  EncodeLeafRecord(record, &out);
  return out;
}

inline Statistics SampleStatistics() {
  return {24, 1, 1, 2, -1.5, 2.5, 3.0, 12.25};
}

// A float32 array of 5 x 3 in two chunks of up to 3 rows.
inline LeafRecord SampleLeaf() {
  LeafRecord record;
  record.since_version = 7;
  record.since_step = 100;
  record.byte_length = 60;
  record.boxes = {{{0, 0}, {5, 3}, {3, 3}}};
  ChunkRef chunk;
  chunk.version = 7;
  chunk.n = BlockNumber(0, 1);
  chunk.length = 36;
  chunk.block_length = 36;
  chunk.digest = base::DigestOf("first");
  record.chunks.push_back(chunk);
  chunk.n = BlockNumber(0, 2);
  chunk.length = 24;
  chunk.block_length = 24;
  chunk.digest = base::DigestOf("second");
  record.chunks.push_back(chunk);
  record.statistics = {{9, 0, 0, 1, -1, 1, 0, 8}, {6, 1, 1, 0, 2, 3, 10, 26}};
  return record;
}

inline LeafRecord InlineLeaf() {
  LeafRecord record;
  record.since_version = 1;
  record.since_step = -5;
  record.is_inline = true;
  record.inline_value = std::string("\x2a\0\0\0\0\0\0\0", 8);
  record.byte_length = 8;
  return record;
}

inline LeafMap SampleMap() {
  LeafMap map;
  map.AppendRun(Space::kLeaves, 7, 0, 100);
  map.Append(Space::kSmall, 9, 100);
  map.AppendRun(Space::kLeaves, 7, 101, 27);
  return map;
}

inline StepRecord SampleStep() {
  StepRecord record;
  record.version = 9;
  record.base = 7;
  record.branch = 2;
  record.step = -12;
  record.parts = {{0, base::DigestOf("tree 0"), PackedLeafMap(SampleMap())},
                  {3, base::DigestOf("tree 3"), PackedLeafMap()}};
  record.begun_ns = 1'700'000'000'000'000'000;
  record.staged_ns = record.begun_ns + 5;
  record.committed_ns = record.begun_ns + 9;
  record.metrics = {{"loss", 0.25}, {"accuracy", 0.5}};
  record.leaf_count = 128;
  record.changed_leaves = 1;
  record.logical_bytes = 1 << 20;
  record.new_bytes = 4096;
  record.nan_count = 3;
  record.inf_count = 1;
  record.nonfinite_leaves = 1;
  record.unknown_leaves = 2;
  record.digest = base::DigestOf("step");
  record.saved_by = "0.1.0";
  record.note = "a note";
  return record;
}

inline StepMeta SampleMeta() {
  StepMeta meta;
  meta.parts = {{1, base::DigestOf("tree 1"), PackedLeafMap(SampleMap())}};
  meta.items = {{"params", ItemKind::kTree}, {"config", ItemKind::kJson}};
  meta.custom_metadata = "{\"a\":1}";
  meta.lineage = {{"host", "h"}, {"pid", "12"}};
  return meta;
}

inline std::vector<TreeEntry> SampleEntries() {
  const auto entry = [](Path path, EntryKind kind) {
    TreeEntry made;
    made.path = path.Encode();
    made.kind = kind;
    return made;
  };
  std::vector<TreeEntry> entries;
  entries.push_back(entry(Path().Key("empty"), EntryKind::kDict));
  entries.push_back(entry(Path().Key("opt"), EntryKind::kNamedTuple));
  entries.back().tag = "Adam(mu,nu)";
  const auto moment = [](const char* name) {
    return Path().Key("opt").Attribute(name);
  };
  entries.push_back(entry(moment("mu"), EntryKind::kArray));
  entries.back().dtype = DType::kFloat32;
  entries.back().shape = {128, 256};
  entries.push_back(entry(moment("nu"), EntryKind::kArray));
  entries.back().dtype = DType::kInt4;
  entries.back().packed = true;
  entries.back().shape = {7};
  entries.push_back(entry(Path().Key("rng"), EntryKind::kArray));
  entries.back().dtype = DType::kUint32;
  entries.back().tag = "prng:threefry2x32";
  entries.back().shape = {2};
  entries.push_back(entry(Path().Key("step"), EntryKind::kInt));
  entries.push_back(entry(Path().Key("tied"), EntryKind::kTie));
  entries.back().tie_to = Path().Key("opt").Attribute("mu").Encode();
  return entries;
}

inline TreeRoot SampleRoot() {
  TreeRoot root;
  root.pages = {{base::DigestOf("page 0"), Path().Key("a").Encode(), 0, 512},
                {base::DigestOf("page 1"), Path().Key("b").Encode(), 500, 12}};
  root.leaf_count = 510;
  root.entry_count = 524;
  return root;
}

inline DeadList SampleDead() {
  DeadList list;
  list.branch = 1;
  list.prev = 8;
  list.parts = {{0,
                 {{BlockKind::kLeafRecord, Space::kSmall, 8, 1, 4, 400},
                  {BlockKind::kChunk, Space::kChunks, 7, 1, 4, 16 << 20},
                  {BlockKind::kChunk, Space::kChunks, 7, 6, 1, 77}}},
                {2, {{BlockKind::kLeafRecord, Space::kLeaves, 8, 3, 1, 100}}}};
  return list;
}

inline SegmentRow SampleRow() {
  SegmentRow row{1, 9, 8, 1000};
  row.dead = {{1, 2}, {5, 3}};
  row.dead_bytes = 600;
  row.died_at = 12;
  row.damaged = true;
  return row;
}

inline SegmentTable SampleTable() {
  TableSlice whole;
  whole.path = base::DigestOf("path");
  whole.start = {0, 0};
  whole.shape = {3, 3};
  whole.length = 36;
  whole.digest = base::DigestOf("first");
  TableSlice slice;
  slice.path = base::DigestOf("other");
  slice.offset = 8;
  slice.length = 20;
  slice.digest = base::DigestOf("slice");
  return {{{BlockNumber(3, 1), {whole}}, {BlockNumber(3, 4), {slice, whole}}}};
}

// A record as stored and its decoder; `again` decodes and encodes.
inline StepMeta SampleMetaOfRanks() {
  StepMeta meta;
  meta.origins = {{0, "h0", 4711, 0x0123456789abcdef, 1 << 20, 4096, 1'000'000},
                  {3, "h1", 12, 5, 77, 0, 2'000'000},
                  {4, "h0", 4712, 6, 0, 0, 0}};
  return meta;
}

inline RankPlan SamplePlan() {
  RankPlan plan;
  plan.uuid = std::string(16, 'u');
  plan.incarnation = 2;
  plan.session = 5;
  plan.version = 9;
  plan.base = 7;
  plan.step = -12;
  plan.branch = 2;
  plan.branch_created_ns = 1'700'000'000'000'000'000;
  plan.attempt = "v9-0000000000000001";
  plan.world = 8;
  plan.options = "overwrite=0";
  return plan;
}

inline PartToken SampleToken() {
  PartToken token;
  token.rank = 3;
  token.world = 8;
  token.attempt = "v9-0000000000000001";
  token.session = 5;
  token.nonce = 0x0123456789abcdef;
  token.file_bytes = 100'000;
  token.file_digest = base::DigestOf("handoff");
  return token;
}

inline RankMail SampleMail() {
  RankMail mail;
  mail.kind = MailKind::kOutcome;
  mail.step = -12;
  mail.nth = 2;
  mail.rank = 3;
  mail.world = 8;
  mail.nonce = 7;
  mail.session = 5;
  mail.uuid = std::string(16, 'u');
  mail.job = "job";
  mail.host = "h0";
  mail.pid = 4711;
  mail.body = "a body";
  mail.code = 4;
  mail.text = "late";
  mail.ordinal = 9;
  mail.taken = {1, 2, 3};
  return mail;
}

inline StoreRequest SampleRequest() {
  StoreRequest request;
  request.kind = RequestKind::kDelete;
  request.id = "0123456789abcdef";
  request.host = "h0";
  request.pid = 4711;
  request.user = 1000;
  request.steps = {{"", 7, 9}, {"trial", 1200, 12}};
  request.tagged = true;
  return request;
}

inline StoreRequest SampleSetPolicy() {
  StoreRequest request;
  request.kind = RequestKind::kSetPolicy;
  request.id = "0123456789abcdef";
  request.name = "trial";
  request.policy = "latest(3)";
  return request;
}

inline StoreAnswer SampleAnswer() {
  StoreAnswer answer;
  answer.id = "0123456789abcdef";
  answer.code = 5;
  answer.text = "no step 7";
  answer.host = "h1";
  answer.pid = 12;
  answer.removed = {1, 2, 300};
  answer.versions = 2;
  answer.bytes_freed = 1 << 20;
  answer.kept = {{5, 6, "it is open"}};
  answer.damaged = {"a file"};
  answer.no_room = {"another", "a third"};
  return answer;
}

inline RankMail SampleTold() {
  RankMail mail;
  mail.kind = MailKind::kTold;
  mail.step = 300;
  mail.body = "a body";
  mail.code = 8;
  mail.text = "why not";
  mail.topic = "manager 1";
  mail.call = "save";
  return mail;
}

inline PartHandoff SampleHandoff() {
  const EncodedTree tree = EncodeTree(SampleEntries()).value();
  PartHandoff handoff;
  handoff.record = SampleStep();
  handoff.record.parts = {{0, tree.digest, PackedLeafMap(SampleMap())}};
  handoff.dead.prev = 7;
  handoff.dead.parts = {
      {0, {{BlockKind::kChunk, Space::kChunks, 7, 1, 4, 99}}}};
  handoff.tree_root = tree.root;
  handoff.tree_pages = {"a page"};
  handoff.segments = {
      {SegmentKey(9, 0, Space::kChunks, 0), EncodeSegmentRow(SampleRow())}};
  handoff.small = {{SmallKey(9, 0, BlockKind::kChunk, 1), "bytes"}};
  handoff.attempt = "v9-0000000000000001";
  handoff.session = 5;
  handoff.world = 8;
  handoff.nonce = 7;
  handoff.host = "h0";
  handoff.pid = 4711;
  handoff.nanoseconds = 1'000'000;
  handoff.layout.boxed = {{1, {{{0, 0}, {2, 3}, {}}, {{2, 0}, {2, 3}, {}}}},
                          {4, {{{}, {}, {}}}}};
  handoff.layout.replicated = std::string(32, 'r');
  handoff.layout.names = {"a", "b"};
  handoff.layout.ties = {{"tie", "target"}};
  handoff.layout.split = {11, base::DigestOf("names"), "\x81\x04", "\x02",
                          "\x08"};
  return handoff;
}

// The same of a rank that shares no folder with the coordinator.
inline PartHandoff SampleUploaded() {
  PartHandoff handoff = SampleHandoff();
  handoff.uploaded = {{{{9, 0, Space::kChunks, 0},
                        std::string(kRemoteIdBytes, 'a'),
                        4096,
                        base::DigestOf("segment"),
                        {{1, 10, 100}, {2, 120, 7}}},
                       3}};
  return handoff;
}

inline std::vector<RemoteRow> SampleRemoteRows() {
  return {{Space::kRecords, StoreKey(), "a record"},
          {Space::kSmall, SmallKey(9, 0, BlockKind::kChunk, 1), ""},
          {Space::kRecords, StepKey(0, 8), std::nullopt}};
}

inline RemoteCommit SampleRemoteCommit() {
  RemoteCommit commit;
  commit.shape = RemoteCommit::Shape::kShip;
  commit.uuid = std::string(16, 'u');
  commit.ordinal = 12;
  commit.before = base::DigestOf("before");
  commit.write_id = std::string(16, 'w');
  commit.era = 3;
  commit.local = std::string(16, 'l');
  commit.from = 20;
  commit.to = 22;
  commit.ceiling = 9;
  commit.made_ns = 123;
  commit.host = "h0";
  commit.pid = 4711;
  commit.rows = SampleRemoteRows();
  commit.rows_objects = {{std::string(16, 'r'), 77, base::DigestOf("rows")}};
  commit.segments = {{{9, 1, Space::kChunks, 5},
                      std::string(16, 's'),
                      4096,
                      base::DigestOf("segment")}};
  return commit;
}

inline RemoteCommit SampleRemoteOpen() {
  RemoteCommit open = SampleRemoteCommit();
  open.shape = RemoteCommit::Shape::kOpen;
  open.ordinal = 1;
  open.era = 1;
  open.before = {};
  open.from = open.to = 0;
  open.rows.clear();
  open.rows_objects.clear();
  open.segments.clear();
  return open;
}

inline RemoteRun SampleRemoteRun() {
  RemoteRun run;
  run.rows = {{Space::kRecords, StoreKey(), "a record"},
              {Space::kRecords, StepKey(0, 8), std::nullopt},
              {Space::kSmall, SmallKey(9, 0, BlockKind::kChunk, 1), ""}};
  run.segments = {{SampleRemoteCommit().segments[0], 3}};
  return run;
}

inline RemoteIndex SampleRemoteIndex() {
  RemoteIndex index;
  index.uuid = std::string(16, 'u');
  index.ordinal = 12;
  index.hash = base::DigestOf("commit");
  index.ceiling = 9;
  index.directories = {{std::string(16, 'l'), 22, 12, 12, "h0", 4711},
                       {std::string(16, 'm'), 0, 0, 0, "", 0}};
  index.runs = {{{{std::string(16, 'r'), 77, base::DigestOf("run")}, 3}}};
  index.newest = SampleRemoteRun();
  index.dead = {{"segment/aa/1-1-0-3-0-aa", 7}};
  index.rows_objects = {"rows/bb/1-bb"};
  return index;
}

inline FarSegment SampleFarSegment() {
  return {{SampleRemoteCommit().segments[0], 3}, "s3://bucket/run"};
}

struct Sample {
  RecordKind kind;
  std::string bytes;
  std::function<absl::Status(std::string_view)> decode;
  std::function<std::string(std::string_view)> again;
};

template <typename Encode, typename Decode>
Sample MakeSample(RecordKind kind, std::string bytes, Encode encode,
                  Decode decode) {
  return {kind, std::move(bytes),
          [decode](std::string_view in) { return decode(in).status(); },
          [encode, decode](std::string_view in) {
            return encode(decode(in).value());
          }};
}

inline std::vector<Sample> Samples() {
  using K = RecordKind;
  const StoreRecord store{std::string(16, 'u'), 0,           123, "0.1.0",
                          {"a-feature"},        {"another"}, {}};
  const SegmentHeader header{std::string(16, 'u'), 3, 7,          1,
                             Space::kChunks,       5, "attempt-1"};
  return {
      MakeSample(K::kStore, EncodeStoreRecord(store), EncodeStoreRecord,
                 DecodeStoreRecord),
      MakeSample(K::kStep, EncodeStepRecord(SampleStep()), EncodeStepRecord,
                 DecodeStepRecord),
      MakeSample(K::kStepMeta, EncodeStepMeta(SampleMeta()), EncodeStepMeta,
                 DecodeStepMeta),
      MakeSample(K::kStepMeta, EncodeStepMeta(SampleMetaOfRanks()),
                 EncodeStepMeta, DecodeStepMeta),
      MakeSample(K::kRankPlan, EncodeRankPlan(SamplePlan()), EncodeRankPlan,
                 DecodeRankPlan),
      MakeSample(K::kPartToken, EncodePartToken(SampleToken()), EncodePartToken,
                 DecodePartToken),
      MakeSample(K::kRankMail, EncodeRankMail(SampleMail()), EncodeRankMail,
                 DecodeRankMail),
      MakeSample(K::kStoreRequest, EncodeStoreRequest(SampleRequest()),
                 EncodeStoreRequest, DecodeStoreRequest),
      MakeSample(K::kStoreRequest, EncodeStoreRequest(SampleSetPolicy()),
                 EncodeStoreRequest, DecodeStoreRequest),
      MakeSample(K::kStoreAnswer, EncodeStoreAnswer(SampleAnswer()),
                 EncodeStoreAnswer, DecodeStoreAnswer),
      MakeSample(K::kPartHandoff, EncodePartHandoff(SampleHandoff()),
                 EncodePartHandoff, DecodePartHandoff),
      MakeSample(K::kPartHandoff, EncodePartHandoff(SampleUploaded()),
                 EncodePartHandoff, DecodePartHandoff),
      MakeSample(K::kRemoteStore,
                 EncodeRemoteStore({std::string(16, 'u'), "0.1.0"}),
                 EncodeRemoteStore, DecodeRemoteStore),
      MakeSample(K::kRemoteRows, EncodeRemoteRows(SampleRemoteRows()),
                 EncodeRemoteRows, DecodeRemoteRows),
      MakeSample(K::kRemoteCommit, EncodeRemoteCommit(SampleRemoteCommit()),
                 EncodeRemoteCommit, DecodeRemoteCommit),
      MakeSample(K::kRemoteCommit, EncodeRemoteCommit(SampleRemoteOpen()),
                 EncodeRemoteCommit, DecodeRemoteCommit),
      MakeSample(K::kRemoteRun, EncodeRemoteRun(SampleRemoteRun()),
                 EncodeRemoteRun, DecodeRemoteRun),
      MakeSample(K::kRemoteIndex, EncodeRemoteIndex(SampleRemoteIndex()),
                 EncodeRemoteIndex, DecodeRemoteIndex),
      MakeSample(K::kFarSegment, EncodeFarSegment(SampleFarSegment()),
                 EncodeFarSegment, DecodeFarSegment),
      MakeSample(K::kTreeRoot, EncodeTreeRoot(SampleRoot()), EncodeTreeRoot,
                 DecodeTreeRoot),
      MakeSample(K::kTreePage, EncodeTreePage({SampleEntries()}),
                 EncodeTreePage, DecodeTreePage),
      MakeSample(K::kDeadList, EncodeDeadList(SampleDead()), EncodeDeadList,
                 DecodeDeadList),
      MakeSample(K::kSegmentRow, EncodeSegmentRow(SampleRow()),
                 EncodeSegmentRow, DecodeSegmentRow),
      MakeSample(K::kBranch,
                 EncodeBranchRecord({9, "lr-small", 0, -3, 7, 1234}),
                 EncodeBranchRecord, DecodeBranchRecord),
      MakeSample(
          K::kBranchSettings,
          EncodeBranchSettings({"latest(3)", "0.1.0", 77, "{\"a\":1}", true}),
          EncodeBranchSettings, DecodeBranchSettings),
      MakeSample(K::kTag, EncodeTagRecord({1, -2, 3, 4}), EncodeTagRecord,
                 DecodeTagRecord),
      MakeSample(K::kPin, EncodePinRecord({1, -2, 4}), EncodePinRecord,
                 DecodePinRecord),
      MakeSample(K::kLeafRecord, Encoded(SampleLeaf()), Encoded,
                 DecodeLeafRecord),
      MakeSample(K::kLeafRecord, Encoded(InlineLeaf()), Encoded,
                 DecodeLeafRecord),
      MakeSample(K::kSmallHeader,
                 EncodeSmallHeader({4, base::DigestOf("blocks")}),
                 EncodeSmallHeader, DecodeSmallHeader),
      MakeSample(K::kSegmentHeader, EncodeSegmentHeader(header),
                 EncodeSegmentHeader, DecodeSegmentHeader),
      MakeSample(K::kSegmentTable, EncodeSegmentTable(SampleTable()),
                 EncodeSegmentTable, DecodeSegmentTable),
  };
}

}  // namespace ckptree::schema

#endif  // CKPTREE_TESTS_SCHEMA_SAMPLES_H_
