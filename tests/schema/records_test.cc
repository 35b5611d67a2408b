// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/envelope.h"
#include "schema/leaf_map.h"
#include "schema/limits.h"
#include "tests/schema/samples.h"

namespace ckptree::schema {
namespace {

using ::testing::HasSubstr;

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

TEST(EnvelopeTest, GoldenBytes) {
  EXPECT_EQ(Hex(Envelope(RecordKind::kBranch, "ab")),
            "636b0801000000028b2a67c3154e5ca26162");
  EXPECT_EQ(
      *OpenEnvelope(RecordKind::kBranch, Envelope(RecordKind::kBranch, "ab")),
      "ab");
  EXPECT_EQ(
      *OpenEnvelope(RecordKind::kBranch, Envelope(RecordKind::kBranch, "")),
      "");
}

TEST(EnvelopeTest, LongBodiesHaveTheChecksumOfThePieces) {
  for (const std::size_t size : {511u, 512u, 513u, 100'000u}) {
    const std::string body(size, 'x');
    const std::string bytes = Envelope(RecordKind::kStepMeta, body);
    EXPECT_EQ(*OpenEnvelope(RecordKind::kStepMeta, bytes), body);
    std::uint64_t stored = 0;
    for (int i = 8; i < 16; ++i) {
      stored = stored << 8 |
               static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
    }
    EXPECT_EQ(stored, base::ChecksumOf(bytes.substr(0, 8) + body));
  }
}

TEST(RecordsTest, RequestsThatCannotBeAreRefused) {
  const auto refuse = [](auto change, std::string_view why) {
    StoreRequest request = SampleRequest();
    change(&request);
    const absl::Status status =
        DecodeStoreRequest(EncodeStoreRequest(request)).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(why)));
  };
  using Kind = RequestKind;
  refuse([](StoreRequest* r) { r->kind = Kind{0}; }, "not known");
  refuse([](StoreRequest* r) { r->kind = Kind{11}; }, "not known");
  refuse([](StoreRequest* r) { r->id.clear(); }, "id");
  refuse([](StoreRequest* r) { r->host = std::string(257, 'h'); }, "host");
  refuse([](StoreRequest* r) { r->steps.clear(); }, "number of steps");
  refuse(
      [](StoreRequest* r) {
        r->steps.resize(65537, {"", 1, 1});
      },
      "number of steps");
  refuse([](StoreRequest* r) { r->kind = Kind::kTag; }, "number of steps");
  refuse([](StoreRequest* r) { r->kind = Kind::kCollect; }, "number of steps");
  refuse([](StoreRequest* r) { r->steps[0].step = -1; }, "a step");
  refuse([](StoreRequest* r) { r->steps[0].version = 0; }, "a step");
  refuse([](StoreRequest* r) { r->steps[0].branch = std::string(129, 'b'); },
         "a step");
  refuse([](StoreRequest* r) { r->name = std::string(129, 'n'); }, "name");
  refuse([](StoreRequest* r) { r->steps = {}, r->kind = Kind::kUntag; },
         "name");
  refuse([](StoreRequest* r) { r->policy = std::string(16385, 'p'); },
         "policy");
  refuse([](StoreRequest* r) { r->min_dead_fraction = 1.5; }, "fraction");
  refuse([](StoreRequest* r) { r->min_dead_fraction = std::nan(""); },
         "fraction");
  EXPECT_TRUE(absl::IsDataLoss(
      DecodeStoreRequest(std::string(kMaxRequestBytes + 1, 'x')).status()));

  StoreAnswer answer = SampleAnswer();
  answer.code = 17;
  EXPECT_TRUE(
      absl::IsDataLoss(DecodeStoreAnswer(EncodeStoreAnswer(answer)).status()));
  answer = SampleAnswer();
  answer.id = "short";
  EXPECT_TRUE(
      absl::IsDataLoss(DecodeStoreAnswer(EncodeStoreAnswer(answer)).status()));
}

// `bytes` with another byte at `at` and the checksum that fits.
std::string Resealed(std::string bytes, std::size_t at, char value) {
  bytes[at] = value;
  const std::uint64_t sum =
      base::ChecksumOf(bytes.substr(0, 8) + bytes.substr(16));
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[8 + i] = static_cast<char>(sum >> (56 - 8 * i));
  }
  return bytes;
}

