// SPDX-License-Identifier: Apache-2.0

// What is to be done for one part of a save.

#ifndef CKPTREE_CORE_SAVE_PART_TASK_H_
#define CKPTREE_CORE_SAVE_PART_TASK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "core/process/thread_limit.h"
#include "core/save/block_sink.h"
#include "kv/database.h"
#include "kv/options.h"

namespace ckptree::internal {

// Bytes of one save, counted while it runs.
struct SaveCounters {
  std::atomic<std::uint64_t> compared{0};
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> unchanged{0};
  std::atomic<std::uint64_t> coded{0};     // Of those written.
  std::atomic<std::uint64_t> coded_to{0};  // What these take.
};

// One part of a save: what it is of, and where it goes.
struct PartTask {
  kv::Options kv_options;
  std::string staging;  // Folder for the segments.
  // Makes the folder; called before each segment, from any thread.
  std::function<absl::Status()> make_staging;
  std::string attempt;  // Its name.
  // Called with each segment when its file is whole and synced, from any
  // thread; the save may still fail. Null: nobody wants to know.
  std::function<void(const BuiltSegment&)> on_built;
  std::string uuid;
  std::uint64_t incarnation = 0;
  std::uint64_t version = 0;
  std::int64_t step = 0;
  std::uint16_t part = 0;
  SegmentLimits segments;
  SmallLimits small;
  bool statistics = true;
  CodingChoice::Way coding;
  // The part is one of several: PartResult::layout is to be filled in.
  bool among_others = false;
  // Which knows the blocks of the base that cannot be read any more. Null: none
  // is asked for.
  const kv::Database* database = nullptr;
  // Asked between pieces: an error stops the part (cancelled).
  std::function<absl::Status()> check;
  // Of the threads that hash and write; null: none but the arena's.
  ThreadLimit* limit = nullptr;
  SaveCounters* counters = nullptr;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_PART_TASK_H_
