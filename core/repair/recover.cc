// SPDX-License-Identifier: Apache-2.0

// Recover. The steps:
//
//   1. `to` is free, and does not lie in `from`.
//   2. `from` is opened read only. Where it opens without a warning it is read
//      as it is.
//   3. Otherwise a database is put together from what can be read of it
//      (kv/salvage.h), beside `to`, and read instead. Where that cannot be done
//      but `from` did open, `from` is read.
//   4. Each step is saved, in the order of versions, into a store beside `to`:
//      what was shared is shared again. A branch is made before its first step.
//   5. That store gets its name.

#include "ckptree/recover.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/local_path.h"
#include "ckptree/store.h"
#include "core/engine/engine.h"
#include "core/engine/source_path.h"
#include "core/engine/store_engine.h"
#include "core/process/close_at_exit.h"
#include "core/process/guarded_call.h"
#include "core/repair/branch_copy.h"
#include "core/repair/recovery.h"
#include "core/repair/step_copy.h"
#include "core/verify/unnamed_versions.h"
#include "core/version/store_features.h"
#include "kv/file_system.h"
#include "kv/salvage.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"

namespace ckptree {
namespace internal {

// The store that is recovered, open for reading; `notes` and `losses` say how
// it was found. Closed before its scratch folder goes.
class RecoverySource {
 public:
  static absl::StatusOr<RecoverySource> Open(const std::string& from,
                                             const std::string& scratch,
                                             const RecoveryPlan& plan,
                                             RecoverReport* report);

  const Store& store() const { return store_; }
  // Forks name the version that they come from, which may be gone: in the new
  // store no other may get its number.
  bool HasForks() const {
    const Catalog& catalog = StoreEngine::Of(store_).catalog();
    const std::vector<StepRecordPtr> steps = catalog.AllSteps();
    return catalog.Branches().size() > 1 ||
           std::any_of(steps.begin(), steps.end(), [](const auto& step) {
             return step->branch != kMainBranch;
           });
  }
  // The highest version that is seen in it, or that its journal names.
  std::uint64_t HighestSeen() const {
    return std::max(version_ceiling_,
                    HighestVersion(StoreEngine::Of(store_).database()));
  }

 private:
  explicit RecoverySource(Store store) : store_(std::move(store)) {}

  static absl::StatusOr<RecoverySource> Salvaged(const std::string& from,
                                                 const std::string& scratch,
                                                 const RecoveryPlan& plan,
                                                 RecoverReport* report);

  Store store_;
  std::uint64_t version_ceiling_ = 0;
};

namespace {

namespace fs = std::filesystem;

constexpr char kWorkFolderEnd[] = ".recovering";

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// Once it made a store it has nothing to do but to remove its work folder,
// before which it may have been killed. True where it was, and that is done.
bool RemoveLeftBy(const std::string& finished) {
  const std::string left = finished + kWorkFolderEnd;
  std::error_code error;
  return fs::is_directory(fs::symlink_status(left, error)) &&
         WorkFolder::Make(left).ok();
}

// Step 1.
absl::Status CheckPlaces(const std::string& from, const std::string& to) {
  std::error_code error;
  if (fs::symlink_status(to, error).type() != fs::file_type::not_found) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s exists already%s", to,
        RemoveLeftBy(to) ? ": a recovery made it, and was killed as it ended; "
                           "what it left is removed"
                         : ""));
  }
  const fs::path parent = fs::absolute(to, error).parent_path();
  if (!fs::is_directory(parent, error)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("there is no folder %s", parent.string()));
  }
  const fs::path source = fs::weakly_canonical(from, error);
  for (fs::path folder = fs::weakly_canonical(parent, error); !error;
       folder = folder.parent_path()) {
    if (folder == source) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s lies in %s, which is not to be changed", to, from));
    }
    if (folder == folder.root_path()) break;
  }
  return absl::OkStatus();
}

bool Cancelled(const RecoverOptions& options) {
  return options.cancelled && options.cancelled();
}

