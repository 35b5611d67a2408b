// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "python/src/like_state.h"

#include <optional>
#include <string>
#include <variant>

#include "python/src/errors.h"
#include "python/src/leaf_reading.h"
#include "python/src/numpy_array.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

// Below, memory.empty() is numpy.empty().
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;

// The type that is exactly that of a value of this kind; null: none is.
PyTypeObject* TypeOf(EntryKind kind) {
  switch (kind) {
    case EntryKind::kBool:
      return &PyBool_Type;
    case EntryKind::kInt:
      return &PyLong_Type;
    case EntryKind::kFloat:
      return &PyFloat_Type;
    case EntryKind::kComplex:
      return &PyComplex_Type;
    case EntryKind::kStr:
      return &PyUnicode_Type;
    case EntryKind::kBytes:
      return &PyBytes_Type;
    default:
      return nullptr;
  }
}

// What a container is that no entry of the step says, by what is in it.
std::optional<EntryKind> ImpliedKind(PartKind part) {
  switch (part) {
    case PartKind::kDictKey:
      return EntryKind::kDict;
    case PartKind::kIndex:
      return EntryKind::kList;
    case PartKind::kAttribute:
      return EntryKind::kObject;
    default:
      return std::nullopt;
  }
}

nb::object Checked(PyObject* made) {
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

void Set(nb::handle container, nb::handle key, nb::handle value) {
  if (PyObject_SetItem(container.ptr(), key.ptr(), value.ptr()) != 0) {
    throw nb::python_error();
  }
}

bool HasShape(nb::handle tuple, const Shape& shape) {
  if (!PyTuple_CheckExact(tuple.ptr()) ||
      PyTuple_GET_SIZE(tuple.ptr()) != static_cast<Py_ssize_t>(shape.size())) {
    return false;
  }
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyObject* const dim =
        PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i));
    if (PyLong_AsLongLong(dim) != shape[i]) return false;
  }
  return true;
}

}  // namespace

bool LikeState::IsPlainLeaf(nb::handle value) const {
  return value.type().is(rules_.array_type) || PyLong_Check(value.ptr()) ||
         PyFloat_CheckExact(value.ptr()) || PyUnicode_CheckExact(value.ptr()) ||
         PyBytes_CheckExact(value.ptr()) || PyComplex_CheckExact(value.ptr());
}

bool LikeState::StartsPlain(nb::handle like, std::optional<Path>* first) const {
  Parts parts;
  nb::object value = nb::borrow(like);
  if (!item_.empty()) {
    parts.push_back(DictKey(Key{item_}));
  } else if (!PyDict_CheckExact(value.ptr())) {
    parts.push_back(DictKey(Key{std::string(kRootItem)}));
  }
  while (!IsPlainLeaf(value)) {
    PyObject* const object = value.ptr();
    if (PyDict_CheckExact(object)) {
      Py_ssize_t at = 0;
      PyObject* key = nullptr;
      PyObject* below = nullptr;
      if (PyDict_Next(object, &at, &key, &below) == 0) return true;
      // Match() looks at all of them.
      if (!PyUnicode_CheckExact(key)) return true;
      Py_ssize_t size = 0;
      const char* text = PyUnicode_AsUTF8AndSize(key, &size);
      if (text == nullptr) throw nb::python_error();
      parts.push_back(
          DictKey(Key{std::string(text, static_cast<std::size_t>(size))}));
      value = nb::borrow(below);
    } else if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
      if (nb::len(value) == 0) return true;
      parts.push_back(Index(0));
      value = Checked(PySequence_GetItem(object, 0));
    } else if (PyTuple_Check(object) || object == Py_None) {
      return true;
    } else {
      const nb::object container = rules_.container(value);
      return !container.is_none() && !container.is(nb::handle(Py_False));
    }
    constexpr std::size_t kDeep = 256;  // It may hold itself.
    if (parts.size() > kDeep) return false;
  }
  first->emplace(std::move(parts));
  return true;
}

bool LikeState::Match(nb::handle like, std::vector<LeafInfo> leaves) {
  leaves_ = std::move(leaves);
  try {
    arrays_.reserve(leaves_.size());
    root_ = Root(like);
    leaves_ = {};
    return true;
  } catch (const NotPlain&) {
    return false;
  } catch (nb::python_error& raised) {
    // The other way raises it with the path.
    if (!raised.matches(PyExc_Exception)) throw;
    return false;
  }
}

