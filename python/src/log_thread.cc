// SPDX-License-Identifier: Apache-2.0

#include "python/src/log_thread.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace ckptree::python {

void StartLogs() noexcept {
  if (!logs_need_thread.exchange(false)) return;
  // The call may be on its way out with an exception.
  const nb::error_scope raised;
  try {
    nb::module_::import_("ckptree.logs").attr("_start")();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("the thread that logs");
  } catch (...) {
    // No memory: the messages wait for the next call that delivers them.
  }
}

}  // namespace ckptree::python
