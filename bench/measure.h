// SPDX-License-Identifier: Apache-2.0

// What every case of the benchmark shares: time, medians, the verdict.

#ifndef CKPTREE_BENCH_MEASURE_H_
#define CKPTREE_BENCH_MEASURE_H_

#include <chrono>
#include <cstdint>
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

// Prints "case  what  median (min-max) unit".
void Print(const std::string& name, const std::string& what,
           const std::vector<double>& values, const char* unit);

// Compares the median with its floor, which is a least (`at_least`) or a most;
// prints the verdict. False where it is beyond the floor and its slack in a
// guarded run. `absolute`: the values are no ratio to what this run measured.
bool Judge(const Settings& settings, const std::string& name,
           const std::string& what, const std::vector<double>& values,
           double floor, bool at_least, bool absolute = false);

// Ends the program with a message: a benchmark that did not run has no figure.
[[noreturn]] void Fail(const std::string& what);

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_MEASURE_H_
