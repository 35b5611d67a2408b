// SPDX-License-Identifier: Apache-2.0

// Rows over an index, held against a map that does the same.

#include "kv/journal/overlay.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/journal/cursor.h"
#include "kv/journal/row.h"
#include "kv/testing/database_peer.h"
#include "kv/value.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"
#include "tests/testutil/status_matchers.h"

namespace ckptree::kv {
namespace {

using ::ckptree::testing::IsOkAndHolds;
using ::ckptree::testing::StatusIs;
using schema::Space;
using Map = std::map<std::string, std::string, std::less<>>;

// An index in memory, without bounds; fails where it comes to `fails_at`.
class MapCursor : public Cursor {
 public:
  explicit MapCursor(Map map, std::string fails_at = {})
      : map_(std::move(map)), fails_at_(std::move(fails_at)) {}
  void Seek(std::string_view key) override { at_ = map_.lower_bound(key); }
  void Next() override { ++at_; }
  bool Valid() const override { return at_ != map_.end() && !failed(); }
  std::string_view key() const override { return at_->first; }
  std::string_view value() const override { return at_->second; }
  absl::Status status() const override {
    return failed() ? absl::DataLossError("a damaged block") : absl::OkStatus();
  }

 private:
  bool failed() const {
    return at_ != map_.end() && !fails_at_.empty() && at_->first >= fails_at_;
  }
  const Map map_;
  const std::string fails_at_;
  Map::const_iterator at_ = map_.end();
};

std::string Name(std::size_t i) { return absl::StrFormat("k%04d", i); }

Map Rest(Cursor& cursor) {
  Map rows;
  for (; cursor.Valid(); cursor.Next()) {
    EXPECT_TRUE(rows.empty() || rows.rbegin()->first < cursor.key());
    rows.emplace(cursor.key(), cursor.value());
  }
  EXPECT_OK(cursor.status());
  return rows;
}

Map Between(const Map& map, std::string_view begin, std::string_view end) {
  Map rows;
  for (const auto& [key, value] : map) {
    if (key >= begin && (end.empty() || key < end)) rows.emplace(key, value);
  }
  return rows;
}

TEST(OverlayTest, AnswersAsAMapDoes) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t count) { return random() % count; };
  for (const bool complete : {false, true}) {
    Map index;
    for (int i = 0; i < 200; ++i) index[Name(below(400))] = "index";
    // What there is to be read, by space.
    std::map<Space, Map> model;
    for (const Space space : {Space::kRecords, Space::kSmall}) {
      if (!complete) model[space] = index;
    }
    std::shared_ptr<const Overlay> overlay =
        Overlay::Make({}, {.records = complete, .small = complete});
    struct Held {
      std::shared_ptr<const Overlay> overlay;
      std::map<Space, Map> model;
    };
    std::vector<Held> held;
    for (int step = 0; step < 300; ++step) {
      Overlay::Changes changes;
      for (std::size_t n = below(20); n-- > 0;) {
        const Space space = below(2) == 0 ? Space::kRecords : Space::kSmall;
        const std::string key = Name(below(400));
        if (below(3) == 0) {
          changes[{space, key}] = std::nullopt;
          model[space].erase(key);
        } else {
          changes[{space, key}] = absl::StrFormat("step %d", step);
          model[space][key] = absl::StrFormat("step %d", step);
        }
      }
      overlay = overlay->With(std::move(changes));
      if (step % 50 == 7) held.push_back({overlay, model});
    }
    held.push_back({overlay, model});
    // The old ones are as they were.
    for (const Held& one : held) {
      for (const Space space : {Space::kRecords, Space::kSmall}) {
        const Map& rows = one.model.at(space);
        for (std::size_t i = 0; i < 400; ++i) {
          const Overlay::Found found = one.overlay->Get(space, Name(i));
          const auto row = rows.find(Name(i));
          if (found.known) {
            ASSERT_EQ(found.value.has_value(), row != rows.end());
            if (found.value.has_value()) {
              ASSERT_EQ(*found.value, row->second);
            }
          } else {
            ASSERT_FALSE(complete);
            ASSERT_EQ(row != rows.end(), index.contains(Name(i)));
          }
        }
        for (int round = 0; round < 40; ++round) {
          const std::string begin = round % 3 == 0 ? "" : Name(below(400));
          const std::string end = round % 4 == 0 ? "" : Name(below(400));
          OverlayCursor cursor(
              one.overlay, space, begin, end,
              complete ? nullptr : std::make_unique<MapCursor>(index));
          EXPECT_FALSE(cursor.Valid());
          cursor.Seek("");
          ASSERT_EQ(Rest(cursor), Between(rows, begin, end));
          const std::string to = Name(below(420));
          cursor.Seek(to);
          ASSERT_EQ(Rest(cursor), Between(rows, std::max(begin, to), end));
        }
      }
    }
  }
}

