// SPDX-License-Identifier: Apache-2.0

// The public face of a store.

#include "ckptree/store.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "ckptree/local_path.h"
#include "core/engine/engine.h"
#include "core/engine/policy_preview.h"
#include "core/engine/step_builder.h"
#include "core/engine/step_reader.h"
#include "core/engine/usage.h"
#include "core/engine/verifier.h"
#include "core/process/commit_status.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "core/process/run_elsewhere.h"
#include "core/remote/remote_address.h"
#include "core/version/step_removal.h"
#include "kv/process_use.h"

namespace ckptree {

std::string_view Name(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::kDamage:
      return "damage";
    case Finding::Severity::kInconsistent:
      return "inconsistent";
    case Finding::Severity::kWarning:
      return "warning";
  }
  return "unknown";
}

using internal::Engine;
using internal::GuardedResult;

Store::Store(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
Store::Store(Store&&) noexcept = default;

Store& Store::operator=(Store&& other) noexcept {
  Store next(std::move(other));
  engine_.swap(next.engine_);  // What was here ends as any store does.
  return *this;
}

Store::~Store() {
  if (engine_ == nullptr) return;
  if (engine_->forked()) {
    // A forked child has none of the engine's threads: what it holds must
    // neither be joined nor closed here. Leaked on purpose.
    new std::shared_ptr<Engine>(std::move(engine_));
  } else if (engine_->IsInCallback()) {
    // By the engine's destructor; where it is leaked, when the program ends.
    internal::RunElsewhere([engine = std::move(engine_)] {});
  }
}

namespace {

// An engine and what it hears of its object store have a logger each, and a
// sink hears one line at a time.
StoreOptions OneLineAtATime(StoreOptions options) {
  if (options.log == nullptr) return options;
  options.log =
      [log = std::move(options.log), mu = std::make_shared<absl::Mutex>()](
          LogSeverity severity, std::string_view where, std::string_view text) {
        const absl::MutexLock lock(mu.get());
        log(severity, where, text);
      };
  return options;
}

}  // namespace

absl::StatusOr<Store> Store::Create(const std::string& directory,
                                    StoreOptions options) {
  return GuardedResult("Create", [&]() -> absl::StatusOr<Store> {
    CKPTREE_ASSIGN_OR_RETURN(const std::string path, LocalPath(directory));
    CKPTREE_RETURN_IF_ERROR(kv::CheckMayWrite(path));
    CKPTREE_ASSIGN_OR_RETURN(
        std::shared_ptr<Engine> engine,
        Engine::Create(path, {.store = OneLineAtATime(std::move(options))}));
    return Store(std::move(engine));
  });
}

absl::StatusOr<Store> Store::Open(const std::string& directory,
                                  StoreOptions options) {
  return GuardedResult("Open", [&]() -> absl::StatusOr<Store> {
    if (options.read_only && internal::IsRemoteAddress(directory)) {
      CKPTREE_ASSIGN_OR_RETURN(
          std::shared_ptr<Engine> engine,
          Engine::OpenByAddress(directory,
                                {.store = OneLineAtATime(std::move(options))}));
      return Store(std::move(engine));
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::string path, LocalPath(directory));
    if (!options.read_only) CKPTREE_RETURN_IF_ERROR(kv::CheckMayWrite(path));
    CKPTREE_ASSIGN_OR_RETURN(
        std::shared_ptr<Engine> engine,
        Engine::Open(path, {.store = OneLineAtATime(std::move(options))}));
    return Store(std::move(engine));
  });
}

const std::shared_ptr<Engine>& Store::engine() const {
  base::Require(engine_ != nullptr,
                "a ckptree::Store was used after it was moved from");
  return engine_;
}

StepBuilder Store::Begin(std::int64_t step, SaveOptions options) {
  auto impl = std::make_unique<StepBuilder::Impl>(engine(), step);
  internal::BranchId branch;
  impl->status = internal::GuardedStatus("Begin", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckWritable());
    CKPTREE_RETURN_IF_ERROR(impl->PassOn(&engine()->writer()->failed()));
    CKPTREE_RETURN_IF_ERROR(internal::CheckHealth(engine()->database()));
    if (step < 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("step %d: steps are not negative", step));
    }
    if (options.tagged && !options.overwrite) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "step %d: `tagged` says that a tagged step may be overwritten, and "
          "`overwrite` is not set",
          step));
    }
    // Nanoseconds in 64 bits tell these years whole.
    if (options.time.has_value() &&
        (*options.time <
             absl::FromCivil(absl::CivilYear(1678), absl::UTCTimeZone()) ||
         *options.time >=
             absl::FromCivil(absl::CivilYear(2262), absl::UTCTimeZone()))) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "step %d: its time is %s; the years 1678 to 2261 are possible", step,
          absl::FormatTime(*options.time, absl::UTCTimeZone())));
    }
    CKPTREE_ASSIGN_OR_RETURN(branch,
                             engine()->catalog().FindBranchId(options.branch));
    if (const auto old = engine()->catalog().Find(branch.number, step);
        old != nullptr) {
      CKPTREE_RETURN_IF_ERROR(internal::MayOverwrite(
          engine()->catalog(), *old, options.overwrite, options.tagged));
    }
    impl->save = std::make_shared<internal::Save>(branch, step, options);
    return absl::OkStatus();
  });
  return StepBuilder(std::move(impl));
}

