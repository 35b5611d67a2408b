// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/part_build.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "core/ranks/part_upload.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "core/version/base_loader.h"
#include "kv/file_system.h"
#include "kv/monotonic.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/part_handoff.h"
#include "schema/segment_record.h"

namespace ckptree::internal {
namespace {

// A handoff up to here goes in the token itself; a larger one is a file.
constexpr std::size_t kTokenBytes = 16 << 10;

// A shared folder may show a commit late.
constexpr absl::Duration kLate = absl::Seconds(60);

// Of names that are only told to be told.
constexpr std::size_t kNamesBytes = 1 << 20;

constexpr char kHandoffName[] = "handoff";

// Refreshes until `seen` says that all is there; false where it never is, an
// error where the store cannot be read until then.
absl::StatusOr<bool> RefreshUntil(
    Engine* engine, absl::FunctionRef<absl::StatusOr<bool>()> seen,
    const std::function<absl::Status()>& check) {
  const absl::Time end = kv::MonotonicNow() + kLate;
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    const bool waits = engine->options().read_only && kv::MonotonicNow() < end;
    // What a folder shows piecemeal, while its writer closes it, may be read
    // the next time.
    const absl::Status read = engine->Refresh();
    if (read.ok()) {
      CKPTREE_ASSIGN_OR_RETURN(const bool there, seen());
      if (there) return true;
      if (!waits) return false;
    }
    if (!waits || absl::IsCancelled(read)) return read;
    CKPTREE_RETURN_IF_ERROR(check());
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(100));
  }
}

// Until the store is at the base of the plan, as far as this process sees it.
absl::Status CatchUp(Engine* engine, const schema::RankPlan& plan,
                     const std::function<absl::Status()>& check) {
  std::optional<schema::BranchRecord> branch;
  const auto seen = [&]() -> absl::StatusOr<bool> {
    CKPTREE_ASSIGN_OR_RETURN(branch,
                             ReadBranch(engine->database(), BranchOf(plan)));
    return branch.has_value() && branch->tip == plan.base;
  };
  CKPTREE_ASSIGN_OR_RETURN(const bool there, RefreshUntil(engine, seen, check));
  if (there) return absl::OkStatus();
  if (!branch.has_value()) {
    return absl::NotFoundError(
        "its branch was dropped, or is not seen here yet");
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("the store is at version %d, the save is based on %d",
                      branch->tip, plan.base));
}

// Null where the base has no such part, or one that cannot be read.
absl::StatusOr<std::shared_ptr<const CompactPart>> BaseOf(
    Engine* engine, const schema::RankPlan& plan, std::uint16_t rank,
    const std::function<absl::Status()>& check) {
  if (plan.base == 0 || plan.full) return nullptr;
  if (auto known = engine->part_memory().Find(plan.base, rank)) return known;
  CKPTREE_RETURN_IF_ERROR(CatchUp(engine, plan, check));
  const auto read =
      [&]() -> absl::StatusOr<std::shared_ptr<const CompactPart>> {
    CKPTREE_ASSIGN_OR_RETURN(BaseState base,
                             LoadBaseTable(engine->database(), plan.branch));
    const auto part = base.table.find(rank);
    if (base.version != plan.base || part == base.table.end()) return nullptr;
    CKPTREE_ASSIGN_OR_RETURN(base.parts[rank],
                             LoadCompactPart(engine->database(), part->second));
    CKPTREE_RETURN_IF_ERROR(CheckBlocksAreThere(engine->database(), base));
    return base.parts[rank];
  };
  absl::StatusOr<std::shared_ptr<const CompactPart>> base = read();
  if (!absl::IsDataLoss(base.status())) return base;
  engine->logger().Log(
      LogSeverity::kWarning, "save",
      absl::StrFormat("part %d of the last save is damaged (%s): it is written "
                      "whole",
                      rank, base.status().message()));
  return nullptr;
}

