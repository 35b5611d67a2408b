// SPDX-License-Identifier: Apache-2.0

// What the terminal can show, and text made fit for it.

#ifndef CKPTREE_TOOLS_OUTPUT_TERMINAL_H_
#define CKPTREE_TOOLS_OUTPUT_TERMINAL_H_

#include <string>
#include <string_view>

namespace ckptree::tools {

enum class Tone { kPlain, kHeading, kGood, kWarning, kBad, kFaint };

// Where text goes. Value type.
struct Terminal {
  bool is_terminal = false;
  bool color = false;
  bool utf8 = false;
  int width = 80;  // Columns; of use only where is_terminal.
};

// What `descriptor` is. `color` is "auto", "always" or "never"; "auto" follows
// NO_COLOR, CLICOLOR_FORCE and TERM.
Terminal DetectTerminal(int descriptor, std::string_view color);

// `text` with everything that could move a cursor, hide text or is no UTF-8
// written as \n, \x1b or \u202e.
std::string Escape(std::string_view text);

// As Escape, but for the characters `keep`, which stay.
std::string EscapeBut(std::string_view text, std::string_view keep);

// As Escape, but for tabs and line ends, which stay.
std::string EscapeLines(std::string_view text);

// `text` as one word of a shell: in quotes where it needs them.
std::string ShellWord(std::string_view text);

// Columns that `text` takes; UTF-8 without control characters.
int DisplayWidth(std::string_view text);

// `text` in at most `width` columns, its middle left out where it is longer.
std::string ElideMiddle(std::string_view text, int width, bool utf8);

// `text` between the codes of `tone`; as it is where there is no colour.
std::string Paint(std::string_view text, Tone tone, bool color);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_TERMINAL_H_