absl::StatusOr<Step> Store::OpenStep(const StepSelector& selector) const {
  return GuardedResult("OpenStep", [&]() -> absl::StatusOr<Step> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    // What `latest` or a tag means may change hands while it is opened; a step
    // that was asked for by its number is gone.
    constexpr int kAttempts = 16;
    for (int i = 1;; ++i) {
      CKPTREE_ASSIGN_OR_RETURN(internal::StepRecordPtr record,
                               engine()->catalog().Resolve(selector));
      absl::StatusOr<std::unique_ptr<internal::StepReader>> reader =
          internal::StepReader::Open(engine(), std::move(record));
      if (reader.ok()) return Step(*std::move(reader));
      if (!internal::HasStepGone(reader.status()) || i == kAttempts ||
          selector.kind == StepSelector::Kind::kStep) {
        return reader.status();
      }
      CKPTREE_RETURN_IF_ERROR(engine()->Refresh());
    }
  });
}

absl::StatusOr<std::vector<StepInfo>> Store::Steps(
    std::string_view branch) const {
  return GuardedResult("Steps", [&]() -> absl::StatusOr<std::vector<StepInfo>> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    CKPTREE_RETURN_IF_ERROR(engine()->catalog().CheckListed());
    CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                             engine()->catalog().FindBranch(branch));
    return engine()->catalog().Infos(engine()->catalog().Steps(number));
  });
}

absl::StatusOr<std::vector<std::int64_t>> Store::StepNumbers(
    std::string_view branch) const {
  return GuardedResult(
      "StepNumbers", [&]() -> absl::StatusOr<std::vector<std::int64_t>> {
        CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
        CKPTREE_RETURN_IF_ERROR(engine()->catalog().CheckListed());
        CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                                 engine()->catalog().FindBranch(branch));
        return engine()->catalog().StepNumbers(number);
      });
}

absl::StatusOr<std::vector<StepInfo>> Store::NewestSteps(
    std::size_t count, std::string_view branch) const {
  return GuardedResult(
      "NewestSteps", [&]() -> absl::StatusOr<std::vector<StepInfo>> {
        CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
        CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                                 engine()->catalog().FindBranch(branch));
        const auto records = engine()->catalog().NewestSteps(number, count);
        // Where others had to be read for it.
        CKPTREE_RETURN_IF_ERROR(engine()->catalog().CheckSeen());
        return engine()->catalog().Infos(records);
      });
}

absl::StatusOr<StepInfo> Store::Resolve(const StepSelector& selector) const {
  return GuardedResult("Resolve", [&]() -> absl::StatusOr<StepInfo> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    CKPTREE_ASSIGN_OR_RETURN(const internal::StepRecordPtr record,
                             engine()->catalog().Resolve(selector));
    return engine()->catalog().Info(*record);
  });
}

absl::Status Store::Delete(const std::vector<StepSelector>& steps,
                           const DeleteOptions& options) {
  return GuardedResult(
      "Delete", [&] { return engine()->commits().Delete(steps, options); });
}

absl::Status Store::Tag(std::string_view name, const StepSelector& step,
                        const TagOptions& options) {
  return GuardedResult(
      "Tag", [&] { return engine()->commits().Tag(name, step, options.move); });
}

absl::Status Store::Fork(const StepSelector& step, std::string_view branch) {
  return GuardedResult("Fork",
                       [&] { return engine()->commits().Fork(step, branch); });
}

