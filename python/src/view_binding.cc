// SPDX-License-Identifier: Apache-2.0

// Values in place: memory of the store's files as arrays that cannot be written
// to.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "ckptree/step.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/numpy_array.h"
#include "python/src/step_object.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Bytes =
    nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>, nb::c_contig>;
// (start, shape, bytes) each; start and shape None: the whole array.
using Pieces =
    nb::typed<nb::list, nb::typed<nb::tuple, nb::any, nb::any, nb::any>>;
using ViewTuple = nb::typed<nb::tuple, nb::bool_, Pieces>;

// Keeps the mapping as long as NumPy has an array of it, or of a part of it. It
// needs neither the step nor the store, so that these close as ever.
nb::capsule OwnerOf(const std::shared_ptr<const LeafView>& view) {
  return {new std::shared_ptr<const LeafView>(view), [](void* held) noexcept {
            delete static_cast<std::shared_ptr<const LeafView>*>(held);
          }};
}

ViewTuple View(const StepObject& self, const LeafInfo& leaf) {
  const auto view = std::make_shared<const LeafView>(
      Take(self.With([&](const Step& step) { return step.View(leaf.path); })));
  const nb::capsule owner = OwnerOf(view);
  nb::list pieces;
  for (const LeafView::Piece& piece : view->pieces()) {
    nb::object start = nb::none();
    nb::object shape = nb::none();
    if (piece.box.shape.size() == leaf.shape.size()) {
      start = FromShape(piece.box.start);
      shape = FromShape(piece.box.shape);
    }
    Bytes bytes(piece.bytes.data(), {piece.bytes.size()}, owner);
    pieces.append(nb::make_tuple(std::move(start), std::move(shape),
                                 nb::cast(std::move(bytes))));
  }
  return nb::make_tuple(view->zero_copy(), pieces);
}

}  // namespace

void BindView(nb::module_& m) {
  m.def("view", &View, nb::arg("step"), nb::arg("leaf"));
}

}  // namespace ckptree::python
