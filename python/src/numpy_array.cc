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

// How NumPy 1 and 2 lay an array out, which is part of their binary interface.
struct ArrayFields {
  PyObject_HEAD char* data;
  int nd;
  Py_ssize_t* dimensions;
  Py_ssize_t* strides;
  PyObject* base;
  PyObject* descr;
  int flags;
};
constexpr int kDense = 1;  // NPY_ARRAY_C_CONTIGUOUS

const ArrayFields& FieldsOf(nb::handle array) {
  return *reinterpret_cast<const ArrayFields*>(array.ptr());
}

// Whether that is so, by one array: its fields say what its buffer and its
// attributes say.
bool AreAsKnown(nb::handle array, const Buffer& buffer) {
  const Py_buffer& view = buffer.view();
  const ArrayFields& fields = FieldsOf(array);
  const nb::object dtype = array.attr("dtype");
  if (fields.nd != view.ndim || fields.data != view.buf ||
      fields.descr != dtype.ptr() ||
      ((fields.flags & kDense) != 0) != buffer.dense()) {
    return false;
  }
  for (int i = 0; i < view.ndim; ++i) {
    if (fields.dimensions[i] != view.shape[i] ||
        fields.strides[i] != view.strides[i]) {
      return false;
    }
  }
  return true;
}

// Whether the fields of arrays of NumPy can be read: asked of the first one
// that has a shape to compare. A buffer leaves some 100 bytes with each array
// for good, and takes ten times as long.
bool CanReadFields(nb::handle array) {
  enum class Known { kNotYet, kYes, kNo };
  static Known known = Known::kNotYet;  // Guarded by the GIL.
  if (known == Known::kNotYet) {
    const Buffer buffer(array);
    if (buffer.view().ndim == 0) return false;
    known = AreAsKnown(array, buffer) ? Known::kYes : Known::kNo;
  }
  return known == Known::kYes;
}

}  // namespace

nb::object DTypeObjectOf(nb::handle array) {
  if (CanReadFields(array)) return nb::borrow(FieldsOf(array).descr);
  return array.attr("dtype");
}

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

Tensor ToNumpyTensor(nb::handle array, DType dtype) {
  if (!CanReadFields(array)) return ToTensor(array, dtype);
  const ArrayFields& fields = FieldsOf(array);
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape.assign(fields.dimensions, fields.dimensions + fields.nd);
  tensor.data = fields.data;
  if ((fields.flags & kDense) == 0) {
    tensor.strides.assign(fields.strides, fields.strides + fields.nd);
  }
  return tensor;
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