TEST(EnvelopeTest, NewerFormatIsNamedWithBothNumbers) {
  const std::string bytes =
      Resealed(Envelope(RecordKind::kBranch, "ab"), 3, '\x05');
  const absl::Status status = OpenEnvelope(RecordKind::kBranch, bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its format is 5, this engine reads up to 1"));
}

TEST(EnvelopeTest, AnotherKindOrLengthIsNamed) {
  const std::string bytes = Envelope(RecordKind::kBranch, "ab");
  EXPECT_THAT(
      std::string(OpenEnvelope(RecordKind::kTag, bytes).status().message()),
      HasSubstr("tag record: a branch record stands in its place"));
  EXPECT_THAT(
      std::string(OpenEnvelope(RecordKind::kBranch, Resealed(bytes, 7, '\x03'))
                      .status()
                      .message()),
      HasSubstr("length"));
}

TEST(RecordsTest, GoldenBytes) {
  EXPECT_EQ(Hex(Encoded(SampleLeaf())),
            "636b0b010000008cd431361fa7870842080710c801183c280230013a06000005"
            "0303034220c9cbc8166703d7b011d9552b2b5188a5885b08846244feb4e13dcb"
            "4be2a530714a0107520202025a022418720809000001060101007a4000000000"
            "0000f0bf000000000000f03f0000000000000000000000000000204000000000"
            "00000040000000000000084000000000000024400000000000003a40");
  EXPECT_EQ(Hex(Encoded(InlineLeaf())),
            "636b0b0100000010869ba58a1a770ff808011009180822082a00000000000000");
  EXPECT_EQ(Hex(EncodeLeafMap(SampleMap())), "03c8010700030900360700");
  EXPECT_EQ(Hex(EncodeTreePage({SampleEntries()})),
            "636b050100000086119d7039a00aa2d50a072124010101034012070002060802"
            "02021a070804050304050522220121656d707479006f70740003216d75006e75"
            "00726e6700737465700074696564002a0312840e32030201013a068001800207"
            "02420201044a020001520b4164616d286d752c6e7529521170726e673a746872"
            "6565667279327833325a0b01216f70740003216d7500");
  EXPECT_EQ(Hex(EncodeDeadList(SampleDead())),
            "636b060100000036ad7b004855f1cc3c080110081a1d12031123231a03080707"
            "22030101062a0304040132079003808080084d1a1108021201121a0108220103"
            "2a0101320164");
  EXPECT_EQ(Hex(EncodeSegmentRow(SampleRow())),
            "636b0701000000181fb448b142b4dc7608011009180820e8072a020104320202"
            "0338d804400c4801");
  EXPECT_EQ(Hex(EncodeSegmentTable(SampleTable())),
            "636b0e01000000882883cc0ce6e2a2e50a058180801803120201021a308eee05"
            "12dc38f041c0e87d81b07e33f3f1a1ded183edeef2cabd112d58b4f1e98eee05"
            "12dc38f041c0e87d81b07e33f32230c9cbc8166703d7b011d9552b2b5188a54a"
            "b13d33823a2c3a74749cb852a7488fc9cbc8166703d7b011d9552b2b5188a52a"
            "032414243a030008004a0302000252080000030300000303");
  // The longer ones by their digest.
  EXPECT_EQ(base::DigestOf(EncodeStepRecord(SampleStep())).Hex(),
            "c1aa505eba863e5996140ecd672017a1");
  EXPECT_EQ(base::DigestOf(EncodeStepMeta(SampleMeta())).Hex(),
            "37008d609d3a35a2822ce661b3d41765");
  EXPECT_EQ(base::DigestOf(EncodeStepMeta(SampleMetaOfRanks())).Hex(),
            "1e0819eb2cd73fdb8b628178c8cb6b71");
  EXPECT_EQ(base::DigestOf(EncodeRankPlan(SamplePlan())).Hex(),
            "a33e329d3e94f2943e72052bcfc5fa0f");
  EXPECT_EQ(base::DigestOf(EncodePartToken(SampleToken())).Hex(),
            "30dbb8fbed03989b061c9186ee3a6570");
  EXPECT_EQ(base::DigestOf(EncodeRankMail(SampleMail())).Hex(),
            "d2b625d36db7b887813b6db21568e3bb");
  EXPECT_EQ(Hex(EncodeRankMail(SampleTold())),
            "636b13010000002b9a46320bc7d0c646080b10d80462066120626f6479680872"
            "07776879206e6f748a01096d616e61676572203192010473617665");
  EXPECT_EQ(Hex(EncodeStoreRequest(SampleRequest())),
            "636b14010000003292e972628ea6c66c08051210303132333435363738396162"
            "636465661a02683020e72428e80732003205747269616c3a030ee0124202090c"
            "6001");
  EXPECT_EQ(Hex(EncodeStoreAnswer(SampleAnswer())),
            "636b150100000063342ff6ed7188c81b0a103031323334353637383961626364"
            "656610051a096e6f2073746570203722026831280c32040204d8043802488080"
            "408a01010a920101069a010a6974206973206f70656ea20106612066696c65aa"
            "0107616e6f74686572aa010761207468697264");
  EXPECT_EQ(base::DigestOf(EncodePartHandoff(SampleHandoff())).Hex(),
            "edf53e0a3ede5a0f88f7934236b7a63c");
  EXPECT_EQ(base::DigestOf(EncodeTreeRoot(SampleRoot())).Hex(),
            "a74c37f71c7cb8b245b80b6b15042dd7");
  EXPECT_EQ(ValueDigest(SampleLeaf()).Hex(),
            "b55fc535b3cbf34fa37c7c24bf14ee38");
}

TEST(RecordsTest, MailIsOfAKnownKind) {
  RankMail mail = SampleTold();
  for (int kind = 1; kind <= 13; ++kind) {
    mail.kind = static_cast<MailKind>(kind);
    const auto read = DecodeRankMail(EncodeRankMail(mail));
    ASSERT_TRUE(read.ok()) << kind;
    EXPECT_EQ(*read, mail);
  }
  for (const int kind : {0, 14}) {
    mail.kind = static_cast<MailKind>(kind);
    const absl::Status status = DecodeRankMail(EncodeRankMail(mail)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("kind is not known"));
  }
}

TEST(RecordsTest, EveryKindRoundTrips) {
  for (const Sample& sample : Samples()) {
    SCOPED_TRACE(std::string(Name(sample.kind)));
    ASSERT_TRUE(sample.decode(sample.bytes).ok())
        << sample.decode(sample.bytes);
    EXPECT_EQ(Hex(sample.again(sample.bytes)), Hex(sample.bytes));
  }
  EXPECT_EQ(*DecodeLeafRecord(Encoded(SampleLeaf())), SampleLeaf());
  EXPECT_EQ(*DecodeLeafRecord(Encoded(InlineLeaf())), InlineLeaf());
  EXPECT_EQ(*DecodeStepRecord(EncodeStepRecord(SampleStep())), SampleStep());
  EXPECT_EQ(*DecodeStepMeta(EncodeStepMeta(SampleMeta())), SampleMeta());
  EXPECT_EQ(*DecodeSegmentRow(EncodeSegmentRow(SampleRow())), SampleRow());
  EXPECT_EQ(*DecodeDeadList(EncodeDeadList(SampleDead())), SampleDead());
  EXPECT_EQ(*DecodeSegmentTable(EncodeSegmentTable(SampleTable())),
            SampleTable());
  EXPECT_EQ(*DecodeLeafMap(EncodeLeafMap(SampleMap())), SampleMap());
}

// The record of a leaf with very many chunks is longer than a chunk may be.
TEST(RecordsTest, ATableNamesRecordsOfAnyLength) {
  SegmentTable table = SampleTable();
  TableSlice& record = table.entries.front().slices.front();
  record.start.clear();
  record.shape.clear();
  record.length = static_cast<std::uint32_t>(kMaxRecordBytes);
  EXPECT_EQ(
      DecodeSegmentTable(EncodeSegmentTable(table)).value_or(SegmentTable()),
      table);
  ++record.length;
  EXPECT_EQ(DecodeSegmentTable(EncodeSegmentTable(table)).status().code(),
            absl::StatusCode::kDataLoss);
  record.start = {0};
  record.shape = {1};
  record.length = static_cast<std::uint32_t>(kMaxChunkBytes) + 1;
  EXPECT_EQ(DecodeSegmentTable(EncodeSegmentTable(table)).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(RecordsTest, EveryDamagedBitOrLengthIsAnError) {
  for (const Sample& sample : Samples()) {
    SCOPED_TRACE(std::string(Name(sample.kind)));
    for (std::size_t at = 0; at < sample.bytes.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = sample.bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
        EXPECT_EQ(sample.decode(damaged).code(), absl::StatusCode::kDataLoss)
            << at << " " << bit;
      }
      EXPECT_EQ(sample.decode(sample.bytes.substr(0, at)).code(),
                absl::StatusCode::kDataLoss);
    }
    EXPECT_EQ(sample.decode(sample.bytes + '\0').code(),
              absl::StatusCode::kDataLoss);
    const absl::Status status = sample.decode("");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(Name(sample.kind))));
  }
}

