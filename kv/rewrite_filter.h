// SPDX-License-Identifier: Apache-2.0

// Which records a rewrite of segment files keeps.

#ifndef CKPTREE_KV_REWRITE_FILTER_H_
#define CKPTREE_KV_REWRITE_FILTER_H_

#include <cstddef>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace ckptree::kv {

// Told of every record of the files that are rewritten, in key order; false
// leaves it out.
using KeepFn = absl::FunctionRef<bool(std::string_view key, std::size_t bytes)>;

// While it lives, compactions that this thread runs ask `keep`; all others keep
// everything. One at a time in a thread.
class RewriteScope {
 public:
  explicit RewriteScope(KeepFn keep);
  ~RewriteScope();
  RewriteScope(const RewriteScope&) = delete;
  RewriteScope& operator=(const RewriteScope&) = delete;

  // True while this thread has one: an error of its compaction leaves all files
  // as they were.
  static bool Active();

 private:
  const KeepFn keep_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_REWRITE_FILTER_H_
