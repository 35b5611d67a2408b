// SPDX-License-Identifier: Apache-2.0

#include "schema/dead_list.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/spaces.h"

namespace ckptree::schema {
namespace {

absl::Status ListFault(std::string_view what) {
  return Fault(RecordKind::kDeadList, what);
}

bool PlaceFits(std::uint32_t kind, std::uint32_t place) {
  const auto is = [place](Space space) {
    return place == static_cast<std::uint32_t>(space);
  };
  if (kind == static_cast<std::uint32_t>(BlockKind::kLeafRecord)) {
    return is(Space::kSmall) || is(Space::kLeaves);
  }
  return kind == static_cast<std::uint32_t>(BlockKind::kChunk) &&
         (is(Space::kSmall) || is(Space::kChunks));
}

// The first block that is not of the run; 64 bits so that it always exists.
std::uint64_t EndOf(const BlockRun& run) {
  return std::uint64_t{run.first_n} + run.count;
}

const char* RunFault(const BlockRun& run, std::uint64_t prev) {
  if (run.version == 0 || run.version > prev) {
    return "a run is of a version that its base cannot refer to";
  }
  if (run.count == 0) return "a run is empty";
  const std::uint32_t first = SequenceOf(run.first_n);
  if (first == kHeaderSequence || first > kMaxSequence ||
      std::uint64_t{first} + run.count - 1 > kMaxSequence) {
    return "a run has numbers that are not of blocks";
  }
  if (run.bytes < run.count ||
      run.bytes / run.count > static_cast<std::uint64_t>(kMaxRecordBytes)) {
    return "a run has a size that its blocks cannot have";
  }
  return nullptr;
}

auto Family(const BlockRun& run) {
  return std::tuple(run.kind, run.place, run.version);
}

auto Order(const BlockRun& run) {
  return std::tuple(run.kind, run.place, run.version, run.first_n);
}

// True where `next` is after `run` and not its continuation.
bool Ascends(const BlockRun& run, const BlockRun& next) {
  if (Family(run) != Family(next)) return Family(run) < Family(next);
  return EndOf(run) < next.first_n;
}

// Adds a run that is after all of `runs`, joining it with the last.
void Append(const BlockRun& run, std::vector<BlockRun>* runs) {
  if (!runs->empty()) {
    BlockRun& last = runs->back();
    if (Family(last) == Family(run) && EndOf(last) == run.first_n) {
      last.count += run.count;
      last.bytes += run.bytes;
      return;
    }
  }
  runs->push_back(run);
}

absl::Status DecodePart(const pb::DeadPart& in, std::uint64_t prev,
                        DeadPart* part) {
  const int count = in.where_size();
  if (count == 0) return ListFault("a part without runs");
  if (in.version_size() != count || in.first_n_size() != count ||
      in.count_size() != count || in.bytes_size() != count) {
    return ListFault("columns of unequal length");
  }
  part->runs.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const std::uint32_t kind = in.where(i) >> 4;
    const std::uint32_t place = in.where(i) & 0xf;
    if (!PlaceFits(kind, place)) {
      return ListFault(
          absl::StrFormat("blocks of kind %d in space %d", kind, place));
    }
    const BlockRun run{static_cast<BlockKind>(kind),
                       static_cast<Space>(place),
                       in.version(i),
                       in.first_n(i),
                       in.count(i),
                       in.bytes(i)};
    if (const char* fault = RunFault(run, prev)) return ListFault(fault);
    if (i > 0 && !Ascends(part->runs.back(), run)) {
      return ListFault("runs that do not ascend or could be one");
    }
    part->runs.push_back(run);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<BlockRun> RunsOf(std::vector<Block> blocks) {
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  std::vector<BlockRun> runs;
  for (const Block& block : blocks) {
    Append({block.kind, block.place, block.version, block.n, 1, block.bytes},
           &runs);
  }
  return runs;
}

std::vector<BlockRun> MergeRuns(std::vector<BlockRun> a,
                                const std::vector<BlockRun>& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  std::vector<BlockRun> runs;
  runs.reserve(a.size() + b.size());
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() || right != b.end()) {
    const bool take_left =
        right == b.end() || (left != a.end() && Order(*left) < Order(*right));
    Append(take_left ? *left++ : *right++, &runs);
  }
  return runs;
}

std::string EncodeDeadList(const DeadList& list) {
  pb::DeadList out;
  out.set_branch(list.branch);
  out.set_prev(list.prev);
  for (const DeadPart& part : list.parts) {
    pb::DeadPart* added = out.add_parts();
    added->set_part(part.part);
    for (const BlockRun& run : part.runs) {
      added->add_where(static_cast<std::uint32_t>(run.kind) << 4 |
                       static_cast<std::uint32_t>(run.place));
      added->add_version(run.version);
      added->add_first_n(run.first_n);
      added->add_count(run.count);
      added->add_bytes(run.bytes);
    }
  }
  return EnvelopeOf(RecordKind::kDeadList, out);
}

absl::StatusOr<DeadList> DecodeDeadList(std::string_view bytes) {
  pb::DeadList in;
  if (absl::Status status = ParseEnvelope(RecordKind::kDeadList, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.parts_size() > kMaxParts) {
    return ListFault(absl::StrFormat("%d parts", in.parts_size()));
  }
  DeadList list;
  list.branch = in.branch();
  list.prev = in.prev();
  for (const pb::DeadPart& part : in.parts()) {
    if (part.part() >= static_cast<std::uint32_t>(kMaxParts) ||
        (!list.parts.empty() && list.parts.back().part >= part.part())) {
      return ListFault(
          absl::StrFormat("part %d is out of range or order", part.part()));
    }
    DeadPart decoded;
    decoded.part = static_cast<std::uint16_t>(part.part());
    if (absl::Status status = DecodePart(part, list.prev, &decoded);
        !status.ok()) {
      return status;
    }
    list.parts.push_back(std::move(decoded));
  }
  return list;
}

}  // namespace ckptree::schema