LikeState::Made LikeState::Root(nb::handle like) {
  Opened root = Open(like);
  if (!item_.empty()) {
    const PathPart item = DictKey(Key{item_});
    std::erase_if(leaves_, [&item](const LeafInfo& leaf) {
      return PartAt(leaf, 0) != item;
    });
  }
  Run all{0, leaves_.size(), 0};
  if (root.kind == EntryKind::kNone || all.begin == all.end) throw NotPlain();
  if (!item_.empty()) {
    all.depth = 1;
  } else if (!root.names_items) {
    const PathPart item = DictKey(Key{std::string(kRootItem)});
    for (const LeafInfo& leaf : leaves_) {
      if (PartAt(leaf, 0) != item) throw NotPlain();
    }
    all.depth = 1;
  }
  return Container(all, std::move(root));
}

LikeState::Opened LikeState::OpenDict(nb::handle value) {
  Opened opened;
  opened.made = Checked(PyDict_Copy(value.ptr()));
  opened.names_items = true;
  Py_ssize_t at = 0;
  PyObject* key = nullptr;
  while (PyDict_Next(opened.made.ptr(), &at, &key, nullptr) != 0) {
    if (!PyUnicode_CheckExact(key)) throw NotPlain();
  }
  return opened;
}

LikeState::Opened LikeState::Open(nb::handle value) {
  PyObject* const object = value.ptr();
  if (PyDict_CheckExact(object)) return OpenDict(value);
  Opened opened;
  if (PyList_CheckExact(object) || PyTuple_CheckExact(object)) {
    const bool list = PyList_CheckExact(object);
    opened.kind = list ? EntryKind::kList : EntryKind::kTuple;
    opened.made = Checked(PySequence_List(object));
    if (!list) {
      opened.make = nb::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type));
    }
    return opened;
  }
  std::optional<Node> node = OpenContainer(value, {});
  if (!node.has_value()) {
    const nb::object container = rules_.container(value);
    if (container.is_none() || container.is(nb::handle(Py_False))) {
      throw NotPlain();  // A leaf.
    }
    // It may hold an object that another one holds, too.
    if (!container.attr("together").is_none()) throw NotPlain();
    node = OpenContainerOf(container, {});
  }
  if (node->IsLeaf()) throw NotPlain();
  opened.kind = node->type;
  opened.names_items = node->NamesItems();
  if (node->type == EntryKind::kNone) return opened;
  opened.make =
      node->rebuild.is_valid() ? node->rebuild : value.type().attr("_make");
  nb::list made;
  opened.by_part = true;
  for (const ckptree::python::Child& child : node->children) {
    opened.parts[Path({child.part}).Encode()] = nb::len(made);
    made.append(child.value);
  }
  opened.made = std::move(made);
  return opened;
}

const PathPart& LikeState::PartAt(const LeafInfo& leaf, std::size_t depth) {
  const auto& parts = leaf.path.parts();
  if (depth >= parts.size()) throw NotPlain();
  return parts[depth];
}

LikeState::Run LikeState::TakeChild(Run* run) const {
  const PathPart& part = PartAt(leaves_[run->begin], run->depth);
  Run child{run->begin, run->begin + 1, run->depth + 1};
  while (child.end < run->end &&
         PartAt(leaves_[child.end], run->depth) == part) {
    ++child.end;
  }
  run->begin = child.end;
  return child;
}

std::pair<nb::object, nb::object> LikeState::Find(const Opened& opened,
                                                  const PathPart& part,
                                                  std::size_t number) const {
  PyObject* const made = opened.made.ptr();
  if (PyDict_CheckExact(made)) {
    const auto* text = std::get_if<std::string>(&part.key.value);
    if (part.kind != PartKind::kDictKey || text == nullptr) throw NotPlain();
    nb::object key = Checked(PyUnicode_FromStringAndSize(
        text->data(), static_cast<Py_ssize_t>(text->size())));
    PyObject* const value = PyDict_GetItemWithError(made, key.ptr());
    if (value == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      throw NotPlain();
    }
    return {std::move(key), nb::borrow(value)};
  }
  std::size_t index = number;
  if (opened.by_part) {
    const auto found = opened.parts.find(Path({part}).Encode());
    if (found == opened.parts.end()) throw NotPlain();
    index = found->second;
  } else if (part != Index(static_cast<std::int64_t>(number))) {
    throw NotPlain();
  }
  PyObject* const value =
      PyList_GetItem(made, static_cast<Py_ssize_t>(index));  // Or IndexError.
  if (value == nullptr) throw nb::python_error();
  return {nb::int_(index), nb::borrow(value)};
}

