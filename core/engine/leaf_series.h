// SPDX-License-Identifier: Apache-2.0

// One leaf over many steps, from their records, without opening a step.

#ifndef CKPTREE_CORE_ENGINE_LEAF_SERIES_H_
#define CKPTREE_CORE_ENGINE_LEAF_SERIES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ckptree/history.h"
#include "ckptree/step.h"
#include "core/engine/engine.h"
#include "core/version/leaf_reader.h"
#include "core/version/step_rows.h"

namespace ckptree::internal {

// What the rows of steps tell of a leaf in one of them.
enum class LeafKnown {
  kUnknown,  // Open the step.
  kAbsent,   // It has nothing at the path.
  kLeaf,
};

// To open a step, look a path up and read one record takes longer than the
// record: here all records of a leaf are read at once, by several threads where
// there are many, each of them once however many steps share it.
//
// `Entry` is HistoryEntry or PastValue.
//
// What is not said here, for whatever reason, the step says when it is opened:
// ties, None and nodes, steps of several parts, records that cannot be read.
// So nothing here is an error. Confined to one thread.
template <typename Entry>
class LeafSeries {
 public:
  using Kind = LeafKnown;
  struct Place {
    Kind kind = Kind::kUnknown;
    // Of kLeaf. The same `info`: the same name and types. The same `entry`: the
    // same record; as History() has it, of the first step with this record
    // alone. What has been moved out of it is not asked for again: steps that
    // have it follow each other, and what they have ascends.
    const LeafInfo* info = nullptr;
    Entry* entry = nullptr;
  };

  // Of each of `steps`, in their order. All are unknown where a step must be
  // held to be read: beside a process that collects, as this one may, too.
  // Until `cancelled` says true, which is asked now and then; it may be empty.
  LeafSeries(Engine* engine, std::span<const StepRecordPtr> steps,
             const Path& path, const std::function<bool()>& cancelled);
  LeafSeries(const LeafSeries&) = delete;
  LeafSeries& operator=(const LeafSeries&) = delete;

  Place at(std::size_t step);
  // How many entries `at` can give.
  std::size_t entries() const { return entries_.size(); }
  // No step is kUnknown.
  bool complete() const;
  // The entries, where they are: what `at` gives stands in them.
  std::vector<Entry> TakeEntries() { return std::move(entries_); }
  // What `info` of places points to, in no use any more.
  std::vector<std::unique_ptr<const LeafInfo>> TakeInfos() {
    return std::move(infos_);
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Known {
    Kind kind = Kind::kUnknown;
    std::size_t record = kNone;
  };
  // A record to be read.
  struct Record {
    std::size_t step = 0;  // The first that has it.
    std::size_t info = kNone;
    bool good = false;
  };

  void Locate(Engine* engine, std::span<const StepRecordPtr> steps,
              const Path& path);
  // Makes the entries, and reads into them what the records say.
  void ReadRecords(Engine* engine, std::span<const StepRecordPtr> steps,
                   const std::function<bool()>& cancelled);
  // As many as kRecordsOfTask from `begin` on, on any thread.
  void ReadSome(const kv::Database& database, std::size_t begin);

  std::vector<Known> steps_;
  std::vector<std::unique_ptr<const LeafInfo>> infos_;
  std::vector<Record> records_;
  std::vector<LeafPlace> places_;  // Of each record.
  // One for each record, made before any is read: none is moved. Large, so they
  // are not made twice.
  std::vector<Entry> entries_;
  Entry* first_entry_ = nullptr;  // Wherever they have been taken.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_LEAF_SERIES_H_
