// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include "python/src/numpy_array.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

// Without asking for a format every array is a buffer, also those of ml_dtypes.
class Buffer {
 public:
  explicit Buffer(nb::handle array) {
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_STRIDES) != 0) {
      throw nb::python_error();
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  const Py_buffer& view() const { return view_; }
  bool dense() const { return PyBuffer_IsContiguous(&view_, 'C') != 0; }

 private:
  Py_buffer view_;
};

}  // namespace

Shape ToShape(nb::handle shape) {
  Shape dims;
  for (const nb::handle dim : shape)
    dims.push_back(nb::cast<std::int64_t>(dim));
  return dims;
}

ShapeTuple FromShape(const Shape& shape) {
  nb::list dims;
  for (const std::int64_t dim : shape) dims.append(dim);
  return nb::tuple(dims);
}

Tensor ToTensor(nb::handle array, DType dtype) {
  const Buffer buffer(array);
  const Py_buffer& view = buffer.view();
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape.assign(view.shape, view.shape + view.ndim);
  tensor.data = view.buf;
  if (!buffer.dense()) {
    tensor.strides.assign(view.strides, view.strides + view.ndim);
  }
  return tensor;
}

std::span<std::byte> WritableBytes(nb::handle array) {
  const Buffer buffer(array);
  const Py_buffer& view = buffer.view();
  if (view.readonly != 0 || !buffer.dense()) {
    throw nb::value_error(
        "only arrays that are writable, dense and row-major can be read into");
  }
  return {static_cast<std::byte*>(view.buf),
          static_cast<std::size_t>(view.len)};
}

}  // namespace ckptree::python
