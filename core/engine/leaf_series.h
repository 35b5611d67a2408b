// SPDX-License-Identifier: Apache-2.0

// One leaf over many steps, from their records, without opening a step.

#ifndef CKPTREE_CORE_ENGINE_LEAF_SERIES_H_
#define CKPTREE_CORE_ENGINE_LEAF_SERIES_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ckptree/step.h"
#include "core/engine/engine.h"
#include "core/version/step_rows.h"
#include "schema/leaf_map.h"

namespace ckptree::internal {

// To open a step, look a path up and read one record takes longer than the
// record: here all records of a leaf are read at once, by several threads where
// there are many, each of them once however many steps share it.
//
// What is not said here, for whatever reason, the step says when it is opened:
// ties, None and nodes, steps of several parts, records that cannot be read.
// So nothing here is an error. Confined to one thread.
class LeafSeries {
 public:
  enum class Kind {
    kUnknown,  // Open the step.
    kAbsent,   // It has nothing at the path.
    kLeaf,
  };
  struct Place {
    Kind kind = Kind::kUnknown;
    // Of kLeaf: of the series. The same pointers: the same name and types, the
    // same record. What has been moved out of `detail` is not asked for again:
    // steps that have it follow each other.
    const LeafInfo* info = nullptr;
    LeafDetail* detail = nullptr;
  };

  // Of each of `steps`, in their order. All are unknown where a step must be
  // held to be read: beside a process that collects, as this one may, too.
  // Until `cancelled` says true, which is asked now and then; it may be empty.
  LeafSeries(Engine* engine, std::span<const StepRecordPtr> steps,
             const Path& path, const std::function<bool()>& cancelled);
  LeafSeries(const LeafSeries&) = delete;
  LeafSeries& operator=(const LeafSeries&) = delete;

  Place at(std::size_t step);
  // How many records `at` can give.
  std::size_t records() const { return records_.size(); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Known {
    Kind kind = Kind::kUnknown;
    std::size_t info = kNone;
    std::size_t record = kNone;
  };
  // A record to be read.
  struct Record {
    std::uint16_t part = 0;
    schema::MapRun run;
    bool good = false;
    LeafDetail detail;
  };

  void Locate(Engine* engine, std::span<const StepRecordPtr> steps,
              const Path& path);
  void ReadRecords(Engine* engine, const std::function<bool()>& cancelled);

  std::vector<Known> steps_;
  std::vector<std::unique_ptr<const LeafInfo>> infos_;
  std::deque<Record> records_;  // Large: none is moved as more come.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_LEAF_SERIES_H_
