// SPDX-License-Identifier: Apache-2.0

// The bytes of a path: one grammar, read with or without making its parts.

#ifndef CKPTREE_SCHEMA_PATH_ENCODING_H_
#define CKPTREE_SCHEMA_PATH_ENCODING_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ckptree/path.h"

namespace ckptree::schema {

void AppendPartBytes(const PathPart& part, std::string* out);

// As many bytes as these parts have at most, without encoding them; of tuples
// the highest number there is.
std::size_t MostPathBytes(const std::vector<PathPart>& parts);

// Reads an encoded path; appends its parts to `parts` unless that is null.
// Returns what is wrong with it, or null where nothing is.
const char* ReadPathBytes(std::string_view bytes, std::vector<PathPart>* parts);

// What is wrong with a part by itself, or null.
const char* PartFault(const PathPart& part);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_PATH_ENCODING_H_
