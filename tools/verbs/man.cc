// SPDX-License-Identifier: Apache-2.0

// Manual pages, out of the table that help and completion come from.

#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckptree/version.h"
#include "tools/line/command.h"

namespace ckptree::tools {
namespace {

// `text` as troff prints it, line by line.
std::string Troff(std::string_view text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    begins = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '^') {
      out += "\\(ha";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Head(std::string_view name, std::string_view summary) {
  return absl::StrFormat(
      ".TH %s 1 \"\" \"ckptree %s\" \"ckptree\"\n.SH NAME\n%s \\- %s\n",
      absl::AsciiStrToUpper(std::string(name)), Version(), Troff(name),
      Troff(summary));
}

}  // namespace

std::string ManText(const Command* command) {
  if (command == nullptr) {
    std::string text = Head("ckptree", "what is in a checkpoint store");
    text +=
        ".SH SYNOPSIS\n.B ckptree\n[\\-C STORE] COMMAND [REV[:KEY[SLICE]]] "
        "[flags]\n.SH COMMANDS\n";
    for (const Command& one : Commands()) {
      if (one.hidden) continue;
      absl::StrAppendFormat(&text, ".TP\n.B %s\n%s\n", Troff(one.name),
                            Troff(one.summary));
    }
    text +=
        ".SH SEE ALSO\nOf each command: ckptree\\-COMMAND(1), and "
        "\\(gackptree help COMMAND\\(ga.\n";
    return text;
  }
  std::string text = Head(absl::StrCat("ckptree-", std::string(command->name)),
                          command->summary);
  absl::StrAppendFormat(
      &text, ".SH SYNOPSIS\n.B ckptree %s\n%s\n", Troff(command->name),
      Troff(absl::StrCat(std::string(command->words),
                         command->words.empty() ? "" : " ", "[flags]")));
  if (!command->details.empty()) {
    absl::StrAppendFormat(&text, ".SH DESCRIPTION\n.nf\n%s\n.fi\n",
                          Troff(command->details));
  }
  text += ".SH OPTIONS\n";
  for (const FlagSpec& flag : FlagsOf(*command)) {
    std::string name =
        flag.letter == 0 ? "" : absl::StrFormat("-%c, ", flag.letter);
    absl::StrAppendFormat(&name, "--%s", flag.name);
    absl::StrAppendFormat(&text, ".TP\n.B %s\n", Troff(name));
    if (!flag.value.empty()) {
      text.pop_back();
      absl::StrAppendFormat(&text, " \\fI%s\\fR\n", Troff(flag.value));
    }
    absl::StrAppendFormat(&text, "%s\n", Troff(flag.help));
  }
  text += ".SH SEE ALSO\nckptree(1)\n";
  return text;
}

}  // namespace ckptree::tools
