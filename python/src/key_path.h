// SPDX-License-Identifier: Apache-2.0

// Keys of Python's containers as parts of a path, and back.

#ifndef CKPTREE_PYTHON_SRC_KEY_PATH_H_
#define CKPTREE_PYTHON_SRC_KEY_PATH_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckptree/tensor.h"

namespace ckptree::python {

using Parts = std::vector<PathPart>;

PathPart DictKey(Key key);
PathPart Index(std::int64_t index);
PathPart Attribute(std::string_view name);
PathPart Flattened(std::int64_t index);

// None, bool, int, float, str, bytes, and tuples of these; exactly these types.
// TypeError or ValueError, naming the container at `parent`, for other keys.
Key ToKey(nanobind::handle key, const Parts& parent);
nanobind::object FromKey(const Key& key);

using PartTuple =
    nanobind::typed<nanobind::tuple, nanobind::int_, nanobind::any>;
using PathTuple =
    nanobind::typed<nanobind::tuple, PartTuple, nanobind::ellipsis>;

// ((kind, key), ...): the kinds are those of PartKind.
PathTuple FromPath(const Path& path);

// The text form, for messages; "the state" where it is empty.
std::string NameOf(const Parts& parts);

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_KEY_PATH_H_
