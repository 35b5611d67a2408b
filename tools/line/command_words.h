// SPDX-License-Identifier: Apache-2.0

// The words that a command takes.

#ifndef CKPTREE_TOOLS_LINE_COMMAND_WORDS_H_
#define CKPTREE_TOOLS_LINE_COMMAND_WORDS_H_

#include <string_view>

#include "absl/status/status.h"
#include "tools/line/arguments.h"

namespace ckptree::tools {

// `syntax` is what the help of the command has of its words, of which it takes
// from `least` to `most`. kInvalidArgument: there are too few or too many.
absl::Status CheckWords(std::string_view command, std::string_view syntax,
                        int least, int most, const Arguments& arguments);

// `failure` of that command, or kInvalidArgument that says what was meant,
// where a word stands for what a flag names: `ckptree log run`.
absl::Status OrWhatWasMeant(std::string_view command, std::string_view syntax,
                            const Arguments& arguments, absl::Status failure);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_COMMAND_WORDS_H_
