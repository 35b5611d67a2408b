// SPDX-License-Identifier: Apache-2.0

// What a process asks of the one that has a store open for writing, and what
// that one answers. Neither is ever part of a store.

#ifndef CKPTREE_SCHEMA_STORE_REQUEST_H_
#define CKPTREE_SCHEMA_STORE_REQUEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ckptree::schema {

enum class RequestKind : std::uint8_t {
  kTag = 1,
  kUntag = 2,
  kPin = 3,
  kUnpin = 4,
  kDelete = 5,
  kFork = 6,
  kDropBranch = 7,
  kSetPolicy = 8,
  kApplyPolicy = 9,
  kCollect = 10,
};

// A step as who asks saw it: another version of it is not meant.
struct RequestedStep {
  std::string branch;  // Name; empty: the main branch.
  std::int64_t step = 0;
  std::uint64_t version = 0;

  friend bool operator==(const RequestedStep&, const RequestedStep&) = default;
};

// Which fields count goes by the kind.
struct StoreRequest {
  RequestKind kind = RequestKind::kCollect;
  std::string id;  // 16 bytes.
  std::string host;
  std::uint32_t pid = 0;
  std::uint32_t user = 0;
  std::vector<RequestedStep> steps;
  std::string name;  // Of a tag, or of a branch.
  std::string policy;
  bool move = false;
  bool tagged = false;
  std::int64_t created_ns = 0;  // Of the branch to drop.
  double min_dead_fraction = 0;
  std::uint64_t bytes_per_second = 0;
  bool pack = false;

  friend bool operator==(const StoreRequest&, const StoreRequest&) = default;
};

struct KeptByCollection {
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::string why;

  friend bool operator==(const KeptByCollection&,
                         const KeptByCollection&) = default;
};

struct StoreAnswer {
  std::string id;
  std::uint32_t code = 0;  // absl::StatusCode; 0: OK.
  std::string text;
  std::string host;
  std::uint32_t pid = 0;
  std::vector<std::int64_t> removed;
  std::uint64_t versions = 0;
  std::uint64_t blocks_freed = 0;
  std::uint64_t bytes_freed = 0;
  std::uint64_t far_bytes_freed = 0;
  std::uint64_t bytes_left = 0;
  std::uint64_t files_dropped = 0;
  std::uint64_t files_rewritten = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t files_packed = 0;
  std::uint64_t file_bytes_before = 0;
  std::uint64_t file_bytes_after = 0;
  std::vector<KeptByCollection> kept;
  std::vector<std::string> damaged;
  std::vector<std::string> no_room;

  friend bool operator==(const StoreAnswer&, const StoreAnswer&) = default;
};

// Each decoder: kDataLoss where the bytes are not whole, contradict themselves
// or are more than any request has.
std::string EncodeStoreRequest(const StoreRequest& request);
absl::StatusOr<StoreRequest> DecodeStoreRequest(std::string_view bytes);
std::string EncodeStoreAnswer(const StoreAnswer& answer);
absl::StatusOr<StoreAnswer> DecodeStoreAnswer(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_STORE_REQUEST_H_
