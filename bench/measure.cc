// SPDX-License-Identifier: Apache-2.0

#include "bench/measure.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ckptree::bench {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half]
                                : (values[half - 1] + values[half]) / 2;
}

double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(
      p * static_cast<double>(values.size() - 1))];
}

void Print(const std::string& name, const std::string& what,
           const std::vector<double>& values, const char* unit) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  std::printf("%-14s %-42s %10.4g (%.4g-%.4g) %s\n", name.c_str(), what.c_str(),
              Median(values), *low, *high, unit);
  std::fflush(stdout);
}

bool Judge(const Settings& settings, const std::string& name,
           const std::string& what, const std::vector<double>& values,
           double floor, bool at_least, bool absolute) {
  const double median = Median(values);
  const double slack = absolute ? settings.absolute_slack : settings.slack;
  const double limit = at_least ? floor / slack : floor * slack;
  const bool met = at_least ? median >= floor : median <= floor;
  const bool passed = at_least ? median >= limit : median <= limit;
  std::printf("%-14s %-42s %10.4g  floor %s %g: %s\n", name.c_str(),
              what.c_str(), median, at_least ? ">=" : "<=", floor,
              met ? "met" : (passed ? "missed, within the slack" : "MISSED"));
  std::fflush(stdout);
  return passed || !settings.guard;
}

void Fail(const std::string& what) {
  std::fprintf(stderr, "ckptree_bench: %s\n", what.c_str());
  std::exit(2);
}

}  // namespace ckptree::bench
