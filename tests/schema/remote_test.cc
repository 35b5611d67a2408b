// SPDX-License-Identifier: Apache-2.0

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schema/remote_record.h"
#include "tests/schema/samples.h"

namespace ckptree::schema {
namespace {

using ::testing::HasSubstr;

TEST(RemoteRecordTest, GoldenBytes) {
  EXPECT_EQ(
      base::DigestOf(EncodeRemoteStore({std::string(16, 'u'), "0.1.0"})).Hex(),
      "e6d3e3f693396ebbaf6765cd29722163");
  EXPECT_EQ(base::DigestOf(EncodeRemoteRows(SampleRemoteRows())).Hex(),
            "34f771d8505b6212a17807b49023f970");
  EXPECT_EQ(base::DigestOf(EncodeRemoteCommit(SampleRemoteCommit())).Hex(),
            "2ac61b415c923eb98d403158f82c70b6");
  EXPECT_EQ(base::DigestOf(EncodeRemoteCommit(SampleRemoteOpen())).Hex(),
            "182ecea30bb0392cbfa8c4e361e1f8fd");
  EXPECT_EQ(base::DigestOf(EncodeRemoteRun(SampleRemoteRun())).Hex(),
            "cd9b1d7216f430fc2b0bb706c69cf783");
  EXPECT_EQ(base::DigestOf(EncodeRemoteIndex(SampleRemoteIndex())).Hex(),
            "ca186b46ced9d5822ba6d02e609df3fb");
  EXPECT_EQ(base::DigestOf(EncodeFarSegment(SampleFarSegment())).Hex(),
            "f886be99e15096910ffea57176b30935");
}

TEST(RemoteRecordTest, KeepsEveryField) {
  const RemoteCommit commit = SampleRemoteCommit();
  const RemoteCommit read = *DecodeRemoteCommit(EncodeRemoteCommit(commit));
  EXPECT_EQ(read.shape, commit.shape);
  EXPECT_EQ(read.uuid, commit.uuid);
  EXPECT_EQ(read.ordinal, commit.ordinal);
  EXPECT_EQ(read.before, commit.before);
  EXPECT_EQ(read.write_id, commit.write_id);
  EXPECT_EQ(read.era, commit.era);
  EXPECT_EQ(read.local, commit.local);
  EXPECT_EQ(read.from, commit.from);
  EXPECT_EQ(read.to, commit.to);
  EXPECT_EQ(read.ceiling, commit.ceiling);
  EXPECT_EQ(read.made_ns, commit.made_ns);
  EXPECT_EQ(read.host, commit.host);
  EXPECT_EQ(read.pid, commit.pid);
  EXPECT_EQ(read.rows, commit.rows);
  ASSERT_EQ(read.rows_objects.size(), 1);
  EXPECT_EQ(read.rows_objects[0].digest, commit.rows_objects[0].digest);
  ASSERT_EQ(read.segments.size(), 1);
  EXPECT_EQ(read.segments[0].segment.builder, 5);
  EXPECT_EQ(read.segments[0].segment.space, Space::kChunks);
  EXPECT_EQ(read.segments[0].digest, commit.segments[0].digest);
}

TEST(RemoteRecordTest, KeepsWhereBlocksStand) {
  const std::vector<RemoteBlock> counting = {{1, 100, 50}, {2, 150, 7}};
  const std::vector<RemoteBlock> others = {{3, 64, 1}, {9, 70, 4026}};
  for (const auto& blocks : {counting, others, std::vector<RemoteBlock>()}) {
    RemoteCommit commit = SampleRemoteCommit();
    commit.segments[0].blocks = blocks;
    const std::string bytes = EncodeRemoteCommit(commit);
    const RemoteCommit read = *DecodeRemoteCommit(bytes);
    ASSERT_EQ(read.segments.size(), 1);
    EXPECT_EQ(read.segments[0].blocks, blocks);
    EXPECT_EQ(EncodeRemoteCommit(read), bytes);
  }
}

struct Wrong {
  const char* what;
  std::function<void(RemoteCommit&)> change;
};

TEST(RemoteRecordTest, WhatCannotBeIsRefused) {
  using Shape = RemoteCommit::Shape;
  const Wrong cases[] = {
      {"shape 9", [](auto& c) { c.shape = static_cast<Shape>(9); }},
      {"not 16 bytes", [](auto& c) { c.uuid = "short"; }},
      {"not 16 bytes", [](auto& c) { c.write_id.clear(); }},
      {"not 16 bytes", [](auto& c) { c.local += "x"; }},
      {"ordinal 0", [](auto& c) { c.ordinal = 0; }},
      {"more bytes than can be",
       [](auto& c) { c.segments[0].bytes = ~std::uint64_t{0}; }},
      {"in era 12", [](auto& c) { c.era = 12; }},
      {"in era 0", [](auto& c) { c.era = 0; }},
      {"in era 3", [](auto& c) { c.shape = Shape::kOpen; }},
      {"only the first", [](auto& c) { c.before = {}; }},
      {"local commits 22 to 22", [](auto& c) { c.from = 22; }},
      {"local commits 20 to 22", [](auto& c) { c.shape = Shape::kClose; }},
      {"ships nothing",
       [](auto& c) {
         c.shape = Shape::kClose;
         c.from = c.to;
       }},
      {"a row of space 2", [](auto& c) { c.rows[0].space = Space::kLeaves; }},
      {"without a key", [](auto& c) { c.rows[0].key.clear(); }},
      {"without a key",
       [](auto& c) {
         c.rows[0].key =
             "\xff"
             "applied";
       }},
      {"object of rows", [](auto& c) { c.rows_objects[0].bytes = 0; }},
      {"object of rows", [](auto& c) { c.rows_objects[0].bytes = 65 << 20; }},
      {"object of rows", [](auto& c) { c.rows_objects[0].attempt = "a"; }},
      {"segment that cannot",
       [](auto& c) { c.segments[0].segment.space = Space::kSmall; }},
      {"segment that cannot",
       [](auto& c) { c.segments[0].segment.version = 0; }},
      {"segment that cannot",
       [](auto& c) { c.segments[0].segment.part = 4096; }},
      {"without its attempt", [](auto& c) { c.segments[0].bytes = 0; }},
      // Beyond its file; twice; the number of a table; of leaf records.
      {"blocks of a segment",
       [](auto& c) {
         c.segments[0].blocks = {{1, 4000, 97}};
       }},
      {"blocks of a segment",
       [](auto& c) {
         c.segments[0].blocks = {{1, 8, 8}, {1, 16, 8}};
       }},
      {"blocks of a segment",
       [](auto& c) {
         c.segments[0].blocks = {{kTableSequence, 8, 8}};
       }},
      {"blocks of a segment",
       [](auto& c) {
         c.segments[0].blocks = {{1, 8, 8}, {2, 4, 8}};
       }},
      {"blocks of a segment",
       [](auto& c) {
         c.segments[0].segment.space = Space::kLeaves;
         c.segments[0].blocks = {{1, 8, 8}};
       }},
      {"without its attempt", [](auto& c) { c.segments[0].attempt = ""; }},
  };
  for (const Wrong& wrong : cases) {
    RemoteCommit commit = SampleRemoteCommit();
    wrong.change(commit);
    const absl::Status status =
        DecodeRemoteCommit(EncodeRemoteCommit(commit)).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << wrong.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.what));
  }
  EXPECT_TRUE(absl::IsDataLoss(
      DecodeRemoteStore(EncodeRemoteStore({"short", ""})).status()));
}

