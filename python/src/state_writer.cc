// SPDX-License-Identifier: Apache-2.0

#include "python/src/state_writer.h"

#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "python/src/direct_copy.h"
#include "python/src/errors.h"
#include "python/src/numpy_array.h"
#include "python/src/path_error.h"
#include "python/src/python_function.h"

namespace nb = nanobind;

namespace ckptree::python {
void StateWriter::Write(nb::handle state) {
  std::optional<Node> root = OpenContainer(state, here());
  if (!root.has_value()) {
    const nb::object adapted = Adapt(state);
    if (nb::isinstance(adapted, rules_->container_type)) root = Open(adapted);
  }
  if (!root.has_value() || root->type == EntryKind::kNone || root->IsLeaf()) {
    const std::string message = absl::StrCat(
        "the state is of type ",
        std::string(nb::type_name(state.type()).c_str()),
        "; a state is a dict or another container: save {\"name\": value}");
    throw nb::type_error(message.c_str());
  }
  ancestors_.Enter(state, here());
  if (root->NamesItems()) {
    WriteChildren(*root);
    return;
  }
  path_.Key(kRootItem);
  WriteNode(*root, root->tag.empty() ? std::string(kRootMark)
                                     : absl::StrCat(kRootMark, " ", root->tag));
}

Node StateWriter::Open(const nb::object& container) {
  Node node = OpenContainerOf(container, here());
  kept_.append(container);
  const nb::object variables = container.attr("variables");
  if (!variables.is_none()) {
    const std::string name = path_.empty() ? "" : NameOf(here());
    variables_[ToText(name)] = variables();
  }
  return node;
}

void StateWriter::WriteValue(nb::handle value) {
  constexpr std::size_t kMoment = 1000;  // Of many, for Ctrl-C.
  if (++written_ % kMoment == 0 && PyErr_CheckSignals() != 0) {
    throw nb::python_error();
  }
  if (WriteScalar(value)) return;
  if (value.type().is(rules_->array_type)) {
    WriteArray(value);
    return;
  }
  if (PyDict_CheckExact(value.ptr()) && PyDict_GET_SIZE(value.ptr()) > 0) {
    ancestors_.Enter(value, here());
    WriteDict(value);
    ancestors_.Leave();
    return;
  }
  if (frozen_type_.is(value.type()) && WriteFrozen(value)) return;
  std::optional<Node> node = OpenContainer(value, here());
  if (!node.has_value()) {
    const nb::object adapted = Adapt(value);
    if (nb::isinstance(adapted, rules_->pieces_type)) {
      WritePieces(adapted);
      if (nb::object view = adapted.attr("view"); !view.is_none()) {
        frozen_type_ = nb::borrow(value.type());
        frozen_view_ = std::move(view);
      }
      return;
    }
    if (nb::isinstance(adapted, rules_->content_type)) {
      WriteContent(adapted);
      return;
    }
    node = Open(adapted);
  }
  ancestors_.Enter(value, here());
  if (node->Implied()) {
    WriteChildren(*node);
  } else {
    WriteNode(*node, node->tag);
  }
  ancestors_.Leave();
}

void StateWriter::WriteNode(const Node& node, const std::string& tag) {
  step_->PutNode(path_, node.type, tag);
  WriteChildren(node);
}

void StateWriter::WriteChildren(const Node& node) {
  for (const Child& child : node.children) {
    path_.Part(child.part);
    WriteValue(child.value);
    path_.Up();
  }
}

void StateWriter::WriteDict(nb::handle dict) {
  const Py_ssize_t size = PyDict_GET_SIZE(dict.ptr());
  Py_ssize_t at = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(dict.ptr(), &at, &key, &value) != 0) {
    // What the walk calls may take them out of the dict.
    const nb::object held_key = nb::borrow(key);
    const nb::object held = nb::borrow(value);
    path_.Key(ToKey(held_key, here()));
    WriteValue(held);
    path_.Up();
    if (PyDict_GET_SIZE(dict.ptr()) != size) {
      RaiseAt(here(), "the dict changed its size while it was saved");
    }
  }
}

