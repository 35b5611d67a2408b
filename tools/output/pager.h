// SPDX-License-Identifier: Apache-2.0

// Long output on a terminal, shown by the user's pager.

#ifndef CKPTREE_TOOLS_OUTPUT_PAGER_H_
#define CKPTREE_TOOLS_OUTPUT_PAGER_H_

#include <sys/types.h>

#include <string>
#include <string_view>

namespace ckptree::tools {

// The pager of CKPTREE_PAGER, of PAGER, or `less`; empty, or `cat`: none.
// Started only where what is to be printed has more lines than the terminal:
// what is shorter stands there at once. One at a time.
class Pager {
 public:
  // Nothing is ever started unless `allowed` and standard output is a terminal.
  explicit Pager(bool allowed) : allowed_(allowed) {}
  ~Pager() { Wait(); }
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Where output goes that begins with `text`: standard output, or a pager that
  // was started.
  int DescriptorFor(std::string_view text);

  bool started() const { return child_ > 0; }
  // Until the user has left it.
  void Wait();

 private:
  const bool allowed_;
  pid_t child_ = 0;
  int pipe_ = -1;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_PAGER_H_
