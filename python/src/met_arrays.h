// SPDX-License-Identifier: Apache-2.0

// Which arrays a walk has met, and where.

#ifndef CKPTREE_PYTHON_SRC_MET_ARRAYS_H_
#define CKPTREE_PYTHON_SRC_MET_ARRAYS_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "ckptree/path.h"

namespace ckptree::python {

// Objects, by their addresses. Those of a state lie close together: a bit for
// each 8 bytes of the pieces of memory that have any takes less than a table of
// them, and is in the cache of the processor.
//
// Confined to one thread.
class ObjectSet {
 public:
  // False where it is there.
  bool Add(PyObject* object);

 private:
  static constexpr int kPieceBits = 20;  // 1 MiB: 16 KiB of bits.
  using Bits = std::vector<std::uint64_t>;

  absl::flat_hash_map<std::uintptr_t, std::unique_ptr<Bits>> pieces_;
  std::uintptr_t last_piece_ = 0;
  Bits* last_ = nullptr;
};

// Hot path: per leaf.
//
// There may be a million, and seldom one twice: only then a table is made of
// where each was. Confined to one thread, which has the GIL.
class MetArrays {
 public:
  // False where it was met before: `path` is not its path then. It must stay
  // alive.
  bool Add(PyObject* array, const Path& path);

  // Where it was met. REQUIRES: Add() was false for it.
  absl::StatusOr<Path> PathOf(PyObject* array);

 private:
  ObjectSet met_;
  std::vector<PyObject*> order_;
  std::string paths_;  // In that order, encoded, each after its length.
  // Where in `paths_` the path of each is.
  absl::flat_hash_map<PyObject*, std::size_t> places_;
  std::size_t placed_ = 0;     // So many of `order_` are in it.
  std::size_t placed_to_ = 0;  // The next one's place.
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_MET_ARRAYS_H_
