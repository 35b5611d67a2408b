// SPDX-License-Identifier: Apache-2.0

#include <functional>
#include <string>
#include <string_view>

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

}  // namespace
}  // namespace ckptree::schema