absl::StatusOr<PartResult> ResultOf(const schema::PartHandoff& handoff,
                                    const std::string& folder,
                                    const kv::Options& kv_options) {
  PartResult result;
  const schema::StepRecord& record = handoff.record;
  result.record = record.parts.front();
  schema::EncodedTree tree;
  tree.digest = result.record.tree;
  tree.root = handoff.tree_root;
  for (const std::string& page : handoff.tree_pages) {
    tree.pages.emplace_back(base::DigestOf(page), page);
  }
  result.tree = std::make_shared<const schema::EncodedTree>(std::move(tree));
  for (const auto& [key, value] : handoff.segments) {
    const auto fields = schema::DecodeSegmentKey(key);
    CKPTREE_ASSIGN_OR_RETURN(const schema::SegmentRow row,
                             schema::DecodeSegmentRow(value));
    if (!fields.has_value()) return absl::DataLossError("a segment's key");
    BuiltSegment segment;
    segment.row_key = key;
    segment.row_value = value;
    segment.staged.space = fields->space;
    segment.staged.path =
        SegmentPath(folder, fields->space, fields->part, fields->builder);
    segment.staged.first_key = schema::SegmentHeaderKey(*fields);
    segment.staged.last_key = schema::SegmentTableKey(*fields);
    segment.blocks = row.block_count;
    segment.coded = handoff.coded && fields->space == schema::Space::kChunks;
    CKPTREE_ASSIGN_OR_RETURN(segment.staged.file_bytes,
                             kv::FileSize(kv_options, segment.staged.path));
    result.segments.push_back(std::move(segment));
  }
  result.small = handoff.small;
  if (!handoff.dead.parts.empty()) result.dead = handoff.dead.parts[0].runs;
  result.leaf_count = record.leaf_count;
  result.changed_leaves = record.changed_leaves;
  result.logical_bytes = record.logical_bytes;
  result.new_bytes = record.new_bytes;
  result.nan_count = record.nan_count;
  result.inf_count = record.inf_count;
  result.nonfinite_leaves = record.nonfinite_leaves;
  result.unknown_leaves = record.unknown_leaves;
  result.digest = record.digest;
  result.whole = record.base == 0;
  result.layout = handoff.layout;
  schema::PartOrigin& origin = result.origin.emplace();
  origin.part = result.record.part;
  origin.host = handoff.host;
  origin.pid = handoff.pid;
  origin.nonce = handoff.nonce;
  origin.bytes = result.logical_bytes;
  origin.new_bytes = result.new_bytes;
  origin.nanoseconds = handoff.nanoseconds;
  return result;
}

}  // namespace

absl::Status AwaitCommit(Engine* engine, std::uint64_t ordinal) {
  const kv::Database& database = engine->database();
  CKPTREE_ASSIGN_OR_RETURN(
      const bool there,
      RefreshUntil(
          engine,
          [&]() -> absl::StatusOr<bool> {
            // Not by the step or its version: they may be
            // deleted by now.
            if (!database.reads_far() && database.newest_ordinal() < ordinal)
              return false;
            // The catalog of the engine is to know it,
            // too: a refresh may see a commit after it has
            // listed the steps.
            return engine->Refresh().ok();
          },
          [] { return absl::OkStatus(); }));
  if (there) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("commit %d is not seen here: the store is at %d", ordinal,
                      database.newest_ordinal()));
}

std::uint64_t NewNonce() {
  std::random_device device;
  std::uint64_t nonce = 0;
  while (nonce == 0) {
    nonce = (std::uint64_t{device()} << 32) | (device() & 0xffffffff);
  }
  return nonce;
}

std::string HostName() {
  std::string name(static_cast<std::size_t>(schema::kMaxNameBytes) + 1, '\0');
  if (gethostname(name.data(), name.size() - 1) != 0) return "?";
  name.resize(name.find('\0'));
  return name;
}

std::string AttemptFolder(std::string_view staging,
                          const schema::RankPlan& plan) {
  return absl::StrFormat("%s/%s", staging, plan.attempt);
}

std::string PartFolder(std::string_view staging, const schema::RankPlan& plan,
                       const Builder& builder) {
  return absl::StrFormat("%s/part-%d-%016x", AttemptFolder(staging, plan),
                         builder.rank, builder.nonce);
}

absl::Status CheckPlan(const Engine& engine, const schema::RankPlan& plan) {
  if (plan.uuid != engine.store_record().uuid) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the plan is for another store than the one in %s",
                        engine.directory()));
  }
  if (!engine.options().read_only &&
      plan.session != engine.database().session()) {
    return absl::FailedPreconditionError(
        "the plan is from before the store was opened anew");
  }
  return absl::OkStatus();
}

bool IsGivenUp(const PartPlace& place, const schema::RankPlan& plan) {
  std::error_code error;
  return place.remote == nullptr &&
         !std::filesystem::exists(AttemptFolder(place.staging, plan), error) &&
         !error;
}

