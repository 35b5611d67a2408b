// SPDX-License-Identifier: Apache-2.0

// Rows of the journal over the rows of an index that is older.

#ifndef CKPTREE_KV_JOURNAL_OVERLAY_H_
#define CKPTREE_KV_JOURNAL_OVERLAY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kv/journal/cursor.h"
#include "kv/journal/row.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// Above every row of `records` and `small`: from here on stand kv's own keys,
// which no scan shows.
inline constexpr std::string_view kEndOfRows = "\xff";

// Changes over an index. Those added later stand over those before; what both
// have in common is held once.
//
// Immutable: readers keep the one they have.
class Overlay {
 public:
  // Nothing: the row is deleted.
  using Changes = std::map<RowKey, std::optional<std::string>>;

  // Spaces whose rows are all here, so that the index is never asked.
  struct Complete {
    bool records = false;
    bool small = false;
  };

  // `changes` over nothing.
  static std::shared_ptr<const Overlay> Make(Changes changes,
                                             Complete complete);
  // `changes` over this one, which stays as it is. Costs, over many calls, the
  // logarithm of their number for each row.
  std::shared_ptr<const Overlay> With(Changes changes) const;

  struct Found {
    bool known = false;  // False: the index has to be asked.
    // Of the row; nothing where it is not there. Stands in the overlay.
    std::optional<std::string_view> value;
  };
  Found Get(schema::Space space, std::string_view key) const;

  bool complete(schema::Space space) const;
  // Whether the index alone has all rows of `space`.
  bool empty(schema::Space space) const;
  // Of the keys and values held.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class OverlayCursor;
  struct Entry {
    RowKey key;
    std::optional<std::string> value;
  };
  // Ascending, each key once.
  using Level = std::vector<std::shared_ptr<const Entry>>;

  Overlay() = default;
  static Level ToLevel(Changes changes);
  static std::size_t BytesOf(const Entry& entry);
  Level Merge(const Level& older, const Level& newer);
  static Level::const_iterator LowerBound(const Level& level,
                                          schema::Space space,
                                          std::string_view key);
  static Level::const_iterator EndOf(const Level& level, schema::Space space);
  void Add(Level level);

  // Oldest first, each more than twice as long as the next.
  std::vector<std::shared_ptr<const Level>> levels_;
  Complete complete_;
  std::size_t bytes_ = 0;
};

// The rows of [begin, end), an empty `end` being no bound, of the index with an
// overlay over it.
class OverlayCursor : public Cursor {
 public:
  // `index` may be null, and is not asked, where the overlay is complete. It
  // may have rows outside of the bounds.
  OverlayCursor(std::shared_ptr<const Overlay> overlay, schema::Space space,
                std::string_view begin, std::string_view end,
                std::unique_ptr<Cursor> index);

  void Seek(std::string_view key) override;
  void Next() override;
  bool Valid() const override { return valid_; }
  std::string_view key() const override;
  std::string_view value() const override;
  absl::Status status() const override;

 private:
  // What is left of a level.
  struct Rest {
    Overlay::Level::const_iterator at;
    Overlay::Level::const_iterator end;
  };
  // Goes to the next row from where all of them stand.
  void Settle();
  // Leaves the row that they stand on.
  void Pass();

  const std::shared_ptr<const Overlay> overlay_;
  const schema::Space space_;
  const std::string begin_;
  const std::string end_;
  const std::unique_ptr<Cursor> index_;
  std::vector<Rest> rests_;  // Newest first.
  bool valid_ = false;
  const Overlay::Entry* entry_ = nullptr;  // Null: the row is the index's.
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_OVERLAY_H_
