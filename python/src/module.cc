// SPDX-License-Identifier: Apache-2.0

// The extension ckptree._engine: the engine as Python's objects. What users see
// is in the package; nothing here is for them.

#include <nanobind/nanobind.h>

#include <exception>
#include <string>

#include "ckptree/version.h"
#include "python/src/bindings.h"
#include "python/src/interpreter_lock.h"

NB_MODULE(_engine, m) {
  m.doc() = "The engine behind the package ckptree; no interface of its own.";
  // Python frees nothing of a daemon thread when it exits, which would read as
  // a fault of this extension: for whoever looks for such, `python -X dev`.
  const nanobind::handle flags = PySys_GetObject("flags");
  nanobind::set_leak_warnings(flags.is_valid() &&
                              nanobind::cast<bool>(flags.attr("dev_mode")));
  // Python ends a daemon's thread also in the midst of its own code that a
  // binding calls, as of the class of an error. nanobind catches what unwinds
  // that, which is no exception of C++, and would throw nothing again.
  nanobind::register_exception_translator(
      [](const std::exception_ptr& caught, void*) {
        if (caught == nullptr) ckptree::python::StayUntilTheEnd();
        std::rethrow_exception(caught);
      });
  const std::string version(ckptree::Version());
  m.attr("VERSION") = nanobind::str(version.c_str());
  m.attr("FORMAT") = ckptree::FormatNumber();
  ckptree::python::BindPolicy(m);
  ckptree::python::BindStore(m);
  ckptree::python::BindStep(m);
  ckptree::python::BindCuda(m);
  ckptree::python::BindSave(m);
  ckptree::python::BindRankGroup(m);
  ckptree::python::BindRankedSave(m);
  ckptree::python::BindManager(m);
  ckptree::python::BindHistory(m);
  ckptree::python::BindArrayMemory(m);
  ckptree::python::BindStagingMemory(m);
  ckptree::python::BindLogs(m);
  ckptree::python::BindView(m);
  ckptree::python::BindInventory(m);
}
