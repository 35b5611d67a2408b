// SPDX-License-Identifier: Apache-2.0

// Flags that stand in front of the command: `ckptree -C DIR log`.

#ifndef CKPTREE_TOOLS_LINE_LEADING_FLAGS_H_
#define CKPTREE_TOOLS_LINE_LEADING_FLAGS_H_

#include <span>
#include <string>
#include <vector>

#include "tools/line/arguments.h"

namespace ckptree::tools {

// The flag in front of the command whose value may have been taken for it: one
// that not every command has. Empty: there is none. `words` are all of the
// line.
std::string FlagInFront(const std::vector<std::string>& words,
                        std::span<const FlagSpec> of_every);

// Moves flags that stand before the command behind it; returns the command.
std::string TakeCommand(std::vector<std::string>* words);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_LEADING_FLAGS_H_
