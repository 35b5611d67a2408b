// SPDX-License-Identifier: Apache-2.0

// Hot path: per row read.

#include "kv/journal/overlay.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kv/journal/cursor.h"
#include "kv/journal/row.h"
#include "schema/spaces.h"

namespace ckptree::kv {

std::shared_ptr<const Overlay> Overlay::Make(Changes changes,
                                             Complete complete) {
  std::shared_ptr<Overlay> made(new Overlay());
  made->complete_ = complete;
  made->Add(ToLevel(std::move(changes)));
  return made;
}

std::shared_ptr<const Overlay> Overlay::With(Changes changes) const {
  std::shared_ptr<Overlay> made(new Overlay(*this));
  made->Add(ToLevel(std::move(changes)));
  return made;
}

Overlay::Level Overlay::ToLevel(Changes changes) {
  Level level;
  level.reserve(changes.size());
  while (!changes.empty()) {
    auto change = changes.extract(changes.begin());
    auto entry = std::make_shared<Entry>();
    entry->key = std::move(change.key());
    entry->value = std::move(change.mapped());
    level.push_back(std::move(entry));
  }
  return level;
}

std::size_t Overlay::BytesOf(const Entry& entry) {
  return entry.key.key.size() +
         (entry.value.has_value() ? entry.value->size() : 0);
}

Overlay::Level Overlay::Merge(const Level& older, const Level& newer) {
  Level merged;
  merged.reserve(older.size() + newer.size());
  auto old = older.begin();
  for (const std::shared_ptr<const Entry>& entry : newer) {
    while (old != older.end() && (*old)->key < entry->key) {
      merged.push_back(*old++);
    }
    if (old != older.end() && (*old)->key == entry->key) {
      bytes_ -= BytesOf(**old++);
    }
    merged.push_back(entry);
  }
  merged.insert(merged.end(), old, older.end());
  return merged;
}

void Overlay::Add(Level level) {
  for (const auto& entry : level) bytes_ += BytesOf(*entry);
  while (!levels_.empty() && levels_.back()->size() <= 2 * level.size()) {
    level = Merge(*levels_.back(), level);
    levels_.pop_back();
  }
  if (levels_.empty()) {
    // Below it is nothing to be hidden by what is deleted.
    std::erase_if(level, [&](const std::shared_ptr<const Entry>& entry) {
      if (entry->value.has_value() || !complete(entry->key.space)) return false;
      bytes_ -= BytesOf(*entry);
      return true;
    });
  }
  if (!level.empty()) {
    levels_.push_back(std::make_shared<const Level>(std::move(level)));
  }
}

Overlay::Level::const_iterator Overlay::LowerBound(const Level& level,
                                                   schema::Space space,
                                                   std::string_view key) {
  return std::partition_point(
      level.begin(), level.end(),
      [&](const std::shared_ptr<const Entry>& entry) {
        return entry->key.space < space ||
               (entry->key.space == space && entry->key.key < key);
      });
}

Overlay::Level::const_iterator Overlay::EndOf(const Level& level,
                                              schema::Space space) {
  return std::partition_point(level.begin(), level.end(),
                              [&](const std::shared_ptr<const Entry>& entry) {
                                return entry->key.space <= space;
                              });
}

Overlay::Found Overlay::Get(schema::Space space, std::string_view key) const {
  for (auto it = levels_.rbegin(); it != levels_.rend(); ++it) {
    const auto& level = *it;
    const auto at = LowerBound(*level, space, key);
    if (at == level->end() || (*at)->key.space != space ||
        (*at)->key.key != key) {
      continue;
    }
    return {.known = true, .value = (*at)->value};
  }
  return {.known = complete(space), .value = std::nullopt};
}

bool Overlay::complete(schema::Space space) const {
  switch (space) {
    case schema::Space::kRecords:
      return complete_.records;
    case schema::Space::kSmall:
      return complete_.small;
    default:
      return false;
  }
}

bool Overlay::empty(schema::Space space) const {
  return !complete(space) &&
         std::all_of(levels_.begin(), levels_.end(), [&](const auto& level) {
           return LowerBound(*level, space, {}) == EndOf(*level, space);
         });
}

OverlayCursor::OverlayCursor(std::shared_ptr<const Overlay> overlay,
                             schema::Space space, std::string_view begin,
                             std::string_view end,
                             std::unique_ptr<Cursor> index)
    : overlay_(std::move(overlay)),
      space_(space),
      begin_(begin),
      end_(end),
      index_(overlay_->complete(space) ? nullptr : std::move(index)) {}

void OverlayCursor::Seek(std::string_view key) {
  const std::string_view from = std::max<std::string_view>(key, begin_);
  rests_.clear();
  const auto& levels = overlay_->levels_;
  for (auto it = levels.rbegin(); it != levels.rend(); ++it) {
    const auto& level = *it;
    Rest rest;
    rest.at = Overlay::LowerBound(*level, space_, from);
    rest.end = end_.empty() ? Overlay::EndOf(*level, space_)
                            : Overlay::LowerBound(*level, space_, end_);
    // `from` may lie behind the end.
    if (rest.at < rest.end) rests_.push_back(rest);
  }
  if (index_ != nullptr) index_->Seek(from);
  Settle();
}

void OverlayCursor::Settle() {
  for (;; Pass()) {
    valid_ = false;
    entry_ = nullptr;
    // What comes behind an error is not known, so nothing does.
    if (index_ != nullptr && !index_->Valid() && !index_->status().ok()) return;
    for (const Rest& rest : rests_) {
      if (rest.at == rest.end) continue;
      // The first of equal keys is the newest.
      if (entry_ == nullptr || (*rest.at)->key.key < entry_->key.key) {
        entry_ = rest.at->get();
      }
    }
    if (index_ != nullptr && index_->Valid() &&
        (end_.empty() || index_->key() < end_) &&
        (entry_ == nullptr || index_->key() < entry_->key.key)) {
      entry_ = nullptr;
      valid_ = true;
      return;
    }
    if (entry_ == nullptr) return;
    if (entry_->value.has_value()) {
      valid_ = true;
      return;
    }
  }
}

void OverlayCursor::Pass() {
  if (entry_ == nullptr) {
    index_->Next();
    return;
  }
  const std::string_view passed = entry_->key.key;
  if (index_ != nullptr && index_->Valid() && index_->key() == passed) {
    index_->Next();
  }
  for (Rest& rest : rests_) {
    if (rest.at != rest.end && (*rest.at)->key.key == passed) ++rest.at;
  }
}

void OverlayCursor::Next() {
  Pass();
  Settle();
}

std::string_view OverlayCursor::key() const {
  return entry_ != nullptr ? std::string_view(entry_->key.key) : index_->key();
}

std::string_view OverlayCursor::value() const {
  return entry_ != nullptr ? std::string_view(*entry_->value) : index_->value();
}

absl::Status OverlayCursor::status() const {
  return index_ != nullptr ? index_->status() : absl::OkStatus();
}

}  // namespace ckptree::kv
