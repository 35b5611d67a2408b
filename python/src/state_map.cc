// SPDX-License-Identifier: Apache-2.0

#include "python/src/state_map.h"

#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/src/errors.h"
#include "python/src/path_error.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

class Mapper {
 public:
  Mapper(const Rules& rules, nb::handle on_node, nb::handle on_leaf)
      : rules_(rules), on_node_(on_node), on_leaf_(on_leaf) {}

  nb::object Root(nb::handle state) {
    const std::optional<Node> root = Open(state);
    if (!root.has_value() || root->type == EntryKind::kNone || root->IsLeaf()) {
      throw nb::type_error(
          "a template is a dict or another container, as the state is");
    }
    ancestors_.Enter(state, path_);
    if (!root->NamesItems()) {
      path_.push_back(DictKey(Key{std::string(kRootItem)}));
      Report(*root);
    }
    return Children(*root);
  }

 private:
  std::optional<Node> Open(nb::handle value) {
    std::optional<Node> node = OpenContainer(value, path_);
    if (node.has_value() || IsPlainLeaf(value)) return node;
    if (leaf_types_.contains(value.type().ptr())) return node;
    const nb::object container =
        WithPath(path_, [&] { return rules_.container(value); });
    if (container.is_none()) {
      leaf_types_.insert(value.type().ptr());
    } else if (!container.is(nb::handle(Py_False))) {
      node = OpenContainerOf(container, path_);
    }
    return node;
  }

  bool IsPlainLeaf(nb::handle value) const {
    PyObject* const object = value.ptr();
    return value.type().is(rules_.array_type) || PyLong_Check(object) ||
           PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) ||
           PyBytes_CheckExact(object) || PyComplex_CheckExact(object);
  }

  nb::object Value(nb::handle value) {
    const std::optional<Node> node = Open(value);
    if (!node.has_value()) {
      return WithPath(path_,
                      [&] { return on_leaf_(ToText(NameOf(path_)), value); });
    }
    ancestors_.Enter(value, path_);
    Report(*node);
    nb::object made = Children(*node);
    ancestors_.Leave();
    return made;
  }

  void Report(const Node& node) {
    on_node_(ToText(NameOf(path_)), ToText(Name(node.type)),
             node.children.empty(), ToText(node.tag));
  }

  nb::object Children(const Node& node) {
    std::vector<nb::object> values;
    values.reserve(node.children.size());
    for (const Child& child : node.children) {
      path_.push_back(child.part);
      values.push_back(Value(child.value));
      path_.pop_back();
    }
    return WithPath(path_, [&] { return node.Rebuild(values); });
  }

  const Rules& rules_;
  const nb::handle on_node_;
  const nb::handle on_leaf_;
  // Those of which the type alone says so: it takes long to ask for each.
  std::unordered_set<PyObject*> leaf_types_;
  Parts path_;
  Ancestors ancestors_;
};

}  // namespace

nb::object MapState(nb::handle state, const Rules& rules, nb::handle on_node,
                    nb::handle on_leaf) {
  return Mapper(rules, on_node, on_leaf).Root(state);
}

}  // namespace ckptree::python