bool StateWriter::WriteScalar(nb::handle value) {
  PyObject* const object = value.ptr();
  if (PyBool_Check(object)) {
    step_->PutBool(path_, object == Py_True);
  } else if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow != 0) {
      WriteLargeInt(value);
    } else {
      step_->PutInt(path_, number);
    }
  } else if (PyFloat_CheckExact(object)) {
    step_->PutFloat(path_, PyFloat_AsDouble(object));
  } else if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) {
      PyErr_Clear();
      RaiseAt(here(),
              "a str that cannot be written as UTF-8; save it as bytes");
    }
    step_->PutString(path_, std::string(text, static_cast<std::size_t>(size)));
  } else if (PyBytes_CheckExact(object)) {
    step_->PutBytes(
        path_, std::string(PyBytes_AsString(object),
                           static_cast<std::size_t>(PyBytes_Size(object))));
  } else if (PyComplex_CheckExact(object)) {
    step_->PutComplex(path_, PyComplex_RealAsDouble(object),
                      PyComplex_ImagAsDouble(object));
  } else {
    return false;
  }
  return true;
}

// More than 64 bits, as random generators have: an array of bytes,
// little-endian two's complement.
void StateWriter::WriteLargeInt(nb::handle value) {
  const auto bits = nb::cast<std::size_t>(value.attr("bit_length")());
  const std::size_t size = bits / 8 + 1;
  const auto bytes = nb::cast<nb::bytes>(
      value.attr("to_bytes")(size, "little", nb::arg("signed") = true));
  kept_.append(bytes);
  Tensor tensor;
  tensor.dtype = DType::kUint8;
  tensor.shape = {static_cast<std::int64_t>(size)};
  tensor.data = bytes.c_str();
  tensor.tag = "int";
  step_->Put(path_, std::move(tensor), Ownership::kBorrow);
}

void StateWriter::WriteArray(nb::handle array) {
  if (!arrays_.Add(array.ptr(), path_)) {
    const absl::StatusOr<Path> target = arrays_.PathOf(array.ptr());
    // Else it breaks a limit, of which Put() has told the step.
    if (target.ok()) step_->Tie(path_, *target);
    return;
  }
  const nb::object descr = DTypeObjectOf(array);
  const std::optional<DType> dtype = NativeDType(descr);
  if (!dtype.has_value()) {
    // Swapped into an array of our own.
    const nb::object native =
        array.attr("astype")(descr.attr("newbyteorder")("="));
    kept_.append(native);
    step_->Put(path_, ToTensor(native, DTypeOf(native.attr("dtype"))),
               Ownership::kBorrow);
    return;
  }
  kept_.append(array);
  copies_ = copies_ || ownership_ == Ownership::kCopy;
  step_->Put(path_, ToNumpyTensor(array, *dtype), ownership_);
}

std::optional<DType> StateWriter::NativeDType(const nb::object& dtype) {
  for (const auto& [known, number] : dtypes_) {
    if (known.is(dtype)) return number;
  }
  std::optional<DType> number;
  if (nb::cast<bool>(dtype.attr("isnative"))) number = DTypeOf(dtype);
  constexpr std::size_t kFew = 16;
  if (dtypes_.size() < kFew) dtypes_.emplace_back(dtype, number);
  return number;
}

