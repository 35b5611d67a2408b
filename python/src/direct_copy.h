// SPDX-License-Identifier: Apache-2.0

// How the bytes of protocol.Direct get to the host.

#ifndef CKPTREE_PYTHON_SRC_DIRECT_COPY_H_
#define CKPTREE_PYTHON_SRC_DIRECT_COPY_H_

#include <nanobind/nanobind.h>

#include "ckptree/tensor.h"

namespace ckptree::python {

// Needs the GIL; what it gives takes it for the check of `direct` alone. The
// array has to stay as long as that is called.
CopyFn DirectCopy(nanobind::handle direct);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_DIRECT_COPY_H_
