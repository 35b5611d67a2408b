// SPDX-License-Identifier: Apache-2.0

// A process that has printed all and only has to end.

#ifndef CKPTREE_TOOLS_OUTPUT_ENDING_H_
#define CKPTREE_TOOLS_OUTPUT_ENDING_H_

#include <atomic>

namespace ckptree::tools {

// Set by a command once what it has made is not needed any more, and of no use
// to what comes after it. The program frees no memory from then on: to free a
// hundred thousand small pieces takes longer than to print them, and the end of
// the process frees them at once. Other programs take no notice.
inline std::atomic<bool> frees_no_more{false};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_ENDING_H_
