// SPDX-License-Identifier: Apache-2.0

// Memory of large arrays that went, kept for those that come next.

#ifndef CKPTREE_PYTHON_SRC_KEPT_MEMORY_H_
#define CKPTREE_PYTHON_SRC_KEPT_MEMORY_H_

#include <cstddef>
#include <list>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace ckptree::python {

// Who restores again and again, to look at one step after the other, gets the
// memory that the arrays before had: the system makes fresh pages at some 3
// GB/s, and a page that is there is filled several times as fast.
//
// What is kept is the system's whenever it is short of memory (MADV_FREE), so
// that nobody is refused memory for its sake, and goes after kIdle without a
// use. At most a quarter of the machine's memory is kept.
//
// Thread-safe. In a child that was made by fork() nothing is kept.
class KeptMemory {
 public:
  static constexpr absl::Duration kIdle = absl::Seconds(10);

  struct Piece {
    void* memory = nullptr;
    std::size_t bytes = 0;  // Whole pages.
  };

  // The one of the process, which is never destroyed: arrays may go after
  // everything else has.
  static KeptMemory& Of();

  // At least `bytes` that begin with a page, whatever stands in them. Nothing
  // (no memory) where the system has none.
  Piece Take(std::size_t bytes);
  void GiveBack(Piece piece);

  // Bytes that are kept now.
  std::size_t kept() const;
  // How long a piece is kept without a use.
  void SetIdle(absl::Duration idle);

 private:
  struct Kept {
    Piece piece;
    absl::Time since;
  };
  using ByAge = std::list<Kept>;  // The oldest first.

  KeptMemory();

  bool Forked() const;
  // What GiveBack() does with what is kept: all of it, or nothing where it
  // throws.
  void Keep(Piece piece);
  // Runs in a thread of its own while something is kept.
  void DropIdle();
  Piece Remove(ByAge::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int process_;
  const std::size_t page_;
  const std::size_t limit_;

  mutable absl::Mutex mu_;
  absl::CondVar changed_;
  ByAge by_age_ ABSL_GUARDED_BY(mu_);
  std::multimap<std::size_t, ByAge::iterator> by_size_ ABSL_GUARDED_BY(mu_);
  std::size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Duration idle_ ABSL_GUARDED_BY(mu_) = kIdle;
  bool has_thread_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_KEPT_MEMORY_H_
