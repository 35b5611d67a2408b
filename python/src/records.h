// SPDX-License-Identifier: Apache-2.0

// Records of the engine as dicts; ckptree/records.py makes them named tuples.

#ifndef CKPTREE_PYTHON_SRC_RECORDS_H_
#define CKPTREE_PYTHON_SRC_RECORDS_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <vector>

#include "ckptree/ckptree.h"
#include "ckptree/history.h"
#include "python/src/interpreter_lock.h"

namespace ckptree::python {

using Record = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;
using Records = nanobind::typed<nanobind::list, Record>;

Record ToDict(const StepInfo& info);
Record ToDict(const PartInfo& part);
Record ToDict(const StepMetadata& metadata);
Record ToDict(const LeafDetail& detail);
Record ToDict(const TagInfo& tag);
Record ToDict(const BranchInfo& branch);
Record ToDict(const Finding& finding);
Record ToDict(const VerifyReport& report);
Record ToDict(const StoreInfo& info);
Record ToDict(const Stats& stats);
Record ToDict(const KeptVersion& kept);
Record ToDict(const CollectReport& report);
Record ToDict(const StepUsage& usage);
Record ToDict(const UsageReport& report);
Record ToDict(const FreedBytes& freed);
Record ToDict(const SubtreeUsage& usage);
Record ToDict(const Progress& progress);
Record ToDict(const PolicyInfo& info);
Record ToDict(const PolicyVerdict& verdict);
Record ToDict(const PolicyReport& report);
Record ToDict(const ItemInfo& item);
Record ToDict(const HistoryEntry& entry);
Record ToDict(const LeafChange& change);
Record ToDict(const DiffReport& report);
Record ToDict(const BlameEntry& entry);

// Python's collector of garbage looks at nothing while one lives, as in
// ckptree/garbage.py. Made and destroyed with the GIL.
class WithoutCollection {
 public:
  WithoutCollection() : enabled_(PyGC_Disable() != 0) {}
  ~WithoutCollection() {
    if (enabled_) PyGC_Enable();
  }
  WithoutCollection(const WithoutCollection&) = delete;
  WithoutCollection& operator=(const WithoutCollection&) = delete;

 private:
  const bool enabled_;
};

// Many take seconds: other threads run in between, and what a signal handler
// raises is thrown.
template <typename Engine>
Records ToDicts(const std::vector<Engine>& records) {
  constexpr std::size_t kMoment = 1000;
  const WithoutCollection quick;
  nanobind::list list;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i % kMoment == kMoment - 1) {
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
      const Unlocked others;
    }
    list.append(ToDict(records[i]));
  }
  return list;
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_RECORDS_H_
