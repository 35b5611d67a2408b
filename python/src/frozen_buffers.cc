// SPDX-License-Identifier: Apache-2.0

#include "python/src/frozen_buffers.h"

#include <cstddef>
#include <string_view>
#include <utility>

namespace nb = nanobind;

namespace ckptree::python {
namespace {

struct Named {
  std::string_view format;
  Py_ssize_t size_bytes;
  DType dtype;
};

// As module struct names them.
constexpr Named kNamed[] = {
    {"f", 4, DType::kFloat32},    {"i", 4, DType::kInt32},
    {"e", 2, DType::kFloat16},    {"d", 8, DType::kFloat64},
    {"?", 1, DType::kBool},       {"b", 1, DType::kInt8},
    {"B", 1, DType::kUint8},      {"h", 2, DType::kInt16},
    {"H", 2, DType::kUint16},     {"I", 4, DType::kUint32},
    {"q", 8, DType::kInt64},      {"Q", 8, DType::kUint64},
    {"Zf", 8, DType::kComplex64}, {"Zd", 16, DType::kComplex128},
};

DType DTypeOf(const Py_buffer& view) {
  if (view.format == nullptr) return DType::kNone;
  std::string_view format = view.format;
  // Of this machine, or standard sizes in its order of bytes.
  if (format.starts_with('=') || format.starts_with('@')) {
    format.remove_prefix(1);
  }
  for (const Named& named : kNamed) {
    if (format == named.format && view.itemsize == named.size_bytes) {
      return named.dtype;
    }
  }
  return DType::kNone;
}

}  // namespace

// Views do not move: who gave them may know their addresses.
struct FrozenBuffers::Held {
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    for (Py_buffer& view : views) PyBuffer_Release(&view);
  }

  std::deque<Py_buffer> views;
};

void FrozenBuffers::Free::operator()(Held* held) const { delete held; }

std::optional<Tensor> FrozenBuffers::Hold(nb::handle array) {
  if (held_ == nullptr) held_.reset(new Held);
  Py_buffer& view = held_->views.emplace_back();
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_FULL_RO) != 0) {
    PyErr_Clear();
    held_->views.pop_back();
    return std::nullopt;
  }
  Tensor tensor;
  tensor.dtype = DTypeOf(view);
  if (tensor.dtype == DType::kNone || view.suboffsets != nullptr) {
    PyBuffer_Release(&view);
    held_->views.pop_back();
    return std::nullopt;
  }
  tensor.shape.assign(view.shape, view.shape + view.ndim);
  if (PyBuffer_IsContiguous(&view, 'C') == 0) {
    tensor.strides.assign(view.strides, view.strides + view.ndim);
  }
  tensor.data = view.buf;
  return tensor;
}

nb::object FrozenBuffers::Release() {
  if (held_ == nullptr) return nb::none();
  return nb::capsule(held_.release(), [](void* held) noexcept {
    delete static_cast<Held*>(held);
  });
}

}  // namespace ckptree::python