TEST(RemoteRecordTest, AnIndexKeepsEveryField) {
  const RemoteIndex index = SampleRemoteIndex();
  const RemoteIndex read = *DecodeRemoteIndex(EncodeRemoteIndex(index));
  EXPECT_EQ(read.uuid, index.uuid);
  EXPECT_EQ(read.ordinal, index.ordinal);
  EXPECT_EQ(read.hash, index.hash);
  EXPECT_EQ(read.ceiling, index.ceiling);
  EXPECT_EQ(read.directories, index.directories);
  ASSERT_EQ(read.runs.size(), 1);
  ASSERT_EQ(read.runs[0].size(), 1);
  EXPECT_EQ(read.runs[0][0].era, 3);
  EXPECT_EQ(read.runs[0][0].object.bytes, 77);
  EXPECT_EQ(read.newest.rows, index.newest.rows);
  ASSERT_EQ(read.newest.segments.size(), 1);
  EXPECT_EQ(read.newest.segments[0].era, 3);
  EXPECT_EQ(read.newest.segments[0].segment.attempt, std::string(16, 's'));
  EXPECT_EQ(read.dead, index.dead);
  EXPECT_EQ(read.rows_objects, index.rows_objects);
}

struct WrongIndex {
  const char* what;
  std::function<void(RemoteIndex&)> change;
};

TEST(RemoteRecordTest, AnIndexThatCannotBeIsRefused) {
  const WrongIndex cases[] = {
      {"not 16 bytes", [](auto& i) { i.uuid = "short"; }},
      {"of no commit",
       [](auto& i) {
         i.ordinal = 0;
         i.directories.clear();
         i.dead.clear();
       }},
      {"a directory", [](auto& i) { i.directories[0].local = "l"; }},
      {"a directory", [](auto& i) { i.directories[0].to_at = 13; }},
      {"a directory", [](auto& i) { i.directories[0].to = 0; }},
      {"a directory", [](auto& i) { i.directories[0].shipped_at = 13; }},
      {"without objects", [](auto& i) { i.runs.emplace_back(); }},
      {"of no era", [](auto& i) { i.runs[0][0].era = 0; }},
      {"of no era", [](auto& i) { i.newest.segments[0].era = 0; }},
      {"object of rows", [](auto& i) { i.runs[0][0].object.bytes = 0; }},
      {"do not ascend",
       [](auto& i) { std::swap(i.newest.rows[0], i.newest.rows[1]); }},
      {"a dead object", [](auto& i) { i.dead[0].at = 14; }},
      {"a dead object", [](auto& i) { i.dead[0].name.clear(); }},
      {"without a name", [](auto& i) { i.rows_objects[0].clear(); }},
  };
  for (const WrongIndex& wrong : cases) {
    RemoteIndex index = SampleRemoteIndex();
    wrong.change(index);
    const absl::Status status =
        DecodeRemoteIndex(EncodeRemoteIndex(index)).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << wrong.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.what));
  }
}

}  // namespace
}  // namespace ckptree::schema
