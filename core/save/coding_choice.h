// SPDX-License-Identifier: Apache-2.0

// Whether the next save codes its chunks.

#ifndef CKPTREE_CORE_SAVE_CODING_CHOICE_H_
#define CKPTREE_CORE_SAVE_CODING_CHOICE_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/options.h"

namespace ckptree::internal {

// What the lanes of one save did, all together.
struct LaneTimes {
  std::uint64_t bytes = 0;        // Payloads that were written.
  double computed = 0;            // Seconds of processors, without coding.
  double waited = 0;              // Seconds asleep: for the disk.
  std::uint64_t coded_bytes = 0;  // Payloads that were given to the coder.
  std::uint64_t coded_to = 0;     // What these take, coded or not.
  double coding = 0;              // Seconds of processors.

  void Add(const LaneTimes& other) {
    bytes += other.bytes;
    computed += other.computed;
    waited += other.waited;
    coded_bytes += other.coded_bytes;
    coded_to += other.coded_to;
    coding += other.coding;
  }
};

// StoreOptions::coding, or what it is where it is unset.
Coding CodingOf(const StoreOptions& options);

// The coding of a store, and for Coding::kAuto what the last save showed. A
// lane either computes or waits for the disk, so the slower of the two says how
// long a save takes: coding makes the one longer and the other shorter, by as
// much as was measured.
//
// Thread-safe.
class CodingChoice {
 public:
  explicit CodingChoice(Coding coding) : coding_(coding) {}

  // Whether any save may code.
  bool may_code() const { return coding_ != Coding::kNone; }

  // How a save writes.
  struct Way {
    bool code = false;
    // Lanes note their times; where they do not code, they try it on one chunk
    // each.
    bool measure = false;
  };
  Way Next() const;

  // What a save that went the way `code` showed.
  void Note(bool code, const LaneTimes& times);

 private:
  const Coding coding_;
  mutable absl::Mutex mu_;
  bool code_ ABSL_GUARDED_BY(mu_) = false;
  // Seconds of a lane that a byte took to the disk when that was what the lanes
  // waited for; 0: not known yet.
  double disk_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_CODING_CHOICE_H_
