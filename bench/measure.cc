// SPDX-License-Identifier: Apache-2.0

#include "bench/measure.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace ckptree::bench {
namespace {

bool as_json = false;

std::string Quoted(const std::string& text) {
  return absl::StrCat(
      "\"",
      absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", " "}}),
      "\"");
}

std::string Numbers(const std::vector<double>& values) {
  const auto digits = [](std::string* out, double value) {
    absl::StrAppendFormat(out, "%.6g", value);
  };
  return absl::StrCat("[", absl::StrJoin(values, ", ", digits), "]");
}

std::string Bound(const std::optional<double>& bound) {
  return bound.has_value() ? absl::StrFormat("%g", *bound) : "null";
}

void WriteJson(const Figure& figure) {
  std::printf(
      "{\"case\": %s, \"what\": %s, \"unit\": %s, \"values\": %s, "
      "\"beside\": %s, \"beside_values\": %s, \"floor\": %s, \"goal\": %s, "
      "\"at_least\": %s}\n",
      Quoted(figure.name).c_str(), Quoted(figure.what).c_str(),
      Quoted(figure.unit).c_str(), Numbers(figure.values).c_str(),
      Quoted(figure.beside).c_str(), Numbers(figure.beside_values).c_str(),
      Bound(figure.floor).c_str(), Bound(figure.goal).c_str(),
      figure.at_least ? "true" : "false");
}

std::string Range(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return absl::StrFormat("%.4g (%.4g-%.4g)", Median(values), *low, *high);
}

}  // namespace

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

std::vector<double> Judged(const Figure& figure) {
  if (figure.beside_values.empty()) return figure.values;
  if (figure.values.size() != figure.beside_values.size()) {
    return {Median(figure.values) / Median(figure.beside_values)};
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < figure.values.size(); ++i) {
    ratios.push_back(figure.values[i] / figure.beside_values[i]);
  }
  return ratios;
}

bool Report(const Settings& settings, const Figure& figure) {
  if (figure.values.empty()) Fail(figure.name + ": no value: " + figure.what);
  const std::vector<double> judged = Judged(figure);
  const double median = Median(judged);
  const bool is_ratio = !figure.beside_values.empty() || figure.unit == "x";
  const double slack = is_ratio ? settings.slack : settings.absolute_slack;
  const auto holds = [&](double bound) {
    return figure.at_least ? median >= bound : median <= bound;
  };
  bool passed = true;
  std::string text =
      absl::StrFormat("%-14s %-42s %s %s", figure.name, figure.what,
                      Range(figure.values), figure.unit);
  if (!figure.beside_values.empty()) {
    absl::StrAppendFormat(&text, "; %s %s: x %s", figure.beside,
                          Range(figure.beside_values), Range(judged));
  }
  const char* sign = figure.at_least ? ">=" : "<=";
  if (figure.floor.has_value()) {
    passed =
        holds(figure.at_least ? *figure.floor / slack : *figure.floor * slack);
    absl::StrAppendFormat(
        &text, "; floor %s %g: %s", sign, *figure.floor,
        holds(*figure.floor)
            ? "met"
            : (passed ? "missed, within the slack" : "MISSED"));
  }
  if (figure.goal.has_value()) {
    absl::StrAppendFormat(&text, "; goal %s %g: %s", sign, *figure.goal,
                          holds(*figure.goal) ? "met" : "not yet");
  }
  if (as_json) {
    WriteJson(figure);
  } else {
    std::printf("%s\n", text.c_str());
  }
  std::fflush(stdout);
  return passed || !settings.guard;
}

void Print(const std::string& name, const std::string& what,
           const std::vector<double>& values, const char* unit) {
  Figure figure;
  figure.name = name;
  figure.what = what;
  figure.unit = unit;
  figure.values = values;
  Report({}, figure);
}

bool Judge(const Settings& settings, const std::string& name,
           const std::string& what, const std::vector<double>& values,
           double floor, bool at_least, bool absolute) {
  Figure figure;
  figure.name = name;
  figure.what = what;
  figure.unit = absolute ? "" : "x";
  figure.values = values;
  figure.floor = floor;
  figure.at_least = at_least;
  return Report(settings, figure);
}

void WriteFiguresAsJson() { as_json = true; }

void Fail(const std::string& what) {
  std::fprintf(stderr, "ckptree_bench: %s\n", what.c_str());
  std::exit(2);
}

}  // namespace ckptree::bench
