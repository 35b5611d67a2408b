// SPDX-License-Identifier: Apache-2.0

// The counts of judged trials.

#ifndef CKPTREE_TESTS_JUDGE_TABLE_H_
#define CKPTREE_TESTS_JUDGE_TABLE_H_

#include <array>
#include <map>
#include <string>
#include <vector>

#include "tests/judge/verbs.h"

namespace ckptree::testing {

class JudgeTable {
 public:
  // `faults`: of all verbs of the trial; `wrong`: those that may not be.
  void Add(const std::string& kind, const std::string& shape,
           const std::string& where, unsigned faults, unsigned wrong);

  int trials() const { return all_.trials; }
  int wrong() const { return all_.wrong; }

  // By kind, by shape, by class of file; `whole`: each of these together.
  std::string Text(bool whole) const;
  // "40 trials, 40 fired: 3 lost, ...", as scripts/trial_summary adds it up.
  std::string Summary() const;

 private:
  struct Counts {
    int trials = 0;
    int wrong = 0;
    std::array<int, kFaults> faults = {};
    void Add(unsigned bits, unsigned bad);
  };
  static std::string Row(const std::string& name, const Counts& counts);

  Counts all_;
  std::map<std::string, Counts> kinds_, shapes_, classes_, cells_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_TABLE_H_
