// SPDX-License-Identifier: Apache-2.0

// What the containers of a state hold, and how they are made anew.

#ifndef CKPTREE_PYTHON_SRC_STATE_NODE_H_
#define CKPTREE_PYTHON_SRC_STATE_NODE_H_

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "ckptree/save.h"
#include "python/src/key_path.h"

namespace ckptree::python {

// The item that a state lies under whose root names no items: a list, say. Its
// node has this mark before its tag.
inline constexpr char kRootItem[] = "state";
inline constexpr char kRootMark[] = "root";
// What the tag of a node begins with that is one leaf, in parts: no root.
inline constexpr char kPartsMark[] = "parts:";

// What ckptree/_rules.py says: the part of the work that is better written in
// Python, with the types of the frameworks that are imported.
struct Rules {
  explicit Rules(nanobind::handle module);

  // A Container, Pieces or Content for a value to save.
  nanobind::object adapt;
  nanobind::object container;       // A Container, or None for what is a leaf.
  nanobind::object dtypes;          // NumPy's dtypes to numbers of ours.
  nanobind::object lineage;         // What is noted of a state.
  nanobind::object array_type;      // numpy.ndarray
  nanobind::object container_type;  // _rules.Container
  nanobind::object pieces_type;     // _rules.Pieces
  nanobind::object content_type;    // _rules.Content
  nanobind::object fetched_type;    // protocol.Fetched
  nanobind::object empty;           // numpy.empty
  nanobind::object large_empty;     // The same, for what is large.
  nanobind::object to_numpy;        // Numbers of ours to NumPy's dtypes.
};

struct Child {
  PathPart part;
  nanobind::object value;
};

// A container. It is not listed in the tree where its children imply it.
struct Node {
  EntryKind type = EntryKind::kDict;
  std::string tag;
  std::vector<Child> children;

  // Makes a container of the same kind; `children` in the same order.
  nanobind::object Rebuild(const std::vector<nanobind::object>& children) const;
  // True where its children, and their kind, say what it is.
  bool Implied() const;
  // True where it is one leaf, which is kept as its parts.
  bool IsLeaf() const { return tag.starts_with(kPartsMark); }
  // True where its children are the items of a step: a dict with str keys.
  bool NamesItems() const;

  nanobind::object original;
  nanobind::object keys;     // Of a dict, as it was: it may change then.
  nanobind::object rebuild;  // Of adapted ones: called with the list.
};

// None, dict, list, tuple and named tuples, by their exact types; nothing where
// `value` is none of these. Throws what ToKey throws.
std::optional<Node> OpenContainer(nanobind::handle value, const Parts& path);

// Of a _rules.Container that `adapted` is.
Node OpenContainerOf(nanobind::handle adapted, const Parts& path);

// Containers that are being walked: one that holds itself has no end.
class Ancestors {
 public:
  // ValueError where `value` is among them, or they are too many.
  void Enter(nanobind::handle value, const Parts& path);
  void Leave() { values_.pop_back(); }

 private:
  std::vector<PyObject*> values_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_STATE_NODE_H_