template <typename Item, typename From>
void Append(std::vector<Item>* to, const std::vector<From>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

// Tags and the pin of a step that was saved.
void CarryNames(const StepInfo& info, Store* to, RecoverReport* report) {
  const StepSelector step = AtStep(info.step, info.branch);
  for (const std::string& tag : info.tags) {
    if (absl::Status status = to->Tag(tag, step); !status.ok()) {
      report->losses.push_back(absl::StrFormat("tag %s of step %s: %s", tag,
                                               Text(step),
                                               std::string(status.message())));
    }
  }
  if (!info.pinned) return;
  if (absl::Status status = to->Pin(step); !status.ok()) {
    report->losses.push_back(absl::StrFormat(
        "the pin of step %s: %s", Text(step), std::string(status.message())));
  }
}

// Step 4.
absl::Status CopySteps(const Store& from, Store* to, const RecoveryPlan& plan,
                       RecoverReport* report) {
  const RecoverOptions& options = plan.options;
  BranchCopier branches(StoreEngine::Of(from), &StoreEngine::Of(*to));
  Append(&report->losses, branches.NameBranches());
  std::vector<StepInfo> steps;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> all, from.Branches());
  for (const BranchInfo& branch : all) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> of_branch,
                             from.Steps(branch.name));
    Append(&steps, of_branch);
  }
  std::sort(steps.begin(), steps.end(),
            [](const StepInfo& a, const StepInfo& b) {
              return a.version < b.version;
            });
  std::uint64_t done = 0, total = 0;
  for (const StepInfo& info : steps) total += info.logical_bytes;
  StepCopyOptions copying;
  copying.memory_bytes = options.memory_bytes;
  copying.save = plan.save;
  copying.cancelled = [&options] { return Cancelled(options); };
  copying.on_read = [&](std::uint64_t bytes) {
    done += bytes;
    if (options.on_progress) options.on_progress(done, total);
  };
  for (const StepInfo& info : steps) {
    CKPTREE_RETURN_IF_ERROR(branches.Copy(info.branch));
    const absl::StatusOr<Step> step =
        from.OpenStep(AtStep(info.step, info.branch));
    if (!step.ok()) {
      RecoveredStep lost;
      lost.branch = info.branch;
      lost.step = info.step;
      lost.why = std::string(step.status().message());
      lost.leaves_lost = info.leaf_count;
      report->steps.push_back(std::move(lost));
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(RecoveredStep copied,
                             CopyStep(*step, to, copying));
    if (copied.saved && plan.save) CarryNames(info, to, report);
    report->steps.push_back(std::move(copied));
  }
  for (const BranchInfo& branch : all) {
    CKPTREE_RETURN_IF_ERROR(branches.Copy(branch.name));
    // Last of all: no save of this copy is to be judged by the policy.
    CKPTREE_RETURN_IF_ERROR(branches.CopySettings(branch.name));
  }
  Append(&report->losses, branches.losses());
  return absl::OkStatus();
}

// A tag of a step that has no row any more cannot be listed with its step.
void NoteLostTags(const Store& from, RecoverReport* report) {
  const auto tags = from.Tags();
  if (!tags.ok()) return;
  for (const TagInfo& tag : *tags) {
    const bool saved = std::any_of(report->steps.begin(), report->steps.end(),
                                   [&tag](const RecoveredStep& s) {
                                     return s.branch == tag.branch &&
                                            s.step == tag.step && s.saved;
                                   });
    if (saved) continue;
    report->losses.push_back(
        absl::StrFormat("tag %s names step %s, which is lost", tag.name,
                        StepText(tag.branch, tag.step)));
  }
}

}  // namespace

absl::StatusOr<RecoverySource> RecoverySource::Open(const std::string& from,
                                                    const std::string& scratch,
                                                    const RecoveryPlan& plan,
                                                    RecoverReport* report) {
  StoreOptions reading = QuietOptions();
  reading.read_only = true;
  absl::StatusOr<std::shared_ptr<Engine>> opened =
      Engine::Open(from, {.store = reading,
                          .use = plan.locked ? EngineOptions::Use::kReadLocked
                                             : EngineOptions::Use::kAsked,
                          .leaves_nothing = true});
  if (opened.ok()) {
    const std::vector<std::string> warnings = (*opened)->warnings();
    const kv::OpenReport& found = (*opened)->database().report();
    // Step 2. What was mended on the way costs nothing.
    const bool mended = std::all_of(
        warnings.begin(), warnings.end(), [&found](const std::string& line) {
          return std::find(found.warnings.begin(), found.warnings.end(),
                           line) != found.warnings.end();
        });
    if (mended) {
      report->notes = warnings;
      if (!found.lost.ok()) {
        report->losses.emplace_back(found.lost.message());
        Append(&report->losses,
               UnnamedVersions((*opened)->database(), &report->notes));
      }
      return RecoverySource(StoreEngine::StoreOf(*std::move(opened)));
    }
    RecoverReport tried;
    tried.notes = warnings;
    absl::StatusOr<RecoverySource> salvaged =
        Salvaged(from, scratch, plan, &tried);
    if (salvaged.ok() || absl::IsCancelled(salvaged.status())) {
      *report = std::move(tried);
      return salvaged;
    }
    report->losses = warnings;
    report->notes.emplace_back(salvaged.status().message());
    return RecoverySource(StoreEngine::StoreOf(*std::move(opened)));
  }
  const absl::Status& why = opened.status();
  // What is no store, one of a newer engine, or one with links in it is not
  // damaged.
  if (absl::IsNotFound(why)) {
    // The journal may be gone where the index is left.
    CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found, kv::LookAt(from));
    if (!found.db || found.creating) return why;
  } else if (!absl::IsDataLoss(why) && !absl::IsUnknown(why) &&
             !absl::IsInternal(why) && !absl::IsUnavailable(why)) {
    return why;
  }
  report->notes.emplace_back(why.message());
  return Salvaged(from, scratch, plan, report);
}

