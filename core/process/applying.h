// SPDX-License-Identifier: Apache-2.0

// What follows a commit, in this process.

#ifndef CKPTREE_CORE_PROCESS_APPLYING_H_
#define CKPTREE_CORE_PROCESS_APPLYING_H_

#include <exception>

#include "kv/database.h"

namespace ckptree::internal {

// Stands from a commit that succeeded until all that this process knows of the
// store fits it. Where something is thrown in between (there was no memory) the
// handle is dead: another change would build on what is no longer so.
class Applying {
 public:
  explicit Applying(const kv::Database& database)
      : database_(database), thrown_(std::uncaught_exceptions()) {}
  ~Applying() {
    if (std::uncaught_exceptions() > thrown_) database_.Abandon();
  }
  Applying(const Applying&) = delete;
  Applying& operator=(const Applying&) = delete;

 private:
  const kv::Database& database_;
  const int thrown_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_PROCESS_APPLYING_H_
