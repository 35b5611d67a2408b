// SPDX-License-Identifier: Apache-2.0

// A Python state, put into a step leaf by leaf.

#ifndef CKPTREE_PYTHON_SRC_STATE_WRITER_H_
#define CKPTREE_PYTHON_SRC_STATE_WRITER_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/save.h"
#include "python/src/frozen_buffers.h"
#include "python/src/key_path.h"
#include "python/src/met_arrays.h"
#include "python/src/state_node.h"

namespace ckptree::python {

// Confined to one thread, which has the GIL.
class StateWriter {
 public:
  // `ownership` is that of arrays that can change.
  StateWriter(StepBuilder* step, const Rules* rules, Ownership ownership)
      : step_(step), rules_(rules), ownership_(ownership) {}

  // Throws TypeError or ValueError, naming the path, for what cannot be saved;
  // other faults stay in the status of the step.
  void Write(nanobind::handle state);

  // What must stay alive until the save is done; asked for once.
  nanobind::list Kept();
  // Of leaves that were spread over devices, by their names.
  const nanobind::dict& shardings() const { return shardings_; }
  // Of containers that have variables, by their names, of which that of the
  // whole state is empty: see _rules.Container.
  const nanobind::dict& variables() const { return variables_; }
  // True where memory was put that the caller may change, or give away, once it
  // was copied.
  bool copies() const { return copies_; }

 private:
  // Of what `adapt` made a container of.
  Node Open(const nanobind::object& container);
  void WriteValue(nanobind::handle value);
  bool WriteScalar(nanobind::handle value);
  void WriteNode(const Node& node, const std::string& tag);
  void WriteChildren(const Node& node);
  void WriteArray(nanobind::handle array);
  void WriteLargeInt(nanobind::handle value);
  void WritePieces(nanobind::handle pieces);
  // What the engine asks for, which is never lent: it is copied in any case.
  Tensor ToFetched(nanobind::handle box, DType dtype);
  void WriteContent(nanobind::handle content);
  // A whole array of a type that is known to be frozen; false where it is not
  // as plain as that.
  bool WriteFrozen(nanobind::handle array);
  // Calls `adapt`; what it raises gets the path.
  nanobind::object Adapt(nanobind::handle value);
  DType DTypeOf(nanobind::handle dtype);
  // The same of one in this machine's order of bytes; nothing of others.
  std::optional<DType> NativeDType(const nanobind::object& dtype);
  // Where the walk is.
  const Parts& here() const { return path_.parts(); }
  // Children of a dict, which imply it.
  void WriteDict(nanobind::handle dict);

  StepBuilder* const step_;
  const Rules* const rules_;
  const Ownership ownership_;
  nanobind::list kept_;
  FrozenBuffers frozen_;
  // The type that `adapt` said to be frozen, if any, and what views an array of
  // it: `adapt` is not asked again.
  nanobind::object frozen_type_;
  nanobind::object frozen_view_;
  bool copies_ = false;
  std::size_t written_ = 0;  // Values, so far.
  Path path_;
  Ancestors ancestors_;
  MetArrays arrays_;
  // Few arrays have dtypes of their own.
  std::vector<std::pair<nanobind::object, std::optional<DType>>> dtypes_;
  // The same by what Pieces say: the places of paths.
  nanobind::dict memories_;
  nanobind::dict shardings_;
  nanobind::dict variables_;
  std::vector<Path> met_;
};

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_STATE_WRITER_H_
