// SPDX-License-Identifier: Apache-2.0

#include "schema/store_request.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/limits.h"

namespace ckptree::schema {
namespace {

constexpr std::size_t kRequestIdBytes = 16;
constexpr std::int64_t kMostHostBytes = 256;
constexpr std::uint32_t kHighestCode = 16;  // Of absl::StatusCode.

bool FitsIn(std::string_view text, std::int64_t most) {
  return static_cast<std::int64_t>(text.size()) <= most;
}

// How many steps a request of the kind names.
bool IsCount(RequestKind kind, int steps) {
  switch (kind) {
    case RequestKind::kTag:
    case RequestKind::kFork:
      return steps == 1;
    case RequestKind::kPin:
    case RequestKind::kUnpin:
    case RequestKind::kDelete:
      return steps >= 1 && steps <= kMaxRequestSteps;
    default:
      return steps == 0;
  }
}

bool NeedsName(RequestKind kind) {
  return kind == RequestKind::kTag || kind == RequestKind::kUntag ||
         kind == RequestKind::kFork || kind == RequestKind::kDropBranch;
}

absl::Status CheckSize(RecordKind kind, std::string_view bytes) {
  if (FitsIn(bytes, kMaxRequestBytes)) return absl::OkStatus();
  return Fault(kind, "it is longer than 4 MiB");
}

}  // namespace

std::string EncodeStoreRequest(const StoreRequest& request) {
  pb::StoreRequest out;
  out.set_kind(static_cast<std::uint32_t>(request.kind));
  out.set_id(request.id);
  out.set_host(request.host);
  out.set_pid(request.pid);
  out.set_user(request.user);
  for (const RequestedStep& step : request.steps) {
    out.add_branches(step.branch);
    out.add_steps(step.step);
    out.add_versions(step.version);
  }
  out.set_name(request.name);
  out.set_policy(request.policy);
  out.set_move(request.move);
  out.set_tagged(request.tagged);
  out.set_created_ns(request.created_ns);
  out.set_min_dead_fraction(request.min_dead_fraction);
  out.set_bytes_per_second(request.bytes_per_second);
  out.set_pack(request.pack);
  return EnvelopeOf(RecordKind::kStoreRequest, out);
}

absl::StatusOr<StoreRequest> DecodeStoreRequest(std::string_view bytes) {
  constexpr RecordKind kKind = RecordKind::kStoreRequest;
  if (absl::Status status = CheckSize(kKind, bytes); !status.ok()) {
    return status;
  }
  pb::StoreRequest in;
  if (absl::Status status = ParseEnvelope(kKind, bytes, &in); !status.ok()) {
    return status;
  }
  if (in.kind() < static_cast<std::uint32_t>(RequestKind::kTag) ||
      in.kind() > static_cast<std::uint32_t>(RequestKind::kCollect)) {
    return Fault(kKind, "what it asks for is not known");
  }
  StoreRequest request;
  request.kind = static_cast<RequestKind>(in.kind());
  request.id = in.id();
  request.host = in.host();
  request.pid = in.pid();
  request.user = in.user();
  if (request.id.size() != kRequestIdBytes) {
    return Fault(kKind, "its id is not 16 bytes");
  }
  if (!FitsIn(request.host, kMostHostBytes)) {
    return Fault(kKind, "the host's name is too long");
  }
  if (in.branches_size() != in.steps_size() ||
      in.versions_size() != in.steps_size() ||
      !IsCount(request.kind, in.steps_size())) {
    return Fault(kKind, "it names no possible number of steps");
  }
  request.steps.reserve(static_cast<std::size_t>(in.steps_size()));
  for (int i = 0; i < in.steps_size(); ++i) {
    RequestedStep step{in.branches(i), in.steps(i), in.versions(i)};
    if (!FitsIn(step.branch, kMaxNameBytes) || step.step < 0 ||
        step.version == 0) {
      return Fault(kKind, "a step of it cannot be");
    }
    request.steps.push_back(std::move(step));
  }
  request.name = in.name();
  request.policy = in.policy();
  if (!FitsIn(request.name, kMaxNameBytes) ||
      (NeedsName(request.kind) && request.name.empty())) {
    return Fault(kKind, "its name cannot be");
  }
  if (!FitsIn(request.policy, kMaxPolicyBytes)) {
    return Fault(kKind, "its policy is too long");
  }
  request.move = in.move();
  request.tagged = in.tagged();
  request.created_ns = in.created_ns();
  request.min_dead_fraction = in.min_dead_fraction();
  if (!(request.min_dead_fraction >= 0 && request.min_dead_fraction <= 1)) {
    return Fault(kKind, "its fraction is not between 0 and 1");
  }
  request.bytes_per_second = in.bytes_per_second();
  request.pack = in.pack();
  return request;
}

std::string EncodeStoreAnswer(const StoreAnswer& answer) {
  pb::StoreAnswer out;
  out.set_id(answer.id);
  out.set_code(answer.code);
  out.set_text(answer.text);
  out.set_host(answer.host);
  out.set_pid(answer.pid);
  out.mutable_removed()->Add(answer.removed.begin(), answer.removed.end());
  out.set_versions(answer.versions);
  out.set_blocks_freed(answer.blocks_freed);
  out.set_bytes_freed(answer.bytes_freed);
  out.set_far_bytes_freed(answer.far_bytes_freed);
  out.set_bytes_left(answer.bytes_left);
  out.set_files_dropped(answer.files_dropped);
  out.set_files_rewritten(answer.files_rewritten);
  out.set_bytes_written(answer.bytes_written);
  out.set_files_packed(answer.files_packed);
  out.set_file_bytes_before(answer.file_bytes_before);
  out.set_file_bytes_after(answer.file_bytes_after);
  for (const KeptByCollection& kept : answer.kept) {
    out.add_kept_steps(kept.step);
    out.add_kept_versions(kept.version);
    out.add_kept_why(kept.why);
  }
  for (const std::string& what : answer.damaged) out.add_damaged(what);
  for (const std::string& what : answer.no_room) out.add_no_room(what);
  return EnvelopeOf(RecordKind::kStoreAnswer, out);
}

absl::StatusOr<StoreAnswer> DecodeStoreAnswer(std::string_view bytes) {
  constexpr RecordKind kKind = RecordKind::kStoreAnswer;
  if (absl::Status status = CheckSize(kKind, bytes); !status.ok()) {
    return status;
  }
  pb::StoreAnswer in;
  if (absl::Status status = ParseEnvelope(kKind, bytes, &in); !status.ok()) {
    return status;
  }
  StoreAnswer answer;
  answer.id = in.id();
  answer.code = in.code();
  answer.text = in.text();
  answer.host = in.host();
  answer.pid = in.pid();
  if (answer.id.size() != kRequestIdBytes) {
    return Fault(kKind, "its id is not 16 bytes");
  }
  if (answer.code > kHighestCode) return Fault(kKind, "its code is not known");
  if (!FitsIn(answer.host, kMostHostBytes)) {
    return Fault(kKind, "the host's name is too long");
  }
  answer.removed.assign(in.removed().begin(), in.removed().end());
  answer.versions = in.versions();
  answer.blocks_freed = in.blocks_freed();
  answer.bytes_freed = in.bytes_freed();
  answer.far_bytes_freed = in.far_bytes_freed();
  answer.bytes_left = in.bytes_left();
  answer.files_dropped = in.files_dropped();
  answer.files_rewritten = in.files_rewritten();
  answer.bytes_written = in.bytes_written();
  answer.files_packed = in.files_packed();
  answer.file_bytes_before = in.file_bytes_before();
  answer.file_bytes_after = in.file_bytes_after();
  if (in.kept_versions_size() != in.kept_steps_size() ||
      in.kept_why_size() != in.kept_steps_size()) {
    return Fault(kKind, "its lists of kept steps are not equally long");
  }
  for (int i = 0; i < in.kept_steps_size(); ++i) {
    answer.kept.push_back(
        {in.kept_steps(i), in.kept_versions(i), in.kept_why(i)});
  }
  answer.damaged.assign(in.damaged().begin(), in.damaged().end());
  answer.no_room.assign(in.no_room().begin(), in.no_room().end());
  return answer;
}

}  // namespace ckptree::schema
