#include "tools/quantity.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/decimal.h"

namespace ckptree::tools {

std::string SizeText(std::uint64_t bytes, bool exact) {
  if (exact) return absl::StrCat(bytes);
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB",
                                                 "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.5 would be printed as 1024.
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  if (value < 9.95) return absl::StrFormat("%.1f %s", value, kUnits[unit]);
  return absl::StrFormat("%.0f %s", value, kUnits[unit]);
}

std::string AgeText(std::int64_t then_ns, absl::Time now) {
  const double seconds =
      absl::ToDoubleSeconds(now - absl::FromUnixNanos(then_ns));
  if (seconds < 0) return "in the future";
  if (seconds < 1) return "just now";
  if (seconds < 90) return absl::StrFormat("%d s", std::lround(seconds));
  const double minutes = seconds / 60;
  if (minutes < 90) return absl::StrFormat("%d min", std::lround(minutes));
  const double hours = minutes / 60;
  if (hours < 36) return absl::StrFormat("%d h", std::lround(hours));
  const double days = hours / 24;
  if (days < 60) return absl::StrFormat("%d days", std::lround(days));
  if (days < 730) {
    return absl::StrFormat("%d months", std::lround(days / 30.44));
  }
  return absl::StrFormat("%d years", std::lround(days / 365.25));
}

std::string TimeText(std::int64_t ns) {
  if (ns == 0) return "";
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixNanos(ns),
                          absl::UTCTimeZone());
}

std::string DurationText(std::int64_t ns) {
  const double seconds = static_cast<double>(ns) * 1e-9;
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 100) return absl::StrFormat("%.3g s", seconds);
  return absl::StrFormat("%.1f min", seconds / 60);
}

std::string NumberText(double value) { return DecimalText(value); }

std::string ShortNumberText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return absl::StrFormat("%.6g", value);
}

std::string CountText(std::uint64_t count, std::string_view one,
                      std::string_view many) {
  return absl::StrFormat("%d %s", count, count == 1 ? one : many);
}

}  // namespace ckptree::tools