// An index that a complete overlay was given is not asked.
TEST(OverlayTest, CompleteHidesTheIndex) {
  const auto overlay = Overlay::Make(
      {{{Space::kRecords, "a"}, "1"}, {{Space::kRecords, "b"}, std::nullopt}},
      {.records = true});
  EXPECT_TRUE(overlay->complete(Space::kRecords));
  EXPECT_FALSE(overlay->complete(Space::kSmall));
  EXPECT_FALSE(overlay->empty(Space::kRecords));
  EXPECT_TRUE(overlay->empty(Space::kSmall));
  EXPECT_TRUE(overlay->empty(Space::kChunks));
  OverlayCursor cursor(
      overlay, Space::kRecords, "", "",
      std::make_unique<MapCursor>(Map{{"b", "2"}, {"c", "3"}}, "c"));
  cursor.Seek("");
  EXPECT_EQ(Rest(cursor), (Map{{"a", "1"}}));
  EXPECT_TRUE(overlay->Get(Space::kRecords, "c").known);
  EXPECT_FALSE(overlay->Get(Space::kSmall, "c").known);
}

TEST(OverlayTest, CountsBytesHeld) {
  auto overlay = Overlay::Make({{{Space::kRecords, "key"}, "value"}}, {});
  EXPECT_EQ(overlay->bytes(), 8u);
  overlay = overlay->With({{{Space::kRecords, "key"}, "12"}});
  EXPECT_EQ(overlay->bytes(), 5u);
  overlay = overlay->With({{{Space::kRecords, "key"}, std::nullopt}});
  EXPECT_EQ(overlay->bytes(), 3u);
  EXPECT_EQ(Overlay::Make({{{Space::kRecords, "key"}, std::nullopt}},
                          {.records = true})
                ->bytes(),
            0u);
}