TEST(RecordsTest, NoKindPassesForAnother) {
  const std::vector<Sample> samples = Samples();
  for (const Sample& a : samples) {
    for (const Sample& b : samples) {
      if (a.kind == b.kind) continue;
      EXPECT_FALSE(a.decode(b.bytes).ok());
    }
  }
}

// What damage looks like to a decoder when the checksum fits: it must refuse
// it, or read something that it can write and read again.
TEST(RecordsTest, ResealedDamageIsRefusedOrReadsAsSomethingValid) {
  constexpr unsigned kSeed = 3;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int refused = 0;
  for (const Sample& sample : Samples()) {
    SCOPED_TRACE(std::string(Name(sample.kind)));
    for (int round = 0; round < 4000; ++round) {
      std::string body = sample.bytes.substr(kEnvelopeBytes);
      for (unsigned i = 0; i <= random() % 3; ++i) {
        const std::size_t at = random() % (body.size() + 1);
        switch (random() % 4) {
          case 0:
            body.insert(at, 1, static_cast<char>(random()));
            break;
          case 1:
            body.resize(at);
            break;
          default:
            if (at < body.size()) body[at] = static_cast<char>(random());
            break;
        }
      }
      const std::string bytes = Envelope(sample.kind, body);
      if (!sample.decode(bytes).ok()) {
        ++refused;
        continue;
      }
      const std::string again = sample.again(bytes);
      ASSERT_TRUE(sample.decode(again).ok())
          << sample.decode(again) << " " << Hex(bytes);
      EXPECT_EQ(Hex(sample.again(again)), Hex(again));
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(PartHandoffTest, NamesTheObjectsOfItsOwnSegmentsAlone) {
  const auto refused = [](auto change) {
    PartHandoff handoff = SampleUploaded();
    change(&handoff.uploaded);
    const absl::Status status =
        DecodePartHandoff(EncodePartHandoff(handoff)).status();
    return absl::IsDataLoss(status);
  };
  using Uploaded = std::vector<RemoteLiving>;
  EXPECT_FALSE(refused([](Uploaded*) {}));
  EXPECT_FALSE(refused([](Uploaded* all) { all->clear(); }));
  EXPECT_TRUE(refused([](Uploaded* all) { all->push_back(all->front()); }));
  EXPECT_TRUE(
      refused([](Uploaded* all) { all->front().segment.segment.part = 1; }));
  EXPECT_TRUE(
      refused([](Uploaded* all) { all->front().segment.segment.version = 8; }));
  EXPECT_TRUE(refused([](Uploaded* all) { all->front().era = 0; }));
  EXPECT_TRUE(refused([](Uploaded* all) { all->front().segment.bytes = 0; }));
}

TEST(PartHandoffTest, RefusesBitsOfNoLeaf) {
  const auto decoded = [](const SplitLeaves& split) {
    PartHandoff handoff = SampleHandoff();
    handoff.layout.split = split;
    return DecodePartHandoff(EncodePartHandoff(handoff)).status();
  };
  const base::Digest names = base::DigestOf("names");
  EXPECT_TRUE(decoded({}).ok());
  EXPECT_TRUE(decoded({8, names, "\x80", "", ""}).ok());
  EXPECT_TRUE(decoded({9, names, std::string("\0\1", 2), "\x01", ""}).ok());
  EXPECT_TRUE(decoded({8, names, "", "", "\x80"}).ok());
  for (const SplitLeaves& split :
       std::vector<SplitLeaves>{{7, names, "\x80", "", ""},
                                {7, names, "", "", "\x80"},
                                {9, names, "", std::string("\0\2", 2), ""},
                                {8, names, "\x01\x01", "", ""},
                                {8, names, "", std::string(1, '\0'), ""},
                                {kMaxLeaves + 1, names, "", "", ""}}) {
    const absl::Status status = decoded(split);
    EXPECT_TRUE(absl::IsDataLoss(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("among others"))
        << split.count;
  }
}

// A field of its own: who does not know it reads the rest as it always was, and
// its absence is a zero.
TEST(StepRecordTest, LeavesOfUnknownHealthAreCountedAfterAllElse) {
  StepRecord record = SampleStep();
  const std::string counted = EncodeStepRecord(record);
  EXPECT_EQ(DecodeStepRecord(counted)->unknown_leaves, 2u);
  EXPECT_TRUE(counted.ends_with(std::string_view("\xa8\x01\x02", 3)));
  record.unknown_leaves = 0;
  const std::string uncounted = EncodeStepRecord(record);
  EXPECT_EQ(uncounted.size() + 3, counted.size());
  // As engines that did not count them wrote it.
  EXPECT_EQ(base::DigestOf(uncounted).Hex(),
            "2a311922af3325ba225ffd0069df0aca");
  EXPECT_EQ(DecodeStepRecord(uncounted)->unknown_leaves, 0u);
  record.unknown_leaves = record.leaf_count + 1;
  EXPECT_FALSE(Validate(record).ok());
}

TEST(StepRecordTest, NonFiniteMetricsKeepTheirBits) {
  StepRecord record = SampleStep();
  record.metrics = {{"a", std::numeric_limits<double>::quiet_NaN()},
                    {"b", -0.0},
                    {"c", std::numeric_limits<double>::infinity()}};
  const auto decoded = DecodeStepRecord(EncodeStepRecord(record));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(std::isnan(decoded->metrics[0].second));
  EXPECT_TRUE(std::signbit(decoded->metrics[1].second));
  EXPECT_TRUE(std::isinf(decoded->metrics[2].second));
}

TEST(StepRecordTest, NamesWhatACallerMayNotSay) {
  const auto refuse = [](auto change, const char* fault) {
    StepRecord record = SampleStep();
    change(&record);
    const absl::Status status = Validate(record);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault));
    const absl::Status decoded =
        DecodeStepRecord(EncodeStepRecord(record)).status();
    EXPECT_EQ(decoded.code(), absl::StatusCode::kDataLoss) << fault;
    EXPECT_THAT(std::string(decoded.message()), HasSubstr(fault));
  };
  EXPECT_TRUE(Validate(SampleStep()).ok());
  refuse(
      [](StepRecord* r) {
        r->version = 0;
        r->base = 0;
      },
      "version 0");
  refuse([](StepRecord* r) { r->base = r->version; }, "base");
  refuse([](StepRecord* r) { r->parts_in_meta = true; }, "parts both");
  refuse([](StepRecord* r) { r->metrics.resize(17, {"x", 1}); }, "17 metrics");
  refuse([](StepRecord* r) { r->metrics.push_back({"loss", 1}); }, "twice");
  refuse([](StepRecord* r) { r->metrics.push_back({"", 1}); }, "empty");
  refuse([](StepRecord* r) { r->metrics[0].first.assign(129, 'x'); },
         "at most 128");
  refuse([](StepRecord* r) { r->note.assign(513, 'x'); }, "note of 513 bytes");
  refuse([](StepRecord* r) { r->parts[1].part = 0; }, "does not ascend");
  refuse([](StepRecord* r) { r->changed_leaves = 129; }, "more leaves");
}

TEST(StepRecordTest, SixteenShortMetricsAndALongNoteFit) {
  StepRecord record = SampleStep();
  record.metrics.clear();
  for (int i = 0; i < 16; ++i) {
    record.metrics.emplace_back(std::string(64, static_cast<char>('a' + i)), i);
  }
  record.note.assign(kMaxNoteBytes - 300, 'n');
  EXPECT_TRUE(Validate(record).ok()) << Validate(record);
}

// What a caller may say of a step has room, whatever else the record says.
TEST(StepRecordTest, AllMetricsAndTheNoteFitBesideTheLargestNumbers) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  StepRecord record = SampleStep();
  record.version = kMost;
  record.base = kMost - 1;
  record.branch = std::numeric_limits<std::uint32_t>::max();
  record.step = std::numeric_limits<std::int64_t>::max();
  record.parts_in_meta = true;
  record.parts.clear();
  record.begun_ns = record.staged_ns = record.committed_ns = record.step;
  record.leaf_count = record.changed_leaves = kMaxLeaves;
  record.nonfinite_leaves = record.unknown_leaves = kMaxLeaves;
  record.logical_bytes = record.new_bytes = kMost;
  record.nan_count = record.inf_count = kMost;
  record.saved_by = "1000.1000.1000";
  // Few long names, as many short ones as there may be, and one of each.
  for (const std::size_t metrics : {0u, 1u, 9u, 15u, 16u}) {
    for (const std::size_t note : {std::size_t{0}, std::size_t{512}}) {
      record.note.assign(note, 'n');
      record.metrics.clear();
      std::size_t left = std::size_t{kMaxMetricsAndNoteBytes} - note;
      for (std::size_t i = 0; i < metrics; ++i) {
        const std::size_t of_each = left / (metrics - i);
        const std::size_t size = std::min<std::size_t>(
            of_each - std::size_t{kMetricBytes}, kMaxNameBytes);
        record.metrics.emplace_back(
            std::string(size, static_cast<char>('a' + i)), -1.5);
        left -= size + std::size_t{kMetricBytes};
      }
      EXPECT_EQ(Validate(record), absl::OkStatus()) << metrics << " " << note;
    }
  }
}

TEST(StepMetaTest, RefusesUnknownItemsAndLargeMetadata) {
  StepMeta meta = SampleMeta();
  meta.items[0].second = static_cast<ItemKind>(9);
  EXPECT_FALSE(Validate(meta).ok());
  EXPECT_EQ(DecodeStepMeta(EncodeStepMeta(meta)).status().code(),
            absl::StatusCode::kDataLoss);
  meta = SampleMeta();
  meta.items[0].first = meta.items[1].first;
  EXPECT_FALSE(Validate(meta).ok());
  meta = SampleMeta();
  meta.custom_metadata.assign(kMaxCustomMetadataBytes, ' ');
  EXPECT_TRUE(Validate(meta).ok());
  meta.custom_metadata.push_back(' ');
  EXPECT_FALSE(Validate(meta).ok());
}

TEST(StepMetaTest, LargePartTablesMove) {
  StepRecord record = SampleStep();
  StepMeta meta;
  PlaceParts(&record, &meta);
  EXPECT_FALSE(record.parts_in_meta);
  EXPECT_TRUE(meta.parts.empty());
  for (std::uint16_t part = 4; part < 60; ++part) {
    record.parts.push_back(
        {part, base::DigestOf("tree"), PackedLeafMap(SampleMap())});
  }
  const std::vector<PartRecord> parts = record.parts;
  PlaceParts(&record, &meta);
  EXPECT_TRUE(record.parts_in_meta);
  EXPECT_TRUE(record.parts.empty());
  EXPECT_EQ(meta.parts, parts);
  EXPECT_TRUE(DecodeStepRecord(EncodeStepRecord(record)).ok());
  EXPECT_EQ(DecodeStepMeta(EncodeStepMeta(meta))->parts, parts);
}

TEST(StoreRecordTest, RefusesANewerFormatAndAShortUuid) {
  StoreRecord record{std::string(16, 'u'), 2, 0, "", {}, {}, {}};
  const absl::Status status =
      DecodeStoreRecord(EncodeStoreRecord(record)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 2"));
  record.format = 1;
  record.uuid.pop_back();
  EXPECT_EQ(DecodeStoreRecord(EncodeStoreRecord(record)).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(StatisticsTest, MergeIsOverAllElements) {
  Statistics a{3, 1, 0, 1, 0, 2, 2, 4};
  const Statistics none;
  Statistics merged = none;
  merged.Merge(a);
  merged.Merge({2, 0, 1, 0, -4, -4, -4, 16});
  EXPECT_EQ(merged, (Statistics{5, 1, 1, 1, -4, 2, -2, 20}));
  EXPECT_EQ(merged.finite(), 3u);
  EXPECT_DOUBLE_EQ(merged.mean(), -2.0 / 3);
  EXPECT_DOUBLE_EQ(merged.l2(), std::sqrt(20.0));
  EXPECT_DOUBLE_EQ(merged.std_dev(), std::sqrt(20.0 / 3 - 4.0 / 9));
  EXPECT_TRUE(std::isnan(none.mean()));
  EXPECT_TRUE(std::isnan(none.std_dev()));
  // Milliseconds since 1970: of the sums nothing is left but rounding.
  Statistics near;
  near.count = 3;
  near.min = 1.7e12 + 1;
  near.max = 1.7e12 + 4;
  for (const double value : {near.min, near.min + 1, near.max}) {
    near.sum += value;
    near.sum_of_squares += value * value;
  }
  EXPECT_TRUE(std::isnan(near.std_dev()));
  near.max = near.min;
  EXPECT_EQ(near.std_dev(), 0);
  EXPECT_FALSE((Statistics{1, 0, 0, 1, 0.0, 0, 0, 0}) ==
               (Statistics{1, 0, 0, 1, -0.0, 0, 0, 0}));
}

}  // namespace
}  // namespace ckptree::schema