LikeState::Made LikeState::Container(Run run, Opened opened) {
  const bool is_root = run.depth == 0;
  const LeafInfo& first = leaves_[run.begin];
  if (first.path.parts().size() == run.depth) {
    if (first.kind != opened.kind || first.tag.starts_with(kPartsMark)) {
      throw NotPlain();
    }
    ++run.begin;
  } else if (!is_root &&
             ImpliedKind(first.path.parts()[run.depth].kind) != opened.kind) {
    throw NotPlain();
  }
  if (opened.kind == EntryKind::kNone) {
    if (run.begin != run.end) throw NotPlain();
    return {nb::none(), nullptr};
  }
  auto later = std::make_unique<Later>();
  later->made = opened.made;
  later->make = opened.make;
  std::size_t children = 0;
  while (run.begin < run.end) {
    const Run child = TakeChild(&run);
    const PathPart& part = leaves_[child.begin].path.parts()[run.depth];
    const auto [key, value] = Find(opened, part, children++);
    Child(child, key, value, later.get());
  }
  if (children != nb::len(opened.made)) throw NotPlain();
  if (later->below.empty() && !later->make.is_valid()) {
    return {std::move(opened.made), nullptr};
  }
  return {nb::object(), std::move(later)};
}

void LikeState::Child(const Run& run, nb::handle key, nb::handle value,
                      Later* parent) {
  LeafInfo& first = leaves_[run.begin];
  if (first.path.parts().size() == run.depth && first.is_leaf()) {
    if (run.end - run.begin != 1) throw NotPlain();
    Leaf(&first, key, value, parent->made);
    return;
  }
  if (IsPlainLeaf(value)) throw NotPlain();  // In the place of a container.
  Made made = Container(run, Open(value));
  if (made.later != nullptr) {
    parent->below.emplace_back(nb::borrow(key), std::move(made.later));
  } else {
    Set(parent->made, key, made.container);
  }
}

// A leaf that was taken is not looked at again, so that it may be moved from.
void LikeState::Leaf(LeafInfo* info, nb::handle key, nb::handle value,
                     nb::handle made) {
  if (!info->tag.empty() || info->packed) throw NotPlain();
  if (info->kind == EntryKind::kArray) {
    if (!value.type().is(rules_.array_type)) throw NotPlain();
    Set(made, key, Array(info, value));
    return;
  }
  if (Py_TYPE(value.ptr()) != TypeOf(info->kind)) throw NotPlain();
  values_.push_back(std::move(*info));
  places_.emplace_back(nb::borrow(made), nb::borrow(key));
}

const LikeState::Element& LikeState::ElementOf(nb::handle array) {
  const nb::object dtype = array.attr("dtype");
  for (const Element& element : elements_) {
    if (element.dtype.is(dtype)) return element;
  }
  const int number = nb::cast<int>(rules_.dtypes[dtype]);
  elements_.push_back(
      {dtype, static_cast<DType>(number), rules_.to_numpy(number)});
  return elements_.back();
}

nb::object LikeState::Array(LeafInfo* info, nb::handle value) {
  const Element& element = ElementOf(value);
  const nb::object shape = value.attr("shape");
  if (element.number != info->dtype || !HasShape(shape, info->shape)) {
    throw NotPlain();
  }
  const auto bytes = static_cast<std::size_t>(
      ArrayBytes(info->dtype, /*packed=*/false, info->shape).value_or(0));
  const nb::object& make =
      bytes < kSmallBytes ? rules_.empty : rules_.large_empty;
  nb::object made = make(shape, element.native);
  ReadRequest& request = arrays_.emplace_back();
  request.path = std::move(info->path);
  request.destination = WritableBytes(made);
  array_bytes_ += bytes;
  return made;
}

void LikeState::SetValues(const std::vector<LeafValue>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    Set(places_[i].first, places_[i].second, ToObject(values[i]));
  }
}

nb::object LikeState::Finish() {
  if (root_.later == nullptr) return root_.container;
  try {
    return Finished(root_.later.get());
  } catch (nb::python_error& raised) {
    if (!raised.matches(PyExc_Exception)) throw;
    return nb::borrow(Py_NotImplemented);
  }
}

nb::object LikeState::Finished(Later* later) {
  for (const auto& [key, below] : later->below) {
    Set(later->made, key, Finished(below.get()));
  }
  return later->make.is_valid() ? later->make(later->made) : later->made;
}

}  // namespace ckptree::python
