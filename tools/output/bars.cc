// SPDX-License-Identifier: Apache-2.0

#include "tools/output/bars.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace ckptree::tools {
namespace {

constexpr std::array<std::string_view, 8> kAcross = {"▏", "▎", "▍", "▌",
                                                     "▋", "▊", "▉", "█"};
constexpr std::array<std::string_view, 8> kUp = {"▁", "▂", "▃", "▄",
                                                 "▅", "▆", "▇", "█"};
constexpr std::string_view kUpAscii = "_.-:=+*#";

}  // namespace

std::string Bar(double share, int width, bool utf8) {
  if (!(share > 0) || width <= 0) return "";
  const int steps = utf8 ? 8 : 1;
  const int marks = std::clamp(
      static_cast<int>(std::lround(share * width * steps)), 1, width * steps);
  std::string bar;
  for (int i = 0; i < marks / steps; ++i) bar.append(utf8 ? "█" : "#");
  if (marks % steps > 0) {
    bar.append(kAcross[static_cast<std::size_t>(marks % steps - 1)]);
  }
  return bar;
}

std::string Sparkline(std::span<const double> values, int width, bool utf8) {
  const std::size_t most = static_cast<std::size_t>(std::max(1, width));
  const std::size_t marks = std::min(values.size(), most);
  std::vector<double> means;
  for (std::size_t i = 0; i < marks; ++i) {
    const std::size_t first = i * values.size() / marks;
    const std::size_t end = (i + 1) * values.size() / marks;
    double sum = 0;
    for (std::size_t k = first; k < end; ++k) {
      sum += values[k] / static_cast<double>(end - first);
    }
    means.push_back(sum);
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  if (low > high) return "";
  std::string line;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      line += 'x';
      continue;
    }
    // Halves, so that no difference is too large for a double.
    const double share =
        high > low ? (mean / 2 - low / 2) / (high / 2 - low / 2) : 0.5;
    const auto at =
        static_cast<std::size_t>(std::clamp(static_cast<int>(share * 8), 0, 7));
    line.append(utf8 ? kUp[at] : kUpAscii.substr(at, 1));
  }
  return line;
}

}  // namespace ckptree::tools
