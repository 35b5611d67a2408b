// SPDX-License-Identifier: Apache-2.0

// What every case of the benchmark shares: time, medians, figures, the verdict.

#ifndef CKPTREE_BENCH_MEASURE_H_
#define CKPTREE_BENCH_MEASURE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckptree::bench {

struct Settings {
  bool quick = false;  // Small data, for CI.
  bool guard = false;  // Fail where a figure is beyond its floor.
  // What a guard forgives, because shared machines are noisy: of a ratio taken
  // in the same run, and of a figure that has nothing to lean on.
  double slack = 1.5;
  double absolute_slack = 3;
  std::string directory;
  std::size_t mib = 0;  // Of the state of remote_*; 0: as it comes.
};

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

double Median(std::vector<double> values);

// The value below which the share `p` of them lies.
double Percentile(std::vector<double> values, double p);

// One figure of a case, as data. What `bench/run` prints, its JSON and the
// tables of the README are made of it, so `what` is for somebody who has not
// read the case: "2 GiB saved, durable, memory lent".
struct Figure {
  std::string name = {};            // Of the case.
  std::string what = {};            // Without its unit.
  std::string unit = {};            // "GB/s", "ms"; "x" of a ratio.
  std::vector<double> values = {};  // One of each turn.
  // The ceiling or the peer: its name, and what it did in the same turns, in
  // the same unit. Empty where there is nothing beside.
  std::string beside = {};
  std::vector<double> beside_values = {};
  // What the median has to reach: that of the ratio of `values` to
  // `beside_values` where there are such, else that of the values.
  std::optional<double> floor = {};
  std::optional<double> goal = {};
  bool at_least = true;  // Else they are a most.
};

// What is judged of a figure: the ratio of each turn; the ratio of the medians
// where one of the two was measured more often; the values where there is
// nothing beside them.
std::vector<double> Judged(const Figure& figure);

// Shows a figure, and returns false where it is beyond its floor and the slack
// of that in a guarded run.
bool Report(const Settings& settings, const Figure& figure);

// Shows a figure that nothing judges.
void Print(const std::string& name, const std::string& what,
           const std::vector<double>& values, const char* unit);

// Report() of one that has a floor and was divided by its ceiling by the case
// itself. `absolute`: the values are no ratio to what this run measured.
bool Judge(const Settings& settings, const std::string& name,
           const std::string& what, const std::vector<double>& values,
           double floor, bool at_least, bool absolute = false);

// From now on figures are written to standard output as one JSON object a
// line, with all of their values and no verdict, which is for the one who reads
// them to give.
void WriteFiguresAsJson();

// Ends the program with a message: a benchmark that did not run has no figure.
[[noreturn]] void Fail(const std::string& what);

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_MEASURE_H_
