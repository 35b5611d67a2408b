// SPDX-License-Identifier: Apache-2.0

// Hot path: per step of a history.

#include "core/engine/leaf_series.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "core/engine/leaf_past.h"
#include "core/engine/step_reader.h"
#include "core/process/arena.h"
#include "core/version/leaf_reader.h"
#include "core/version/step_tree.h"

namespace ckptree::internal {
namespace {

// So few records are read before other threads have begun.
constexpr std::size_t kRecordsOfOneThread = 1024;
// `cancelled` is asked between so many.
constexpr std::size_t kRecordsOfTask = 256;

void SetEntry(const LeafInfo& info, const kv::Database& database,
              schema::LeafRecord* record, HistoryEntry* entry) {
  entry->leaf = info;
  entry->detail = DetailOf(database, std::span(record, 1));
}

void SetEntry(const LeafInfo& info, const kv::Database&,
              schema::LeafRecord* record, PastValue* value) {
  value->leaf = &info;
  Describe(*record, value);
}

}  // namespace

template <typename Entry>
LeafSeries<Entry>::LeafSeries(Engine* engine,
                              std::span<const StepRecordPtr> steps,
                              const Path& path,
                              const std::function<bool()>& cancelled)
    : steps_(steps.size()) {
  if (engine->writer() != nullptr || engine->database().following()) return;
  Locate(engine, steps, path);
  ReadRecords(engine, steps, cancelled);
}

template <typename Entry>
typename LeafSeries<Entry>::Place LeafSeries<Entry>::at(std::size_t step) {
  const Known& known = steps_[step];
  if (known.kind != Kind::kLeaf) return {known.kind, nullptr, nullptr};
  const Record& record = records_[known.record];
  if (!record.good) return {};
  return {Kind::kLeaf, infos_[record.info].get(), first_entry_ + known.record};
}

template <typename Entry>
bool LeafSeries<Entry>::complete() const {
  return std::none_of(steps_.begin(), steps_.end(), [this](const Known& known) {
    return known.kind == Kind::kUnknown ||
           (known.kind == Kind::kLeaf && !records_[known.record].good);
  });
}

template <typename Entry>
void LeafSeries<Entry>::Locate(Engine* engine,
                               std::span<const StepRecordPtr> steps,
                               const Path& path) {
  const std::string encoded = path.Encode();
  std::shared_ptr<const StepTree> tree;
  std::optional<StepTree::Entry> found;  // In `tree`.
  bool readable = false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const schema::StepRecord& step = *steps[i];
    if (step.parts_in_meta || step.parts.size() != 1) continue;
    const schema::PartRecord& part = step.parts[0];
    if (tree == nullptr || tree->digest() != part.tree) {
      const auto opened = engine->Tree(part.tree);
      if (!opened.ok()) continue;
      tree = *opened;
      const auto looked_up = tree->Find(encoded);
      readable = looked_up.ok();
      found = readable ? *looked_up : std::nullopt;
      if (found.has_value() && IsLeaf(found->entry->kind)) {
        infos_.push_back(
            std::make_unique<const LeafInfo>(InfoOf(*found->entry)));
      }
    }
    if (!readable || tree->leaf_count() != part.map.size()) continue;
    if (!found.has_value()) {
      steps_[i].kind = Kind::kAbsent;
      continue;
    }
    if (!IsLeaf(found->entry->kind)) continue;
    const schema::MapRun run = part.map.At(found->ordinal);
    const bool follows = i > 0 && steps_[i - 1].kind == Kind::kLeaf &&
                         records_.back().info == infos_.size() - 1;
    if (!follows || places_.back().part != part.part ||
        places_.back().run.place != run.place ||
        places_.back().run.version != run.version ||
        places_.back().run.source != run.source) {
      records_.push_back({i, infos_.size() - 1});
      places_.push_back({part.part, run});
    }
    steps_[i] = {Kind::kLeaf, records_.size() - 1};
  }
}

template <typename Entry>
void LeafSeries<Entry>::ReadSome(const kv::Database& database,
                                 std::size_t begin) {
  const std::size_t count = std::min(kRecordsOfTask, records_.size() - begin);
  ReadEach(database, std::span(places_).subspan(begin, count),
           [&](std::size_t i, schema::LeafRecord* read) {
             Record& record = records_[begin + i];
             SetEntry(*infos_[record.info], database, read,
                      &first_entry_[begin + i]);
             record.good = true;
           });
}

template <typename Entry>
void LeafSeries<Entry>::ReadRecords(Engine* engine,
                                    std::span<const StepRecordPtr> steps,
                                    const std::function<bool()>& cancelled) {
  const kv::Database& database = engine->database();
  const std::size_t count = records_.size();
  const bool few = count <= kRecordsOfOneThread;
  entries_.reserve(count);
  first_entry_ = entries_.data();
  std::atomic<std::size_t> next = 0;  // The first that no thread has taken.
  const auto read_next = [&] {
    const std::size_t begin =
        next.fetch_add(kRecordsOfTask, std::memory_order_acq_rel);
    if (begin < count) ReadSome(database, begin);
    return begin + kRecordsOfTask < count;
  };
  // Others read while the entries behind are still made: each may take one
  // piece, and no more than are there.
  TaskGroup others;
  for (std::size_t begin = 0; begin < count; begin += kRecordsOfTask) {
    const std::size_t end = std::min(begin + kRecordsOfTask, count);
    for (std::size_t i = begin; i < end; ++i) {
      const schema::StepRecord& step = *steps[records_[i].step];
      Entry& entry = entries_.emplace_back();
      entry.first_step = entry.last_step = step.step;
      entry.begun = absl::FromUnixNanos(step.begun_ns);
    }
    if (few) continue;
    engine->arena().execute([&] { others.run([&] { read_next(); }); });
  }
  // Who gives `cancelled` wants to be asked on its own thread.
  const auto stopped = [&] { return cancelled && cancelled(); };
  while (!stopped() && read_next()) {
  }
  next.store(count, std::memory_order_relaxed);
  if (!few) engine->arena().execute([&] { others.wait(); });
}

template class LeafSeries<HistoryEntry>;
template class LeafSeries<PastValue>;

}  // namespace ckptree::internal
