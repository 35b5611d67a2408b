// SPDX-License-Identifier: Apache-2.0

#include "tools/output/decimal.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"

namespace ckptree::tools {
namespace {

// From "-d.ddde+xx", as std::to_chars writes it.
std::string Layout(std::string_view scientific) {
  std::string out;
  if (scientific.front() == '-') {
    out += '-';
    scientific.remove_prefix(1);
  }
  const std::size_t e = scientific.find('e');
  const int exponent = std::atoi(std::string(scientific.substr(e + 1)).c_str());
  std::string digits(1, scientific[0]);
  if (e > 2) digits.append(scientific.substr(2, e - 2));
  while (digits.size() > 1 && digits.back() == '0') digits.pop_back();

  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(".").append(digits, 1);
    out += absl::StrFormat("e%c%02d", exponent < 0 ? '-' : '+',
                           std::abs(exponent));
  } else if (exponent < 0) {
    out.append("0.");
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    out += digits;
  } else if (count <= exponent + 1) {
    out += digits +
           std::string(static_cast<std::size_t>(exponent + 1 - count), '0') +
           ".0";
  } else {
    const auto whole = static_cast<std::size_t>(exponent + 1);
    out += digits.substr(0, whole) + "." + digits.substr(whole);
  }
  return out;
}

template <typename Float>
std::string Shortest(Float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const std::to_chars_result end = std::to_chars(
      buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  return Layout(std::string_view(buffer, end.ptr));
}

}  // namespace

std::string DecimalText(float value) { return Shortest(value); }
std::string DecimalText(double value) { return Shortest(value); }

std::string DecimalTextBetween(double value, double low, double high) {
  for (int precision = 0; precision < 17; ++precision) {
    char buffer[64];
    const std::to_chars_result end =
        std::to_chars(buffer, buffer + sizeof buffer, value,
                      std::chars_format::scientific, precision);
    double read = 0;
    std::from_chars(buffer, end.ptr, read);
    if (low < read && read < high) {
      return Layout(std::string_view(buffer, end.ptr));
    }
  }
  return DecimalText(value);
}

std::string DecimalText(std::span<const std::byte> integer) {
  constexpr std::uint32_t kDigits = 1'000'000'000;  // Nine at a time.
  const bool negative =
      !integer.empty() && (integer.back() & std::byte{0x80}) != std::byte{0};
  std::vector<std::uint32_t> parts;  // The lowest first.
  for (std::size_t i = integer.size(); i > 0; --i) {
    // Of a negative number the complement, which is one too small.
    const std::byte byte = negative ? ~integer[i - 1] : integer[i - 1];
    std::uint64_t carry = std::to_integer<std::uint64_t>(byte);
    for (std::uint32_t& part : parts) {
      carry += std::uint64_t{part} << 8;
      part = static_cast<std::uint32_t>(carry % kDigits);
      carry /= kDigits;
    }
    if (carry > 0) parts.push_back(static_cast<std::uint32_t>(carry));
  }
  if (negative) {
    std::uint32_t* part = parts.data();
    std::uint32_t* const end = part + parts.size();
    while (part != end && *part == kDigits - 1) *part++ = 0;
    if (part == end) {
      parts.push_back(1);
    } else {
      ++*part;
    }
  }
  std::string text = negative ? "-" : "";
  if (parts.empty()) return "0";
  absl::StrAppendFormat(&text, "%d", parts.back());
  for (std::size_t i = parts.size() - 1; i > 0; --i) {
    absl::StrAppendFormat(&text, "%09d", parts[i - 1]);
  }
  return text;
}

}  // namespace ckptree::tools
