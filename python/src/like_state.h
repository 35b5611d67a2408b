// SPDX-License-Identifier: Apache-2.0

// A step in the containers of a template: the quick way of a restore.

#ifndef CKPTREE_PYTHON_SRC_LIKE_STATE_H_
#define CKPTREE_PYTHON_SRC_LIKE_STATE_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckptree/step.h"
#include "python/src/state_node.h"

namespace ckptree::python {

// Takes a template whose leaves are arrays of NumPy, numbers, str and bytes of
// Python, and a step that has just these, of the same types: that is nearly
// every restore. Its rules are those of restoring/template.py, which does all
// others, and says what differs: whatever is not plain here is left to it.
//
// The leaves of a step come in the order of the tree, so that those of a
// container follow each other: each container takes its run of them, without a
// name for each leaf.
//
// Confined to one thread, which has the GIL.
class LikeState {
 public:
  // `item`: the template is of what lies under it alone; empty: of the step.
  LikeState(Rules rules, std::string item)
      : rules_(std::move(rules)), item_(std::move(item)) {}

  // Looks at the first leaf of the template alone. False where it is not one of
  // those; else its path, or nothing where it takes more to find it.
  bool StartsPlain(nanobind::handle like, std::optional<Path>* first) const;

  // False where the two do not fit, or are not as plain as that. Makes the
  // arrays, which are not read yet.
  bool Match(nanobind::handle like, std::vector<LeafInfo> leaves);

  // What is to be read then: into the arrays, and what is no array.
  const std::vector<ReadRequest>& arrays() const { return arrays_; }
  std::size_t array_bytes() const { return array_bytes_; }
  const std::vector<LeafInfo>& values() const { return values_; }
  // In that order.
  void SetValues(const std::vector<LeafValue>& values);

  // Once all is read; NotImplemented where a container could not be made of
  // what it holds.
  nanobind::object Finish();

 private:
  // Thrown inside: it is left to others.
  struct NotPlain {};
  // A part of the path of a leaf. No step that an engine wrote has a leaf at a
  // path that ends before: NotPlain then.
  static const PathPart& PartAt(const LeafInfo& leaf, std::size_t depth);

  // A container of the template.
  struct Opened {
    EntryKind kind = EntryKind::kDict;
    bool names_items = false;
    // A dict with the template's keys, or a list; the values of both are those
    // of the template, until the new ones take their place.
    nanobind::object made;
    // What makes the container of that list; null: it is the container.
    nanobind::object make;
    // Of adapted ones, and of named tuples: where in the list a child is, by
    // its encoded part; in others it is where its index says.
    std::unordered_map<std::string, std::size_t> parts;
    bool by_part = false;
  };
  // One that is made when all in it is.
  struct Later {
    nanobind::object made;
    nanobind::object make;
    std::vector<std::pair<nanobind::object, std::unique_ptr<Later>>> below;
  };
  // Leaves of the step, [begin, end), that lie below the first `depth` parts.
  struct Run {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t depth = 0;
  };
  // Either the container itself, or what will make it.
  struct Made {
    nanobind::object container;
    std::unique_ptr<Later> later;
  };
  struct Element {
    nanobind::object dtype;  // Of a template.
    DType number = DType::kNone;
    nanobind::object native;  // Of the array that is made.
  };

  bool IsPlainLeaf(nanobind::handle value) const;
  Opened Open(nanobind::handle value);
  Opened OpenDict(nanobind::handle value);
  Made Root(nanobind::handle like);
  Made Container(Run run, Opened opened);
  // Takes from `run` what it begins with: all below one part.
  Run TakeChild(Run* run) const;
  // The place of that child in the container, and what the template has there.
  std::pair<nanobind::object, nanobind::object> Find(const Opened& opened,
                                                     const PathPart& part,
                                                     std::size_t number) const;
  void Child(const Run& run, nanobind::handle key, nanobind::handle value,
             Later* parent);
  void Leaf(LeafInfo* info, nanobind::handle key, nanobind::handle value,
            nanobind::handle made);
  nanobind::object Array(LeafInfo* info, nanobind::handle value);
  const Element& ElementOf(nanobind::handle array);
  nanobind::object Finished(Later* later);

  const Rules rules_;
  const std::string item_;
  std::vector<Element> elements_;
  std::vector<LeafInfo> leaves_;
  std::vector<ReadRequest> arrays_;
  std::size_t array_bytes_ = 0;
  std::vector<LeafInfo> values_;
  // Where these go: a dict or list, and the key or index.
  std::vector<std::pair<nanobind::object, nanobind::object>> places_;
  Made root_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_LIKE_STATE_H_