absl::Status Store::DropBranch(std::string_view branch,
                               const DeleteOptions& options) {
  return GuardedResult("DropBranch", [&] {
    return engine()->commits().DropBranch(branch, options);
  });
}

absl::StatusOr<std::vector<BranchInfo>> Store::Branches() const {
  return GuardedResult(
      "Branches", [&]() -> absl::StatusOr<std::vector<BranchInfo>> {
        CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
        CKPTREE_RETURN_IF_ERROR(engine()->catalog().CheckListed());
        std::vector<BranchInfo> branches;
        const internal::Catalog& catalog = engine()->catalog();
        const auto branches_by_number = catalog.Branches();
        for (const auto& [number, record] : branches_by_number) {
          BranchInfo branch;
          branch.name = record.name;
          branch.origin_branch =
              branches_by_number.contains(record.origin_branch)
                  ? catalog.BranchName(record.origin_branch)
                  : "?";
          branch.origin_step = record.origin_step;
          branch.origin_version = record.origin_version;
          branch.created = absl::FromUnixNanos(record.created_ns);
          branch.steps = catalog.Steps(number).size();
          branches.push_back(std::move(branch));
        }
        return branches;
      });
}

absl::Status Store::Untag(std::string_view name) {
  return GuardedResult("Untag",
                       [&] { return engine()->commits().Untag(name); });
}

absl::StatusOr<std::vector<TagInfo>> Store::Tags() const {
  return GuardedResult("Tags", [&]() -> absl::StatusOr<std::vector<TagInfo>> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    CKPTREE_RETURN_IF_ERROR(engine()->catalog().CheckListed());
    return engine()->catalog().Tags();
  });
}

absl::Status Store::Pin(const StepSelector& step) {
  return GuardedResult("Pin",
                       [&] { return engine()->commits().Pin(step, true); });
}

absl::Status Store::Unpin(const StepSelector& step) {
  return GuardedResult("Unpin",
                       [&] { return engine()->commits().Pin(step, false); });
}

absl::Status Store::SetPolicy(const Preservation& policy,
                              std::string_view branch) {
  return GuardedResult("SetPolicy", [&] {
    return engine()->settings().SetPolicy(policy, branch,
                                          /*from_program=*/false);
  });
}

absl::StatusOr<PolicyInfo> Store::Policy(std::string_view branch) const {
  return GuardedResult("Policy", [&]() -> absl::StatusOr<PolicyInfo> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                             engine()->catalog().FindBranch(branch));
    return engine()->retention().Of(number);
  });
}

absl::StatusOr<PolicyReport> Store::PreviewPolicy(
    std::string_view branch, const std::optional<Preservation>& policy) const {
  return GuardedResult("PreviewPolicy", [&] {
    return internal::PreviewPolicy(engine().get(), branch, policy);
  });
}

absl::StatusOr<std::vector<std::int64_t>> Store::ApplyPolicy(
    std::string_view branch) {
  return GuardedResult(
      "ApplyPolicy", [&] { return engine()->settings().ApplyPolicy(branch); });
}

absl::Status Store::SetMetadata(std::string json, std::string_view branch) {
  return GuardedResult("SetMetadata", [&] {
    return engine()->settings().SetMetadata(std::move(json), branch);
  });
}

absl::StatusOr<std::string> Store::Metadata(std::string_view branch) const {
  return GuardedResult("Metadata", [&]() -> absl::StatusOr<std::string> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number,
                             engine()->catalog().FindBranch(branch));
    const auto settings = engine()->catalog().Settings(number);
    return settings == nullptr ? "" : settings->metadata;
  });
}

absl::StatusOr<CollectReport> Store::Collect(const CollectOptions& options) {
  return GuardedResult("Collect", [&]() -> absl::StatusOr<CollectReport> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckWritable());
    if (!(options.min_dead_fraction >= 0 && options.min_dead_fraction <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("min_dead_fraction is %g: 0 to 1 are possible",
                          options.min_dead_fraction));
    }
    return GuardedResult(
        "collecting", [&] { return engine()->collector()->Collect(options); });
  });
}

absl::StatusOr<UsageReport> Store::Usage() const {
  return GuardedResult("Usage", [&]() -> absl::StatusOr<UsageReport> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    return internal::Usage(engine().get());
  });
}

absl::StatusOr<FreedBytes> Store::WouldFree(
    const std::vector<StepSelector>& steps) const {
  return GuardedResult("WouldFree", [&]() -> absl::StatusOr<FreedBytes> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    return internal::WouldFree(engine().get(), steps);
  });
}

