// SPDX-License-Identifier: Apache-2.0

// Hot path: per step of a history.

#include "core/engine/leaf_series.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/engine/step_reader.h"
#include "core/version/leaf_reader.h"
#include "core/version/step_tree.h"
#include "tbb/blocked_range.h"
#include "tbb/parallel_for.h"
#include "tbb/task_arena.h"

namespace ckptree::internal {
namespace {

// So few records are read before other threads have begun.
constexpr std::size_t kRecordsOfOneThread = 1024;
// `cancelled` is asked between so many.
constexpr std::size_t kRecordsOfTask = 256;

}  // namespace

LeafSeries::LeafSeries(Engine* engine, std::span<const StepRecordPtr> steps,
                       const Path& path, const std::function<bool()>& cancelled)
    : steps_(steps.size()) {
  if (engine->writer() != nullptr || engine->database().following()) return;
  Locate(engine, steps, path);
  ReadRecords(engine, cancelled);
}

LeafSeries::Place LeafSeries::at(std::size_t step) {
  const Known& known = steps_[step];
  if (known.kind != Kind::kLeaf) return {known.kind, nullptr, nullptr};
  Record& record = records_[known.record];
  if (!record.good) return {};
  return {Kind::kLeaf, infos_[known.info].get(), &record.detail};
}

void LeafSeries::Locate(Engine* engine, std::span<const StepRecordPtr> steps,
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
                         steps_[i - 1].info == infos_.size() - 1;
    if (!follows || records_.back().part != part.part ||
        records_.back().run.place != run.place ||
        records_.back().run.version != run.version ||
        records_.back().run.source != run.source) {
      Record& record = records_.emplace_back();
      record.part = part.part;
      record.run = run;
    }
    steps_[i] = {Kind::kLeaf, infos_.size() - 1, records_.size() - 1};
  }
}

void LeafSeries::ReadRecords(Engine* engine,
                             const std::function<bool()>& cancelled) {
  const kv::Database& database = engine->database();
  const auto read = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i != end; ++i) {
      Record& record = records_[i];
      auto found = ReadLeaf(database, record.part, record.run);
      if (!found.ok()) continue;
      record.detail = DetailOf(database, std::span(&*found, 1));
      record.good = true;
    }
  };
  // Who gives `cancelled` wants to be asked on its own thread.
  const auto stopped = [&] { return cancelled && cancelled(); };
  for (std::size_t done = 0; done < records_.size() && !stopped();) {
    const bool few = records_.size() <= kRecordsOfOneThread;
    const std::size_t end = std::min(
        records_.size(), done + (few ? kRecordsOfTask : 16 * kRecordsOfTask));
    if (few) {
      read(done, end);
    } else {
      engine->arena().execute([&] {
        tbb::parallel_for(
            tbb::blocked_range<std::size_t>(done, end, kRecordsOfTask),
            [&](const tbb::blocked_range<std::size_t>& range) {
              read(range.begin(), range.end());
            });
      });
    }
    done = end;
  }
}

}  // namespace ckptree::internal