absl::StatusOr<PartResult> BuildPart(
    Engine* engine, const PartPlace& place, const schema::RankPlan& plan,
    const Builder& builder, StagedContent* content, SaveCounters* counters,
    const std::function<absl::Status()>& check) {
  const kv::Options& kv_options = engine->kv_options();
  absl::Mutex mu;
  bool made = false;
  PartTask task;
  task.kv_options = kv_options;
  task.staging = PartFolder(place.staging, plan, builder);
  task.make_staging = [&]() -> absl::Status {
    const absl::MutexLock lock(&mu);
    if (made) return absl::OkStatus();
    if (place.remote != nullptr) {
      // In a folder that all see, it is the coordinator's to make and remove.
      CKPTREE_RETURN_IF_ERROR(
          kv::MakeDirectory(kv_options, AttemptFolder(place.staging, plan)));
    }
    CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(kv_options, task.staging));
    made = true;
    return absl::OkStatus();
  };
  task.attempt = plan.attempt;
  task.uuid = plan.uuid;
  task.incarnation = plan.incarnation;
  task.version = plan.version;
  task.step = plan.step;
  task.part = builder.rank;
  task.statistics = engine->options().statistics;
  task.coding = engine->coding().Next();
  task.among_others = true;
  task.small = SmallLimits::ForParts(plan.world);
  task.database = &engine->database();
  task.check = check;
  task.counters = counters;
  absl::StatusOr<PartResult> result = absl::UnknownError("");
  engine->arena().execute([&] {
    result = [&]() -> absl::StatusOr<PartResult> {
      CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const CompactPart> base,
                               BaseOf(engine, plan, builder.rank, check));
      CKPTREE_ASSIGN_OR_RETURN(PartResult built,
                               WritePart(task, content, base.get()));
      engine->coding().Note(task.coding.code, built.times);
      built.whole = base == nullptr;
      return built;
    }();
  });
  CKPTREE_RETURN_IF_ERROR(result.status());
  const std::vector<std::string>& elsewhere =
      content->content().saved_elsewhere;
  base::DigestStream names;
  for (const std::string& path : elsewhere) names.Update(path);
  if (engine->part_memory().AreNews(builder.rank, plan.base, plan.version,
                                    names.Finish())) {
    std::size_t bytes = 0;
    for (const std::string& path : elsewhere) {
      bytes += path.size();
      if (bytes > kNamesBytes) break;
      result->layout.names.push_back(path);
    }
  }
  engine->part_memory().Keep(plan.version, builder.rank, result->next);
  schema::PartOrigin& origin = result->origin.emplace();
  origin.part = builder.rank;
  origin.host = HostName();
  origin.pid = static_cast<std::uint32_t>(getpid());
  origin.nonce = builder.nonce;
  origin.bytes = result->logical_bytes;
  origin.new_bytes = result->new_bytes;
  origin.nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, absl::ToInt64Nanoseconds(kv::MonotonicNow() - builder.planned)));
  return result;
}