absl::StatusOr<FreedBytes> Store::WouldFreeBranch(
    std::string_view branch) const {
  return GuardedResult("WouldFreeBranch", [&]() -> absl::StatusOr<FreedBytes> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    return internal::WouldFreeBranch(engine().get(), branch);
  });
}

absl::StatusOr<std::vector<SubtreeUsage>> Store::Subtrees(
    const StepSelector& step, int depth) const {
  return GuardedResult(
      "Subtrees", [&]() -> absl::StatusOr<std::vector<SubtreeUsage>> {
        CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
        if (depth < 0) {
          return absl::InvalidArgumentError(
              absl::StrFormat("depth is %d: 0 or more", depth));
        }
        return internal::Subtrees(engine().get(), step, depth);
      });
}

bool Store::MayReadRemote() const {
  return engine()->CheckUsable().ok() && engine()->MayReadRemote();
}

absl::Status Store::Refresh() {
  return GuardedResult("Refresh", [&] { return engine()->Refresh(); });
}

absl::Status Store::WaitForRoom(absl::Duration timeout) {
  return GuardedResult("WaitForRoom", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckWritable());
    return engine()->writer()->WaitForRoom(timeout);
  });
}

std::uint64_t Store::SavesBegun() const {
  return engine()->writer() == nullptr ? 0 : engine()->writer()->submitted();
}

absl::Status Store::Flush(std::uint64_t saves, absl::Duration timeout) {
  return GuardedResult("Flush", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckWritable());
    CKPTREE_RETURN_IF_ERROR(engine()->writer()->WaitFor(saves, timeout));
    return engine()->writer()->failed().Take(/*only_dropped=*/false);
  });
}

absl::Status Store::WaitForSaves(absl::Duration timeout) const {
  return GuardedResult("WaitForSaves", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    if (engine()->writer() == nullptr ||
        internal::EngineThread::IsOf(&engine()->database())) {
      return absl::OkStatus();
    }
    return engine()->writer()->WaitFor(SavesBegun(), timeout);
  });
}

absl::Status Store::WaitReplicated(absl::Duration timeout) {
  return GuardedResult("WaitReplicated", [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    if (engine()->replicator() == nullptr) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "store %s was opened without a remote", engine()->directory()));
    }
    return engine()->replicator()->WaitForWhole(timeout);
  });
}

absl::StatusOr<VerifyReport> Store::Verify(const VerifyOptions& options) const {
  return GuardedResult("Verify", [&]() -> absl::StatusOr<VerifyReport> {
    CKPTREE_RETURN_IF_ERROR(engine()->CheckUsable());
    if (options.level < VerifyOptions::Level::kQuick ||
        options.level > VerifyOptions::Level::kDeep) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%d is no level of VerifyOptions", static_cast<int>(options.level)));
    }
    return GuardedResult(
        "verifying", [&] { return internal::Verify(engine().get(), options); });
  });
}

StoreInfo Store::Info() const {
  StoreInfo info;
  const schema::StoreRecord& record = engine()->store_record();
  info.directory = engine()->directory();
  for (const char byte : record.uuid) {
    absl::StrAppendFormat(&info.uuid, "%02x", static_cast<unsigned char>(byte));
  }
  info.format = static_cast<int>(record.format);
  info.created = absl::FromUnixNanos(record.created_ns);
  info.created_by = record.created_by;
  info.read_only = engine()->options().read_only;
  // A forked child has its locks as they were, and nobody to give them up.
  if (engine()->forked()) return info;
  info.warnings = engine()->warnings();
  const std::vector<std::string>& notes = engine()->notes();
  info.warnings.insert(info.warnings.end(), notes.begin(), notes.end());
  if (!engine()->CheckUsable().ok()) return info;
  const kv::Database& database = engine()->database();
  info.following = database.following();
  info.commits = database.newest_ordinal();
  info.incarnation = database.report().incarnation;
  info.remote = engine()->address();
  info.far_bytes = engine()->FarBytes();
  if (engine()->replicator() != nullptr) {
    info.remote = engine()->replicator()->address();
    info.unshipped = engine()->replicator()->backlog();
  }
  info.shipped_to = engine()->ShippedTo();
  return info;
}

Stats Store::GetStats() const { return engine()->stats(); }

absl::Status Store::Close() {
  return GuardedResult("Close", [&] { return engine()->Close(); });
}

}  // namespace ckptree
