// SPDX-License-Identifier: Apache-2.0

#include "core/version/block_payload.h"

#include <span>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/coding/block_decoder.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

// Sets `decoded` where the value is a coding.
absl::Status DecodeBlock(const schema::ChunkRef& ref, std::string_view value,
                         std::string* decoded) {
  const bool may_be_coded =
      ref.place == schema::Space::kChunks && value.size() < ref.block_length;
  if (!may_be_coded) {
    return absl::DataLossError(absl::StrFormat("a block of %d bytes has %d",
                                               ref.block_length, value.size()));
  }
  decoded->resize(ref.block_length);
  thread_local BlockDecoder decoder;
  return decoder.Decode(value, std::as_writable_bytes(std::span(*decoded)));
}

}  // namespace

std::string ChunkKey(const schema::ChunkRef& ref) {
  return ref.place == schema::Space::kSmall
             ? schema::SmallKey(ref.version, ref.part,
                                schema::BlockKind::kChunk, ref.n)
             : schema::BlockKey(ref.version, ref.part, ref.n);
}

bool IsWholeBlock(const schema::ChunkRef& ref) {
  return ref.offset == 0 && ref.length == ref.block_length;
}

absl::StatusOr<BlockPayload> BlockPayload::Of(const schema::ChunkRef& ref,
                                              kv::Value value) {
  BlockPayload payload;
  payload.coded_ = value.view().size() != ref.block_length;
  if (payload.coded_) {
    CKPTREE_RETURN_IF_ERROR(DecodeBlock(ref, value.view(), &payload.decoded_));
  }
  payload.value_ = std::move(value);
  return payload;
}

absl::StatusOr<std::string_view> SliceOf(const schema::ChunkRef& ref,
                                         std::string_view payload) {
  if (std::uint64_t{ref.offset} + ref.length > payload.size()) {
    return absl::DataLossError(absl::StrFormat(
        "bytes [%d, %d) of a block of %d", ref.offset,
        std::uint64_t{ref.offset} + ref.length, payload.size()));
  }
  return payload.substr(ref.offset, ref.length);
}

absl::StatusOr<std::string_view> CheckedSlice(const schema::ChunkRef& ref,
                                              std::string_view payload) {
  CKPTREE_ASSIGN_OR_RETURN(const std::string_view bytes, SliceOf(ref, payload));
  if (base::DigestOf(bytes) != ref.digest) {
    return absl::DataLossError("the bytes are not those that were saved");
  }
  return bytes;
}

absl::StatusOr<BlockPayload> ReadPayload(const kv::Database& database,
                                         const schema::ChunkRef& ref) {
  CKPTREE_ASSIGN_OR_RETURN(kv::Value value,
                           database.Read(ref.place, ChunkKey(ref)));
  return BlockPayload::Of(ref, std::move(value));
}

absl::StatusOr<BlockPayload> SearchBlock(const kv::Database& database,
                                         const schema::ChunkRef& ref,
                                         const absl::Status& why, bool spares) {
  switch (why.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnknown:  // The disk cannot read some of it.
      break;
    default:
      return why;
  }
  BlockPayload payload;
  CKPTREE_ASSIGN_OR_RETURN(
      payload.value_,
      database.Search(
          ref.place, ChunkKey(ref),
          [&ref, &payload](std::string_view value) {
            // Beside damage a plain one may have any length: its digest judges.
            payload.coded_ = false;
            if (CheckedSlice(ref, value).ok()) return true;
            payload.coded_ = DecodeBlock(ref, value, &payload.decoded_).ok();
            return payload.coded_ && CheckedSlice(ref, payload.decoded_).ok();
          },
          spares));
  return payload;
}

}  // namespace ckptree::internal