absl::StatusOr<std::string> HandOver(
    const Engine& engine, const PartPlace& place, const schema::RankPlan& plan,
    const Builder& builder, PartResult part,
    const std::function<absl::Status()>& check) {
  schema::PartHandoff handoff;
  if (place.remote != nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(
        handoff.uploaded,
        UploadPart(engine.kv_options(), part, *place.remote, check));
  }
  schema::StepRecord& record = handoff.record;
  record.version = plan.version;
  record.base = part.whole ? 0 : plan.base;
  record.step = plan.step;
  record.parts.push_back(part.record);
  record.leaf_count = part.leaf_count;
  record.changed_leaves = part.changed_leaves;
  record.logical_bytes = part.logical_bytes;
  record.new_bytes = part.new_bytes;
  record.nan_count = part.nan_count;
  record.inf_count = part.inf_count;
  record.nonfinite_leaves = part.nonfinite_leaves;
  record.unknown_leaves = part.unknown_leaves;
  record.digest = part.digest;
  handoff.dead.prev = plan.base;
  if (!part.dead.empty()) {
    handoff.dead.parts.push_back({builder.rank, std::move(part.dead)});
  }
  handoff.layout = std::move(part.layout);
  // Where the paths and boxes are the base's, so is the tree.
  if (!handoff.layout.as_base) {
    handoff.tree_root = part.tree->root;
    for (const auto& [digest, page] : part.tree->pages) {
      handoff.tree_pages.push_back(page);
    }
  }
  for (BuiltSegment& segment : part.segments) {
    handoff.coded = handoff.coded || segment.coded;
    handoff.segments.emplace_back(std::move(segment.row_key),
                                  std::move(segment.row_value));
  }
  handoff.small = std::move(part.small);
  handoff.attempt = plan.attempt;
  handoff.session = plan.session;
  handoff.world = plan.world;
  handoff.nonce = builder.nonce;
  if (part.origin.has_value()) {
    handoff.host = part.origin->host;
    handoff.pid = part.origin->pid;
    handoff.nanoseconds = part.origin->nanoseconds;
  }

  schema::PartToken token;
  token.rank = builder.rank;
  token.world = plan.world;
  token.attempt = plan.attempt;
  token.session = plan.session;
  token.nonce = builder.nonce;
  std::string bytes = schema::EncodePartHandoff(handoff);
  if (bytes.size() <= kTokenBytes) {
    token.handoff = std::move(bytes);
    return schema::EncodePartToken(token);
  }
  if (place.remote != nullptr) {
    CKPTREE_RETURN_IF_ERROR(place.remote->store().Put(
        place.remote->PartName(plan.attempt, builder.rank, builder.nonce),
        BytesOf(bytes), CallFor(bytes.size(), {})));
  } else {
    const std::string folder = PartFolder(place.staging, plan, builder);
    CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(engine.kv_options(), folder));
    CKPTREE_RETURN_IF_ERROR(
        kv::WriteFile(engine.kv_options(), folder + "/" + kHandoffName, bytes));
  }
  token.file_bytes = bytes.size();
  token.file_digest = base::DigestOf(bytes);
  return schema::EncodePartToken(token);
}

absl::StatusOr<PartResult> TakeOver(
    Engine* engine, const PartPlace& place, const schema::RankPlan& plan,
    const schema::PartToken& token,
    const std::function<absl::Status()>& check) {
  if (token.attempt != plan.attempt || token.session != plan.session ||
      token.world != plan.world) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "rank %d handed over a part of another attempt: %s of session %d and "
        "%d ranks, not %s of session %d and %d ranks",
        token.rank, token.attempt, token.session, token.world, plan.attempt,
        plan.session, plan.world));
  }
  Builder builder;
  builder.rank = static_cast<std::uint16_t>(token.rank);
  builder.nonce = token.nonce;
  const std::string folder = PartFolder(place.staging, plan, builder);
  std::string bytes = token.handoff;
  if (bytes.empty() && place.remote != nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(
        bytes, GetChecked(place.remote->store(),
                          place.remote->PartName(plan.attempt, builder.rank,
                                                 builder.nonce),
                          token.file_bytes, token.file_digest,
                          CallFor(token.file_bytes, {})));
  } else if (bytes.empty()) {
    CKPTREE_ASSIGN_OR_RETURN(
        bytes, kv::ReadFile(engine->kv_options(), folder + "/" + kHandoffName,
                            token.file_bytes));
    if (bytes.size() != token.file_bytes ||
        base::DigestOf(bytes) != token.file_digest) {
      return absl::DataLossError(absl::StrFormat(
          "what rank %d handed over is not what is there", token.rank));
    }
  }
  CKPTREE_ASSIGN_OR_RETURN(const schema::PartHandoff handoff,
                           schema::DecodePartHandoff(bytes));
  const schema::StepRecord& record = handoff.record;
  if (record.version != plan.version || record.step != plan.step ||
      (record.base != plan.base && record.base != 0) ||
      record.parts.front().part != builder.rank ||
      handoff.attempt != plan.attempt || handoff.nonce != token.nonce ||
      handoff.session != plan.session || handoff.world != plan.world) {
    return absl::DataLossError(absl::StrFormat(
        "the handoff of rank %d contradicts what it said", token.rank));
  }
  if (place.remote == nullptr) {
    return ResultOf(handoff, folder, engine->kv_options());
  }
  CKPTREE_RETURN_IF_ERROR(
      FetchPart(engine->kv_options(), handoff, folder, *place.remote, check));
  CKPTREE_ASSIGN_OR_RETURN(PartResult part,
                           ResultOf(handoff, folder, engine->kv_options()));
  // Before its commit is made, and shipped.
  for (std::size_t i = 0; i < handoff.segments.size(); ++i) {
    engine->replicator()->NoteUploaded(handoff.segments[i].first,
                                       handoff.uploaded[i].segment);
  }
  return part;
}

}  // namespace ckptree::internal
