// SPDX-License-Identifier: Apache-2.0

#include "python/src/in_function.h"

namespace ckptree::python {
namespace {

thread_local int calls = 0;  // That this thread is in.

}  // namespace

bool IsInFunction() { return calls > 0; }

InFunction::InFunction() { ++calls; }
InFunction::~InFunction() { --calls; }

}  // namespace ckptree::python
