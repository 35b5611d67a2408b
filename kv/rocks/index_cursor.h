// SPDX-License-Identifier: Apache-2.0

// Cursors over the rows and blocks of a store: the index, with the rows of the
// journal that lie over it, past damage of the index where that is asked for.
// Hot path: per record scanned.

#ifndef CKPTREE_KV_ROCKS_INDEX_CURSOR_H_
#define CKPTREE_KV_ROCKS_INDEX_CURSOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kv/journal/cursor.h"
#include "kv/journal/overlay.h"
#include "kv/rocks/instance.h"
#include "schema/spaces.h"

namespace ckptree::kv {

// [begin, end) of `space`; an empty `end` is no bound. `overlay` may be null.
std::unique_ptr<Cursor> CursorOver(
    const std::shared_ptr<const Instance>& instance,
    const std::shared_ptr<const Overlay>& overlay, schema::Space space,
    std::string_view begin, std::string_view end, std::size_t readahead_bytes);

// What of that can be read around damage of the index. Null: nothing.
std::unique_ptr<Cursor> CursorAround(
    const Instance& instance, const std::shared_ptr<const Overlay>& overlay,
    schema::Space space, std::string_view begin, std::string_view end);

// Rows that go on in the journal where the index is damaged.
class MendingCursor : public Cursor {
 public:
  using MendFn = std::function<std::unique_ptr<Cursor>(
      const absl::Status& met, std::string_view at, bool looks_again)>;

  // `mend` is asked for the same rows where damage is met, with `looks_again`:
  // what was read may be well the next time. Where it is met there again it is
  // asked for others, once at most. Null: nothing can be done.
  MendingCursor(std::unique_ptr<Cursor> cursor, MendFn mend)
      : cursor_(std::move(cursor)), mend_(std::move(mend)) {}

  void Seek(std::string_view key) override {
    last_.assign(key);
    cursor_->Seek(key);
    Mend(/*passed=*/false);
  }
  void Next() override {
    last_.assign(cursor_->key());
    cursor_->Next();
    Mend(/*passed=*/true);
  }
  bool Valid() const override { return cursor_->Valid(); }
  std::string_view key() const override { return cursor_->key(); }
  std::string_view value() const override { return cursor_->value(); }
  absl::Status status() const override { return cursor_->status(); }

 private:
  void Mend(bool passed) {
    for (const bool looks_again : {true, false}) {
      if (cursor_->Valid() || mend_ == nullptr) return;
      const absl::Status met = cursor_->status();
      if (!absl::IsDataLoss(met)) return;
      std::unique_ptr<Cursor> other = mend_(met, last_, looks_again);
      if (!looks_again) mend_ = nullptr;
      if (other == nullptr) continue;
      cursor_ = std::move(other);
      cursor_->Seek(last_);
      if (passed && cursor_->Valid() && cursor_->key() == last_) {
        cursor_->Next();
      }
    }
  }

  std::unique_ptr<Cursor> cursor_;
  MendFn mend_;
  std::string last_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_ROCKS_INDEX_CURSOR_H_
