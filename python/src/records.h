// Records of the engine as dicts; ckptree/records.py makes them named tuples.

#ifndef CKPTREE_PYTHON_SRC_RECORDS_H_
#define CKPTREE_PYTHON_SRC_RECORDS_H_

#include <nanobind/nanobind.h>

#include <vector>

#include "ckptree/ckptree.h"

namespace ckptree::python {

nanobind::dict ToDict(const StepInfo& info);
nanobind::dict ToDict(const StepMetadata& metadata);
nanobind::dict ToDict(const LeafDetail& detail);
nanobind::dict ToDict(const TagInfo& tag);
nanobind::dict ToDict(const LineInfo& line);
nanobind::dict ToDict(const Finding& finding);
nanobind::dict ToDict(const VerifyReport& report);
nanobind::dict ToDict(const StoreInfo& info);
nanobind::dict ToDict(const Stats& stats);
nanobind::dict ToDict(const KeptVersion& kept);
nanobind::dict ToDict(const CollectReport& report);
nanobind::dict ToDict(const StepUsage& usage);
nanobind::dict ToDict(const UsageReport& report);
nanobind::dict ToDict(const FreedBytes& freed);
nanobind::dict ToDict(const SubtreeUsage& usage);
nanobind::dict ToDict(const Progress& progress);

template <typename Record>
nanobind::list ToDicts(const std::vector<Record>& records) {
  nanobind::list list;
  for (const Record& record : records) list.append(ToDict(record));
  return list;
}

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_RECORDS_H_