// What stands behind a damaged block of the index is not guessed.
TEST(OverlayTest, StopsWhereTheIndexFails) {
  const auto overlay = Overlay::Make(
      {{{Space::kRecords, "a"}, "1"}, {{Space::kRecords, "e"}, "5"}}, {});
  OverlayCursor cursor(
      overlay, Space::kRecords, "", "",
      std::make_unique<MapCursor>(Map{{"b", "2"}, {"c", "3"}}, "c"));
  cursor.Seek("");
  std::string keys;
  for (; cursor.Valid(); cursor.Next()) keys += cursor.key();
  EXPECT_EQ(keys, "ab");
  EXPECT_THAT(cursor.status(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(OverlayTest, MillionDeletedRowsInARow) {
  Overlay::Changes changes;
  for (int i = 0; i < 1'000'000; ++i) {
    changes.emplace_hint(changes.end(),
                         RowKey{Space::kSmall, absl::StrFormat("%08d", i)},
                         std::nullopt);
  }
  const auto overlay = Overlay::Make(std::move(changes), {});
  OverlayCursor cursor(overlay, Space::kSmall, "", "",
                       std::make_unique<MapCursor>(Map{{"x", "last"}}));
  cursor.Seek("");
  EXPECT_EQ(Rest(cursor), (Map{{"x", "last"}}));
}

// The same through a database.
using OverlayReadTest = KvTest;

Map ScanAll(const Database& database, Space space, std::string_view begin = {},
            std::string_view end = {}) {
  auto scan = database.Scan(space, begin, end);
  EXPECT_OK(scan);
  Map rows;
  for (; scan->Valid(); scan->Next()) rows.emplace(scan->key(), scan->value());
  EXPECT_OK(scan->status());
  return rows;
}

// Keys of kv's own, above every row.
TEST_F(OverlayReadTest, ScansShowNoMarker) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  const Map records = ScanAll(*database, Space::kRecords);
  CommitRequest request = PutRequest("a", "1");
  request.batch.Put(Space::kSmall, "\xfe", "row");
  ASSERT_OK(database->Commit(std::move(request)).status);
  EXPECT_EQ(ScanAll(*database, Space::kRecords).size(), records.size() + 1);
  EXPECT_EQ(ScanAll(*database, Space::kSmall), (Map{{"\xfe", "row"}}));
  for (const std::string_view end : {"", "\xff", "\xff\xff", "\xfe\xff"}) {
    EXPECT_EQ(ScanAll(*database, Space::kSmall, "\x01", end),
              (Map{{"\xfe", "row"}}));
  }
  EXPECT_TRUE(ScanAll(*database, Space::kSmall,
                      "\xff"
                      "a",
                      "")
                  .empty());
  EXPECT_TRUE(ScanAll(*database, Space::kSmall, "\xff", "\x01").empty());
  ASSERT_OK_AND_ASSIGN(auto scan, database->Scan(Space::kSmall, "", ""));
  scan.Seek("\xff");
  EXPECT_FALSE(scan.Valid());
  // Each commit puts one into both.
  for (const Space space : {Space::kRecords, Space::kSmall}) {
    ASSERT_OK_AND_ASSIGN(const std::optional<std::string> marker,
                         database->Get(space,
                                       "\xff"
                                       "applied"));
    EXPECT_TRUE(marker.has_value());
  }
}

TEST_F(OverlayReadTest, ReadsGoThroughTheOverlay) {
  ASSERT_OK_AND_ASSIGN(const auto database, Create());
  ASSERT_OK(Put(*database, "a", "1").status);
  ASSERT_OK(Put(*database, "b", "2").status);
  const auto overlay =
      Overlay::Make({{{Space::kRecords, RecordKey("a")}, std::nullopt},
                     {{Space::kRecords, RecordKey("c")}, "3"},
                     {{Space::kRecords,
                       "\xff"
                       "applied"},
                      "marker"},
                     {{Space::kSmall, "s"}, "block"}},
                    {});
  ASSERT_OK_AND_ASSIGN(auto before,
                       database->Scan(Space::kRecords, RecordKey("a"), ""));
  DatabasePeer::SetOverlay(*database, overlay);
  EXPECT_EQ(before.value(), "1");
  EXPECT_EQ(ScanAll(*database, Space::kRecords, RecordKey("")),
            (Map{{RecordKey("b"), "2"}, {RecordKey("c"), "3"}}));
  EXPECT_EQ(ScanAll(*database, Space::kSmall), (Map{{"s", "block"}}));
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("a")),
              IsOkAndHolds(std::nullopt));
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("b")),
              IsOkAndHolds("2"));
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("c")),
              IsOkAndHolds("3"));
  EXPECT_THAT(database->Read(Space::kRecords, RecordKey("a")).status(),
              StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const Value row,
                       database->View(Space::kRecords, RecordKey("c")));
  ASSERT_OK_AND_ASSIGN(const Value block, database->Read(Space::kSmall, "s"));
  // What was read stays, whatever comes.
  DatabasePeer::SetOverlay(
      *database,
      Overlay::Make({{{Space::kRecords, "only"}, "row"}}, {.records = true}));
  EXPECT_EQ(row.view(), "3");
  EXPECT_EQ(block.view(), "block");
  EXPECT_EQ(ScanAll(*database, Space::kRecords), (Map{{"only", "row"}}));
  EXPECT_TRUE(ScanAll(*database, Space::kSmall).empty());
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("b")),
              IsOkAndHolds(std::nullopt));
  DatabasePeer::SetOverlay(*database, nullptr);
  EXPECT_THAT(database->Get(Space::kRecords, RecordKey("b")),
              IsOkAndHolds("2"));
}

}  // namespace
}  // namespace ckptree::kv
