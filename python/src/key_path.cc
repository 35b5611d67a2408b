// SPDX-License-Identifier: Apache-2.0

#include "python/src/key_path.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "python/src/errors.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

std::string Shown(nb::handle key) { return nb::repr(key).c_str(); }

// A str as UTF-8. ValueError where it has lone surrogates.
std::string Utf8(nb::handle text, const Parts& parent) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) {
    PyErr_Clear();
    const std::string message =
        absl::StrFormat("%s: the key %s cannot be written as UTF-8",
                        NameOf(parent), Shown(text));
    throw nb::value_error(message.c_str());
  }
  return std::string(bytes, static_cast<std::size_t>(size));
}

}  // namespace

PathPart DictKey(Key key) {
  return PathPart{PartKind::kDictKey, std::move(key)};
}

PathPart Index(std::int64_t index) {
  return PathPart{PartKind::kIndex, Key{index}};
}

PathPart Attribute(std::string_view name) {
  return PathPart{PartKind::kAttribute, Key{std::string(name)}};
}

PathPart Flattened(std::int64_t index) {
  return PathPart{PartKind::kFlattened, Key{index}};
}

Key ToKey(nb::handle key, const Parts& parent) {
  PyObject* const object = key.ptr();
  if (PyUnicode_CheckExact(object)) return Key{Utf8(key, parent)};
  if (object == Py_None) return Key{Key::None{}};
  if (PyBool_Check(object)) return Key{object == Py_True};
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) {
      const std::string message =
          absl::StrFormat("%s: the key %s does not fit 64 bits; use a str",
                          NameOf(parent), Shown(key));
      throw nb::value_error(message.c_str());
    }
    return Key{static_cast<std::int64_t>(value)};
  }
  if (PyFloat_CheckExact(object)) return Key{PyFloat_AsDouble(object)};
  if (PyBytes_CheckExact(object)) {
    return Key{Key::Bytes{
        std::string(PyBytes_AsString(object),
                    static_cast<std::size_t>(PyBytes_Size(object)))}};
  }
  if (PyTuple_CheckExact(object)) {
    Key::Tuple elements;
    for (const nb::handle element : nb::borrow<nb::tuple>(key)) {
      elements.push_back(ToKey(element, parent));
    }
    return Key{std::move(elements)};
  }
  const std::string message = absl::StrFormat(
      "%s: the key %s is of type %s; keys are str, int, float, bool, None, "
      "bytes or "
      "tuples of these",
      NameOf(parent), Shown(key), nb::type_name(key.type()).c_str());
  throw nb::type_error(message.c_str());
}

nb::object FromKey(const Key& key) {
  return std::visit(
      [](const auto& value) -> nb::object {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, Key::None>) {
          return nb::none();
        } else if constexpr (std::is_same_v<Value, bool>) {
          return nb::bool_(value);
        } else if constexpr (std::is_same_v<Value, std::int64_t>) {
          return nb::int_(value);
        } else if constexpr (std::is_same_v<Value, double>) {
          return nb::float_(value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return ToText(value);
        } else if constexpr (std::is_same_v<Value, Key::Bytes>) {
          return nb::bytes(value.value.data(), value.value.size());
        } else {
          nb::list elements;
          for (const Key& element : value) elements.append(FromKey(element));
          return nb::tuple(elements);
        }
      },
      key.value);
}

PathTuple FromPath(const Path& path) {
  nb::list parts;
  for (const PathPart& part : path.parts()) {
    parts.append(
        nb::make_tuple(static_cast<int>(part.kind), FromKey(part.key)));
  }
  return nb::tuple(parts);
}

std::string NameOf(const Parts& parts) {
  return parts.empty() ? "the state" : Path(parts).Text();
}

}  // namespace ckptree::python
