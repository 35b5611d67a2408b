// SPDX-License-Identifier: Apache-2.0

// How decoders say what is wrong with a record.

#ifndef CKPTREE_SCHEMA_FAULT_H_
#define CKPTREE_SCHEMA_FAULT_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace ckptree::schema {

enum class RecordKind : std::uint8_t;  // schema/envelope.h

// kDataLoss: "step record: the digest is not 16 bytes".
absl::Status Fault(RecordKind kind, std::string_view what);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_FAULT_H_
