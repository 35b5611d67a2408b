#include "python/src/numpy_array.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

// Every array has this protocol, also those of ml_dtypes, which have neither
// buffers nor DLPack.
struct Interface {
  explicit Interface(nb::handle array)
      : fields(nb::cast<nb::dict>(array.attr("__array_interface__"))) {}

  std::byte* data() const {
    const auto pair = nb::cast<nb::tuple>(fields["data"]);
    return reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(pair[0]));
  }
  bool read_only() const {
    return nb::cast<bool>(nb::cast<nb::tuple>(fields["data"])[1]);
  }
  bool dense() const { return fields["strides"].is_none(); }

  nb::dict fields;
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
  const Interface interface(array);
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = ToShape(interface.fields["shape"]);
  tensor.data = interface.data();
  if (!interface.dense()) tensor.strides = ToShape(interface.fields["strides"]);
  return tensor;
}

std::span<std::byte> WritableBytes(nb::handle array) {
  const Interface interface(array);
  if (interface.read_only() || !interface.dense()) {
    throw nb::value_error(
        "only arrays that are writable, dense and row-major can be read into");
  }
  return {interface.data(), nb::cast<std::size_t>(array.attr("nbytes"))};
}

}  // namespace ckptree::python
