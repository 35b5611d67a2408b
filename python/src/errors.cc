// SPDX-License-Identifier: Apache-2.0

#include "python/src/errors.h"

namespace nb = nanobind;

namespace ckptree::python {

void Raise(const absl::Status& status) {
  const std::string_view message(status.message().data(),
                                 status.message().size());
  const nb::object error =
      nb::module_::import_("ckptree.errors")
          .attr("from_status")(static_cast<int>(status.code()),
                               ToText(message));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())),
                  error.ptr());
  throw nb::python_error();
}

nb::str ToText(std::string_view text) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

nb::str ToFileName(std::string_view name) {
  return nb::steal<nb::str>(PyUnicode_DecodeFSDefaultAndSize(
      name.data(), static_cast<Py_ssize_t>(name.size())));
}

std::string FromFileName(nb::handle path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) throw nb::python_error();
  const nb::bytes owned = nb::steal<nb::bytes>(bytes);
  return std::string(owned.c_str(), owned.size());
}

}  // namespace ckptree::python
