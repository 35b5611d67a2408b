// SPDX-License-Identifier: Apache-2.0

#include "python/src/state_node.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

constexpr std::size_t kMaxDepth = 256;

std::vector<Child> Elements(nb::handle sequence) {
  std::vector<Child> children;
  for (const nb::handle element : sequence) {
    children.push_back({Index(static_cast<std::int64_t>(children.size())),
                        nb::borrow(element)});
  }
  return children;
}

std::optional<Node> OpenNamedTuple(nb::handle value) {
  const nb::object fields = nb::getattr(value.type(), "_fields", nb::none());
  if (!PyTuple_CheckExact(fields.ptr())) return std::nullopt;
  Node node;
  node.type = EntryKind::kNamedTuple;
  node.tag = nb::type_name(value.type()).c_str();
  if (const auto dot = node.tag.rfind('.'); dot != std::string::npos) {
    node.tag.erase(0, dot + 1);
  }
  node.tag += '(';
  const auto elements = nb::borrow<nb::tuple>(value);
  std::size_t i = 0;
  for (const nb::handle field : fields) {
    const std::string name = nb::cast<std::string>(field);
    if (i > 0) node.tag += ',';
    node.tag += name;
    node.children.push_back({Attribute(name), nb::borrow(elements[i])});
    ++i;
  }
  node.tag += ')';
  return node;
}

}  // namespace

Rules::Rules(nb::handle module)
    : adapt(module.attr("adapt")),
      container(module.attr("container")),
      dtypes(module.attr("DTYPES")),
      lineage(module.attr("lineage")),
      array_type(module.attr("ARRAY_TYPE")),
      container_type(module.attr("Container")),
      pieces_type(module.attr("Pieces")),
      content_type(module.attr("Content")),
      fetched_type(module.attr("FETCHED_TYPE")),
      empty(module.attr("EMPTY")),
      large_empty(module.attr("LARGE_EMPTY")),
      to_numpy(module.attr("TO_NUMPY")) {}

std::optional<Node> OpenContainer(nb::handle value, const Parts& path) {
  PyObject* const object = value.ptr();
  std::optional<Node> node;
  if (PyDict_CheckExact(object)) {
    node.emplace();
    node->keys = nb::steal(PyDict_Keys(object));
    if (!node->keys.is_valid()) throw nb::python_error();
    for (const auto [key, child] : nb::borrow<nb::dict>(value)) {
      node->children.push_back({DictKey(ToKey(key, path)), nb::borrow(child)});
    }
  } else if (PyList_CheckExact(object)) {
    node.emplace();
    node->type = EntryKind::kList;
    node->children = Elements(value);
  } else if (PyTuple_CheckExact(object)) {
    node.emplace();
    node->type = EntryKind::kTuple;
    node->children = Elements(value);
  } else if (object == Py_None) {
    node.emplace();
    node->type = EntryKind::kNone;
  } else if (PyTuple_Check(object)) {
    node = OpenNamedTuple(value);
  }
  if (node.has_value()) node->original = nb::borrow(value);
  return node;
}

Node OpenContainerOf(nb::handle adapted, const Parts& path) {
  Node node;
  node.type = static_cast<EntryKind>(nb::cast<int>(adapted.attr("type")));
  node.tag = nb::cast<std::string>(adapted.attr("tag"));
  for (const nb::handle child : adapted.attr("children")) {
    const auto triple = nb::cast<nb::tuple>(child);
    const int kind = nb::cast<int>(triple[0]);
    PathPart part;
    switch (static_cast<PartKind>(kind)) {
      case PartKind::kDictKey:
        part = DictKey(ToKey(triple[1], path));
        break;
      case PartKind::kIndex:
        part = Index(nb::cast<std::int64_t>(triple[1]));
        break;
      case PartKind::kAttribute:
        part = Attribute(nb::cast<std::string>(triple[1]));
        break;
      case PartKind::kFlattened:
        part = Flattened(nb::cast<std::int64_t>(triple[1]));
        break;
    }
    node.children.push_back({std::move(part), nb::borrow(triple[2])});
  }
  node.rebuild = adapted.attr("rebuild");
  return node;
}

bool Node::Implied() const {
  if (children.empty() || !tag.empty()) return false;
  const auto all = [this](PartKind kind) {
    return std::all_of(children.begin(), children.end(),
                       [kind](const Child& c) { return c.part.kind == kind; });
  };
  switch (type) {
    case EntryKind::kDict:
      return all(PartKind::kDictKey);
    case EntryKind::kList:
      return all(PartKind::kIndex);
    case EntryKind::kObject:
      return all(PartKind::kAttribute);
    default:
      return false;
  }
}

bool Node::NamesItems() const {
  return type == EntryKind::kDict && tag.empty() &&
         std::all_of(children.begin(), children.end(), [](const Child& child) {
           return child.part.kind == PartKind::kDictKey &&
                  std::holds_alternative<std::string>(child.part.key.value);
         });
}

nb::object Node::Rebuild(const std::vector<nb::object>& values) const {
  nb::list list;
  for (const nb::object& value : values) list.append(value);
  if (rebuild.is_valid()) return rebuild(list);
  switch (type) {
    case EntryKind::kDict: {
      nb::dict made;
      std::size_t i = 0;
      for (const nb::handle key : nb::borrow<nb::list>(keys)) {
        if (i < values.size()) made[key] = values[i];
        ++i;
      }
      if (i != values.size()) {
        throw std::runtime_error("a dict changed while it was looked at");
      }
      return made;
    }
    case EntryKind::kList:
      return list;
    case EntryKind::kTuple:
      return nb::tuple(list);
    case EntryKind::kNamedTuple:
      return original.type().attr("_make")(list);
    default:
      return original;
  }
}

void Ancestors::Enter(nb::handle value, const Parts& path) {
  if (std::find(values_.begin(), values_.end(), value.ptr()) != values_.end()) {
    const std::string message =
        absl::StrFormat("%s: the state contains itself here", NameOf(path));
    throw nb::value_error(message.c_str());
  }
  if (values_.size() >= kMaxDepth) {
    const std::string message = absl::StrFormat(
        "%s: a state has at most %d levels", NameOf(path), kMaxDepth);
    throw nb::value_error(message.c_str());
  }
  values_.push_back(value.ptr());
}

}  // namespace ckptree::python
