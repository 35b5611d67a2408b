// SPDX-License-Identifier: Apache-2.0

// The memory of NumPy's arrays, without NumPy's headers.

#ifndef CKPTREE_PYTHON_SRC_NUMPY_ARRAY_H_
#define CKPTREE_PYTHON_SRC_NUMPY_ARRAY_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ckptree/tensor.h"

namespace ckptree::python {

using ShapeTuple =
    nanobind::typed<nanobind::tuple, nanobind::int_, nanobind::ellipsis>;

// Shapes and the like: tuples of int.
Shape ToShape(nanobind::handle shape);
ShapeTuple FromShape(const Shape& shape);

// The dtype of an array of NumPy itself.
nanobind::object DTypeObjectOf(nanobind::handle array);

// Elements, shape and strides of `array`, whose element type is `dtype`; the
// memory lives as long as the array.
Tensor ToTensor(nanobind::handle array, DType dtype);

// The same, faster, of an array of NumPy itself: its type is numpy.ndarray.
Tensor ToNumpyTensor(nanobind::handle array, DType dtype);

// The bytes of an array that can be written to and is dense and row-major.
// ValueError where it is not.
std::span<std::byte> WritableBytes(nanobind::handle array);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_NUMPY_ARRAY_H_