void StateWriter::WritePieces(nb::handle pieces) {
  const DType dtype = DTypeOf(pieces.attr("dtype"));
  const Shape global_shape = ToShape(pieces.attr("shape"));
  const auto tag = nb::cast<std::string>(pieces.attr("tag"));
  const bool frozen = nb::cast<bool>(pieces.attr("frozen"));
  const nb::object sharding = pieces.attr("sharding");
  if (!sharding.is_none()) shardings_[ToText(NameOf(here()))] = sharding;
  const nb::object memory = pieces.attr("memory");
  if (!memory.is_none()) {
    if (memories_.contains(memory)) {
      step_->Tie(path_, met_[nb::cast<std::size_t>(memories_[memory])]);
      return;
    }
    memories_[memory] = met_.size();
    met_.push_back(path_);
  }
  if (nb::cast<bool>(pieces.attr("own"))) step_->SetPerRank(path_);
  for (const nb::handle piece : pieces.attr("boxes")) {
    const auto pair = nb::cast<nb::tuple>(piece);
    const nb::object array = nb::borrow(pair[1]);
    const bool fetched = nb::isinstance(array, rules_->fetched_type);
    Tensor tensor = fetched ? ToFetched(array, dtype) : ToTensor(array, dtype);
    if (!pair[0].is_none()) {
      tensor.start = ToShape(pair[0]);
      tensor.global_shape = global_shape;
    }
    tensor.tag = tag;
    kept_.append(array);
    copies_ =
        copies_ || ((fetched || !frozen) && ownership_ == Ownership::kCopy);
    Ownership ownership = frozen ? Ownership::kBorrow : ownership_;
    if (fetched) ownership = Ownership::kCopy;
    step_->Put(path_, std::move(tensor), ownership);
  }
}

Tensor StateWriter::ToFetched(nb::handle box, DType dtype) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = ToShape(box.attr("shape"));
  if (const nb::object direct = box.attr("direct"); !direct.is_none()) {
    tensor.copy = DirectCopy(direct);
    return tensor;
  }
  tensor.copy =
      [fetch = PythonFunction(nb::borrow<nb::callable>(box.attr("fetch")))](
          std::uint64_t offset, std::span<std::byte> destination) {
        PyObject* held = nullptr;  // By the arguments.
        fetch.Call(
            [&] {
              nb::object into = nb::steal(PyMemoryView_FromMemory(
                  reinterpret_cast<char*>(destination.data()),
                  static_cast<Py_ssize_t>(destination.size()), PyBUF_WRITE));
              if (!into.is_valid()) throw nb::python_error();
              held = into.ptr();
              return nb::make_tuple(offset, into);
            },
            [&](nb::handle) {
              // The memory goes to another piece: nobody may keep it.
              PyObject* const released =
                  PyObject_CallMethod(held, "release", nullptr);
              if (released == nullptr) throw nb::python_error();
              Py_DECREF(released);
            });
        return absl::OkStatus();
      };
  return tensor;
}

void StateWriter::WriteContent(nb::handle content) {
  const auto kind = nb::cast<std::string>(content.attr("kind"));
  const auto bytes = nb::cast<nb::bytes>(content.attr("data"));
  std::string data(bytes.c_str(), bytes.size());
  ItemType type = ItemType::kFiles;
  if (kind == "json") {
    type = ItemType::kJson;
    step_->PutJson(path_, std::move(data));
  } else if (kind == "proto") {
    type = ItemType::kProto;
    step_->PutProto(path_, nb::cast<std::string>(content.attr("message")),
                    std::move(data));
  } else {
    step_->PutFile(path_, std::move(data));
  }
  // Files have a tree of their own; the others are an item by themselves.
  if (type == ItemType::kFiles || here().size() == 1) {
    step_->SetItemType(NameOf({here().front()}), type);
  }
}

bool StateWriter::WriteFrozen(nb::handle array) {
  std::optional<Tensor> tensor = frozen_.Hold(array);
  if (!tensor.has_value()) {
    const nb::object view = frozen_view_(array);
    if (view.is_none()) return false;
    tensor = ToTensor(view, DTypeOf(view.attr("dtype")));
    kept_.append(view);
  }
  step_->Put(path_, *std::move(tensor), Ownership::kBorrow);
  return true;
}

nb::list StateWriter::Kept() {
  kept_.append(frozen_.Release());
  return kept_;
}

nb::object StateWriter::Adapt(nb::handle value) {
  return WithPath(here(), [&] { return rules_->adapt(value); });
}

DType StateWriter::DTypeOf(nb::handle dtype) {
  return static_cast<DType>(nb::cast<int>(
      WithPath(here(), [&]() -> nb::object { return rules_->dtypes[dtype]; })));
}

}  // namespace ckptree::python
