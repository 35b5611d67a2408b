// SPDX-License-Identifier: Apache-2.0

#include "tools/line/command_words.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/address.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

absl::Status CheckWords(std::string_view command, std::string_view syntax,
                        int least, int most, const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  const auto given = static_cast<int>(words.size());
  if (given < least) {
    return absl::InvalidArgumentError(
        absl::StrFormat("`ckptree %s` needs %s", command, syntax));
  }
  if (given <= most) return absl::OkStatus();
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrFormat("`ckptree %s` cannot take `%s`", command,
                      Escape(words[static_cast<std::size_t>(most)])));
  // `get 100 params/w`, and the other way round.
  if (most != 1 || syntax.find(":KEY") == std::string_view::npos) {
    return refused;
  }
  const bool is_rev = ParseAddress(words[0]).ok();
  return WithHint(
      refused, absl::StrFormat("a step and its key are one word: "
                               "`%s:%s`",
                               words[is_rev ? 0 : 1], words[is_rev ? 1 : 0]));
}

}  // namespace ckptree::tools
