// SPDX-License-Identifier: Apache-2.0

#include "tools/output/terminal.h"

#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace ckptree::tools {
namespace {

// One code point, or a byte that is not part of one.
struct Rune {
  std::string_view bytes;
  char32_t value = 0;
  bool valid = false;
};

Rune FirstRune(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char lead = byte(0);
  std::size_t length = 1;
  char32_t value = lead;
  char32_t smallest = 0;
  if (lead >= 0xf0 && lead < 0xf5) {
    length = 4, value = lead & 0x07u, smallest = 0x10000;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    length = 3, value = lead & 0x0fu, smallest = 0x800;
  } else if (lead >= 0xc2 && lead < 0xe0) {
    length = 2, value = lead & 0x1fu, smallest = 0x80;
  } else if (lead >= 0x80) {
    return {text.substr(0, 1), 0, false};
  }
  if (text.size() < length) return {text.substr(0, 1), 0, false};
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {text.substr(0, 1), 0, false};
    value = (value << 6) | (byte(i) & 0x3fu);
  }
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (value < smallest || value > 0x10ffff || surrogate) {
    return {text.substr(0, 1), 0, false};
  }
  return {text.substr(0, length), value, true};
}

bool IsControl(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c ||
         (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c >= 0xe0000;
}

// Text that stays as it is, and has a column for each byte: most is such.
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= 0x20 && c < 0x7f; });
}

int RuneWidth(const Rune& rune) {
  if (!rune.valid || rune.value < 0x80) return 1;
  const int width = wcwidth(static_cast<wchar_t>(rune.value));
  return width < 0 ? 1 : width;
}

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

}  // namespace

Terminal DetectTerminal(int descriptor, std::string_view color) {
  Terminal terminal;
  terminal.is_terminal = isatty(descriptor) == 1;
  terminal.utf8 = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  winsize size{};
  int columns = 0;
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.width = size.ws_col;
  } else if (absl::SimpleAtoi(std::string(Variable("COLUMNS")), &columns) &&
             columns > 0) {
    terminal.width = columns;
  }
  if (color == "always") {
    terminal.color = true;
  } else if (color != "never") {
    const std::string_view force = Variable("CLICOLOR_FORCE");
    if (!Variable("NO_COLOR").empty()) {
      terminal.color = false;
    } else if (!force.empty() && force != "0") {
      terminal.color = true;
    } else {
      terminal.color = terminal.is_terminal && Variable("TERM") != "dumb";
    }
  }
  return terminal;
}

std::string EscapeBut(std::string_view text, std::string_view keep) {
  if (IsPlain(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Rune rune = FirstRune(text);
    text.remove_prefix(rune.bytes.size());
    if (!rune.valid) {
      absl::StrAppendFormat(&out, "\\x%02x",
                            static_cast<unsigned char>(rune.bytes[0]));
    } else if (!IsControl(rune.value) ||
               keep.find(rune.bytes) != std::string_view::npos) {
      out.append(rune.bytes);
    } else if (rune.value == '\n') {
      out += "\\n";
    } else if (rune.value == '\t') {
      out += "\\t";
    } else if (rune.value == '\r') {
      out += "\\r";
    } else if (rune.value < 0x100) {
      absl::StrAppendFormat(&out, "\\x%02x",
                            static_cast<std::uint32_t>(rune.value));
    } else {
      absl::StrAppendFormat(&out, "\\u%04x",
                            static_cast<std::uint32_t>(rune.value));
    }
  }
  return out;
}

std::string Escape(std::string_view text) { return EscapeBut(text, ""); }

std::string EscapeLines(std::string_view text) {
  return EscapeBut(text, "\n\t");
}

std::string ShellWord(std::string_view text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("/._-+:,@%=").find(c) != std::string_view::npos;
  });
  if (plain) return std::string(text);
  return "'" + absl::StrReplaceAll(Escape(text), {{"'", "'\\''"}}) + "'";
}

int DisplayWidth(std::string_view text) {
  if (IsPlain(text)) return static_cast<int>(text.size());
  int width = 0;
  while (!text.empty()) {
    const Rune rune = FirstRune(text);
    text.remove_prefix(rune.bytes.size());
    width += RuneWidth(rune);
  }
  return width;
}

std::string ElideMiddle(std::string_view text, int width, bool utf8) {
  if (DisplayWidth(text) <= width) return std::string(text);
  const std::string_view mark = utf8 ? "…" : "...";
  const int mark_width = utf8 ? 1 : 3;
  if (width <= mark_width) return std::string(mark.substr(0, utf8 ? 3 : 1));

  std::vector<Rune> runes;
  for (std::string_view rest = text; !rest.empty();) {
    runes.push_back(FirstRune(rest));
    rest.remove_prefix(runes.back().bytes.size());
  }
  // The end of a key says more than its start.
  const int room = width - mark_width;
  int head_room = room / 3;
  int tail_room = room - head_room;
  std::string head;
  for (const Rune& rune : runes) {
    if (RuneWidth(rune) > head_room) break;
    head_room -= RuneWidth(rune);
    head.append(rune.bytes);
  }
  std::size_t first = runes.size();
  while (first > 0 && RuneWidth(runes[first - 1]) <= tail_room) {
    tail_room -= RuneWidth(runes[--first]);
  }
  std::string result = head;
  result.append(mark);
  for (; first < runes.size(); ++first) result.append(runes[first].bytes);
  return result;
}

std::string Paint(std::string_view text, Tone tone, bool color) {
  if (!color || tone == Tone::kPlain || text.empty()) return std::string(text);
  const char* code = "";
  switch (tone) {
    case Tone::kPlain:
      break;
    case Tone::kHeading:
      code = "1";
      break;
    case Tone::kGood:
      code = "32";
      break;
    case Tone::kWarning:
      code = "33";
      break;
    case Tone::kBad:
      code = "31";
      break;
    case Tone::kFaint:
      code = "2";
      break;
  }
  return absl::StrFormat("\x1b[%sm%s\x1b[0m", code, text);
}

}  // namespace ckptree::tools
