// SPDX-License-Identifier: Apache-2.0

#include "schema/fault.h"

#include <string_view>

#include "absl/strings/str_format.h"
#include "schema/envelope.h"

namespace ckptree::schema {

absl::Status Fault(RecordKind kind, std::string_view what) {
  return absl::DataLossError(absl::StrFormat("%s: %s", Name(kind), what));
}

}  // namespace ckptree::schema