// Step 3.
absl::StatusOr<RecoverySource> RecoverySource::Salvaged(
    const std::string& from, const std::string& scratch,
    const RecoveryPlan& plan, RecoverReport* report) {
  CKPTREE_ASSIGN_OR_RETURN(
      const kv::SalvageReport salvaged,
      kv::Salvage(from, scratch, kv::Options(), plan.locked, SpaceOfSegment,
                  UuidOfStoreRow, [&plan] { return Cancelled(plan.options); }));
  for (const std::string& note : salvaged.notes) {
    // What kept it from opening may be met twice.
    const auto& notes = report->notes;
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
      report->notes.push_back(note);
    }
  }
  Append(&report->losses, salvaged.losses);
  if (salvaged.rebuilt) {
    report->notes.emplace_back("steps that had been removed may be here again");
  }
  StoreOptions reading = QuietOptions();
  reading.read_only = true;
  CKPTREE_ASSIGN_OR_RETURN(
      std::shared_ptr<Engine> engine,
      Engine::Open(scratch, {.store = reading,
                             .use = EngineOptions::Use::kReadSalvaged}));
  const kv::Database& database = engine->database();
  engine->arena().execute(
      [&] { Append(&report->losses, engine->catalog().Load(database)); });
  // With all rows there, a save without its own was removed, or never
  // committed.
  if (salvaged.rows_missing) {
    Append(&report->losses, UnnamedVersions(database, &report->notes));
  }
  RecoverySource source(StoreEngine::StoreOf(std::move(engine)));
  source.version_ceiling_ = salvaged.version_ceiling;
  return source;
}

namespace {

// The highest version that was ever used in `from`, as far as anything says it.
absl::StatusOr<std::uint64_t> HighestVersionOf(const std::string& from,
                                               const RecoverySource& source) {
  std::uint64_t highest = source.HighestSeen();
  CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found, kv::LookAt(from));
  highest = std::max(highest, found.highest_staged_version);
  for (const auto& [number, branch] :
       StoreEngine::Of(source.store()).catalog().Branches()) {
    highest = std::max(highest, branch.origin_version);
  }
  return std::max(
      highest,
      StoreEngine::Of(source.store()).database().report().highest_version);
}

// What was coded in `from` is coded in the new one.
absl::StatusOr<Store> MakeStore(const std::string& directory, const Store& from,
                                std::uint64_t version_ceiling) {
  StoreOptions options = QuietOptions();
  if (HasFeature(StoreEngine::Of(from).database(), kCodedFeature)
          .value_or(false)) {
    options.coding = Coding::kPlanes;
  }
  CKPTREE_ASSIGN_OR_RETURN(
      std::shared_ptr<Engine> engine,
      Engine::Create(directory, {.store = std::move(options),
                                 .version_floor = version_ceiling}));
  return StoreEngine::StoreOf(std::move(engine));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkFolder>> WorkFolder::Make(std::string path) {
  std::error_code error;
  const bool made = fs::create_directory(path, error);
  if (error) {
    return absl::UnknownError(
        absl::StrFormat("creating %s: %s", path, error.message()));
  }
  // Whoever makes one locks it; a lock file in it is the mark of ours.
  if (!made && !fs::exists(absl::StrFormat("%s/%s", path, kv::kLockName)) &&
      !fs::is_empty(path, error)) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s exists and is no folder of a recovery; move it away", path));
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    if (name == kv::kLockName) continue;
    if (!IsOfWork(name)) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "%s exists and has %s, which no recovery made; move it away", path,
          name));
    }
  }
  absl::StatusOr<std::unique_ptr<kv::StoreLock>> lock =
      kv::StoreLock::Acquire(path, /*wait_ms=*/0);
  if (absl::IsUnavailable(lock.status())) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s exists: another recovery makes it", path));
  }
  CKPTREE_RETURN_IF_ERROR(lock.status());
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (IsOfWork(entry.path().filename().string())) {
      fs::remove_all(entry.path(), error);
    }
  }
  fs::permissions(path, fs::perms::owner_all, error);
  return std::unique_ptr<WorkFolder>(
      new WorkFolder(std::move(path), *std::move(lock)));
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  // The lock goes last: by it the rest is known as ours.
  for (fs::directory_iterator it(path_, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    std::error_code stays;
    if (it->path().filename() != kv::kLockName) {
      fs::remove_all(it->path(), stays);
    }
  }
  fs::remove_all(path_, ignored);
}

