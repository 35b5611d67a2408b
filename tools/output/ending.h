// SPDX-License-Identifier: Apache-2.0

// What a command has no use for once it has printed all.

#ifndef CKPTREE_TOOLS_OUTPUT_ENDING_H_
#define CKPTREE_TOOLS_OUTPUT_ENDING_H_

#include <memory>
#include <utility>
#include <vector>

namespace ckptree::tools {

// Keeps `thing` for the end of the process, which frees all at once: to free a
// hundred thousand small pieces by themselves takes longer than to print them.
// Of one thread.
template <typename Thing>
void KeepToTheEnd(Thing thing) {
  // Never destroyed, and never lost: leak checkers find all in it.
  static auto* const kept = new std::vector<std::shared_ptr<void>>();
  kept->push_back(std::make_shared<Thing>(std::move(thing)));
}

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_ENDING_H_
