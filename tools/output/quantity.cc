// SPDX-License-Identifier: Apache-2.0

#include "tools/output/quantity.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "tools/output/decimal.h"

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
  return absl::StrCat(static_cast<std::int64_t>(std::nearbyint(value)), " ",
                      kUnits[unit]);
}

std::optional<std::uint64_t> ParseSize(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 9> kUnits = {{{"KiB", 0x1p10},
                                                  {"MiB", 0x1p20},
                                                  {"GiB", 0x1p30},
                                                  {"TiB", 0x1p40},
                                                  {"kB", 1e3},
                                                  {"KB", 1e3},
                                                  {"MB", 1e6},
                                                  {"GB", 1e9},
                                                  {"TB", 1e12}}};
  double factor = 1;
  if (text.ends_with('B')) {
    for (const Unit& unit : kUnits) {
      if (text.ends_with(unit.name)) {
        factor = unit.bytes;
        text.remove_suffix(unit.name.size());
        break;
      }
    }
    if (factor == 1) text.remove_suffix(1);
  }
  while (text.ends_with(' ')) text.remove_suffix(1);
  double value = 0;
  if (text.empty() || text.find_first_not_of("0123456789.") != text.npos ||
      !absl::SimpleAtod(std::string(text), &value)) {
    return std::nullopt;
  }
  value *= factor;
  if (!(value < 0x1p63)) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

std::string AgeText(absl::Time then, absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(now - then);
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

std::string TimeText(absl::Time time) {
  if (time == absl::UnixEpoch()) return "";
  // absl's way, which knows time zones, takes ten times as long; a log has one
  // in each line.
  using std::chrono::floor, std::chrono::days, std::chrono::milliseconds;
  const std::chrono::sys_time<milliseconds> at{
      milliseconds(absl::ToUnixMillis(time))};
  constexpr std::chrono::sys_days kFirst = std::chrono::year(1970) / 1 / 1;
  constexpr std::chrono::sys_days kEnd = std::chrono::year(10000) / 1 / 1;
  if (at < kFirst || at >= kEnd) {
    return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  }
  const auto day = floor<days>(at);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss<milliseconds> clock(at - day);
  std::string text = "0000-00-00T00:00:00.000Z";
  const auto put = [&text](std::size_t last, std::int64_t number) {
    for (; number > 0; number /= 10) {
      text[last--] = static_cast<char>('0' + number % 10);
    }
  };
  put(3, static_cast<int>(date.year()));
  put(6, static_cast<unsigned>(date.month()));
  put(9, static_cast<unsigned>(date.day()));
  put(12, clock.hours().count());
  put(15, clock.minutes().count());
  put(18, clock.seconds().count());
  put(22, clock.subseconds().count());
  return text;
}

std::string DurationText(absl::Duration duration) {
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 100) return absl::StrFormat("%.3g s", seconds);
  return absl::StrFormat("%.1f min", seconds / 60);
}

std::string NumberText(double value) { return DecimalText(value); }

std::string ShortNumberText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[32];  // "-1.23456e-308" at most.
  const auto end = std::to_chars(text, text + sizeof text, value,
                                 std::chars_format::general, 6);
  return std::string(text, end.ptr);
}

std::string CountText(std::uint64_t count, std::string_view one,
                      std::string_view many) {
  return absl::StrFormat("%d %s", count, count == 1 ? one : many);
}

}  // namespace ckptree::tools
