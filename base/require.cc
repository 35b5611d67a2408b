// SPDX-License-Identifier: Apache-2.0

#include "base/require.h"

#include <cstdio>
#include <cstdlib>

namespace ckptree::base {

void Require(bool met, const char* message) {
  if (met) return;
  std::fprintf(stderr, "ckptree: %s\n", message);
  std::abort();
}

}  // namespace ckptree::base
