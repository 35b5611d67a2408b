// SPDX-License-Identifier: Apache-2.0

// What `ckptree doctor` looked at, and what to do where it is not well.

#ifndef CKPTREE_TOOLS_VERBS_DIAGNOSIS_H_
#define CKPTREE_TOOLS_VERBS_DIAGNOSIS_H_

#include <string>

#include "tools/output/table.h"

namespace ckptree::tools {

struct Diagnosis {
  enum class Level { kGood, kNote, kProblem };
  std::string check;
  Level level = Level::kGood;
  std::string what;
  std::string advice = {};  // Empty where it is good.
  Json facts = Json::object();
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_VERBS_DIAGNOSIS_H_
