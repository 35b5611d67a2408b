// SPDX-License-Identifier: Apache-2.0

// The memory that saves copy into, which a device may want locked.

#ifndef CKPTREE_PYTHON_SRC_STAGING_MEMORY_H_
#define CKPTREE_PYTHON_SRC_STAGING_MEMORY_H_

#include "ckptree/options.h"

namespace ckptree::python {

// Pages of the system. From the first call of _engine.lock_staging() on those
// that are new are locked by what it was given: a device copies to locked
// memory two to four times as fast, and beside what the processor does.
HostAllocator StagingMemory();

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_STAGING_MEMORY_H_