std::string WorkFolder::operator/(std::string_view name) const {
  return absl::StrFormat("%s/%s", path_, name);
}

StoreOptions QuietOptions() {
  StoreOptions options;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  return options;
}

absl::StatusOr<RecoverReport> RecoverInto(const std::string& from,
                                          const std::string& to,
                                          const std::string& scratch,
                                          const RecoveryPlan& plan) {
  RecoverReport report;
  CKPTREE_ASSIGN_OR_RETURN(const RecoverySource source,
                           RecoverySource::Open(from, scratch, plan, &report));
  std::uint64_t ceiling = 0;
  if (plan.above_versions || source.HasForks()) {
    CKPTREE_ASSIGN_OR_RETURN(ceiling, HighestVersionOf(from, source));
  }
  CKPTREE_ASSIGN_OR_RETURN(Store store, MakeStore(to, source.store(), ceiling));
  CKPTREE_RETURN_IF_ERROR(CopySteps(source.store(), &store, plan, &report));
  NoteLostTags(source.store(), &report);
  CKPTREE_RETURN_IF_ERROR(store.Close());
  return report;
}

}  // namespace internal

bool RecoverReport::complete() const {
  return losses.empty() &&
         std::all_of(steps.begin(), steps.end(), [](const RecoveredStep& s) {
           return s.saved && s.lost.empty();
         });
}

std::uint64_t RecoverReport::steps_saved() const {
  return static_cast<std::uint64_t>(
      std::count_if(steps.begin(), steps.end(),
                    [](const RecoveredStep& s) { return s.saved; }));
}

namespace {

absl::StatusOr<RecoverReport> RecoverFrom(const std::string& from_in,
                                          const std::string& to_in,
                                          const RecoverOptions& options) {
  CKPTREE_ASSIGN_OR_RETURN(const std::string from_path,
                           internal::SourcePath(from_in));
  CKPTREE_ASSIGN_OR_RETURN(const std::string to_path, LocalPath(to_in));
  const std::string from = internal::WithoutSlash(from_path);
  const std::string to = internal::WithoutSlash(to_path);
  CKPTREE_RETURN_IF_ERROR(internal::CheckPlaces(from, to));
  std::error_code error;
  if (!internal::fs::is_directory(from, error)) {
    return absl::NotFoundError(absl::StrFormat("no store in %s", from));
  }
  // Steps may go while they are copied.
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<kv::LockHolder> holder,
                           kv::StoreLock::Probe(from));
  if (holder.has_value()) {
    return absl::UnavailableError(
        absl::StrFormat("%s is held by a writer: pid %d on host %s", from,
                        holder->pid, holder->host));
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::unique_ptr<internal::WorkFolder> work,
      internal::WorkFolder::Make(to + internal::kWorkFolderEnd));
  const std::string making = *work / internal::kMadeName;
  internal::RecoveryPlan plan;
  plan.options = options;
  CKPTREE_ASSIGN_OR_RETURN(
      RecoverReport report,
      internal::RecoverInto(from, making, *work / internal::kScratchName,
                            plan));
  // Nothing that looks like a store where nothing could be saved.
  if (report.steps_saved() == 0 && !report.complete()) return report;
  // Step 5.
  CKPTREE_RETURN_IF_ERROR(kv::RenameFile(kv::Options(), making, to));
  report.made = true;
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(
      kv::Options(), internal::fs::absolute(to, error).parent_path().string()));
  return report;
}

}  // namespace

absl::StatusOr<RecoverReport> Recover(const std::string& from,
                                      const std::string& to,
                                      const RecoverOptions& options) {
  CKPTREE_RETURN_IF_ERROR(internal::CheckMayOpen());
  return internal::GuardedResult(
      "recovering", [&] { return RecoverFrom(from, to, options); });
}

}  // namespace ckptree
