// SPDX-License-Identifier: Apache-2.0

#include "python/src/path_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "python/src/errors.h"

namespace nb = nanobind;

namespace ckptree::python {

void RaiseAt(const Parts& path, std::string_view what) {
  const std::string message = absl::StrCat(
      NameOf(path), ": ", absl::string_view(what.data(), what.size()));
  throw nb::value_error(message.c_str());
}

void RethrowAt(const Parts& path, nb::python_error& raised) {
  // KeyboardInterrupt and the like stay what they are.
  if (!raised.matches(PyExc_Exception)) throw;
  const nb::object error =
      nb::module_::import_("ckptree.errors")
          .attr("at_path")(ToText(NameOf(path)), raised.value());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())),
                  error.ptr());
  throw nb::python_error();
}

}  // namespace ckptree::python
