// SPDX-License-Identifier: Apache-2.0

// Repair. The steps:
//
//   1. What an interrupted repair left is finished first.
//   2. The writer's lock; without `execute` a look whether anybody has it.
//   3. What is wrong: the store is opened to read, and all of it is read.
//   4. Where that is more than an open for writing mends by itself, the
//      store is recovered beside itself.
//   5. The caller is asked; the store must be as it was in step 2.
//   6. The store is opened for writing, which mends it, or the two stores
//      change places (core/repair/store_swap.h).

#include "ckptree/repair.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "base/status_text.h"
#include "ckptree/local_path.h"
#include "core/engine/engine.h"
#include "core/engine/verifier.h"
#include "core/process/close_at_exit.h"
#include "core/process/guarded_call.h"
#include "core/repair/recovery.h"
#include "core/repair/repair_on.h"
#include "core/repair/store_swap.h"
#include "core/verify/unnamed_versions.h"
#include "core/version/open_check.h"
#include "kv/file_system.h"
#include "kv/object_store.h"
#include "kv/store_directory.h"
#include "kv/store_lock.h"
#include "schema/segment_record.h"

namespace ckptree {
namespace internal {
namespace {

namespace fs = std::filesystem;

using Action = RepairReport::Action;

// No other folder can take its place then.
bool IsMounted(const std::string& directory) {
  struct statx found;
  return statx(AT_FDCWD, directory.c_str(), 0, STATX_TYPE, &found) == 0 &&
         (found.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

// Size, time and place of every file that a writer would change: not of LOCK,
// nor of those of readers and of who asks a writer, which come and go.
absl::StatusOr<std::string> StampOf(const std::string& directory) {
  std::vector<std::string> lines;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (it.depth() == 0 &&
        (name == kv::kLeasesName || name == kv::kRequestsName)) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file(error) || name == kv::kLockName) {
      continue;
    }
    // Not to be taken for damage.
    if (access(it->path().c_str(), R_OK) != 0) {
      return absl::PermissionDeniedError(
          absl::StrFormat("%s cannot be read by this user; nothing was changed",
                          it->path().string()));
    }
    const auto size = it->file_size(error);
    const auto time = it->last_write_time(error);
    lines.push_back(absl::StrFormat("%s %d %d\n", it->path().string(), size,
                                    time.time_since_epoch().count()));
  }
  if (error) {
    return absl::UnknownError(
        absl::StrFormat("looking at %s: %s", directory, error.message()));
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

std::string IdOf(Action action, const std::string& stamp) {
  return base::DigestOf(
             absl::StrFormat("%d\n%s", static_cast<int>(action), stamp))
      .Hex();
}

template <typename Line>
void AddNew(std::vector<std::string>* to, const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    if (std::find(to->begin(), to->end(), line) == to->end()) {
      to->emplace_back(line);
    }
  }
}

// True for what damage looks like to an open.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnknown(status) ||
         absl::IsInternal(status);
}

// Confined to one thread.
class Repairer {
 public:
  Repairer(std::string directory, const RepairOptions& options,
           std::shared_ptr<void> file_system)
      : directory_(std::move(directory)), options_(options) {
    kv_options_.file_system = std::move(file_system);
  }

  absl::StatusOr<RepairReport> Run() {
    // Step 1.
    CKPTREE_ASSIGN_OR_RETURN(const StoreSwap::Leftover leftover,
                             StoreSwap::Look(kv_options_, directory_));
    if (leftover != StoreSwap::Leftover::kNone) return Finish(leftover);
    // Step 2.
    CKPTREE_ASSIGN_OR_RETURN(const kv::StoreDirectory found,
                             kv::LookAt(directory_));
    if (!found.exists || (!found.journal && !found.db && !found.head)) {
      return absl::NotFoundError(absl::StrFormat("no store in %s", directory_));
    }
    CKPTREE_RETURN_IF_ERROR(TakeLock());
    if (options_.execute) {
      CKPTREE_RETURN_IF_ERROR(StoreSwap::Tidy(kv_options_, directory_));
    }
    CKPTREE_ASSIGN_OR_RETURN(stamp_, StampOf(directory_));
    // Step 3.
    CKPTREE_RETURN_IF_ERROR(Diagnose());
    AddNew(&report_.notes, found.warnings);
    NoteOwner();
    report_.id = IdOf(report_.action, stamp_);
    if (!options_.only_if.empty() && options_.only_if != report_.id) {
      return absl::AbortedError(absl::StrFormat(
          "%s is not as it was when the repair was planned", directory_));
    }
    if (report_.action == Action::kRebuild && IsMounted(directory_)) {
      CKPTREE_RETURN_IF_ERROR(Hinder(absl::StrFormat(
          "a file system is mounted at %s, and a repair puts another folder in "
          "its place: recover the store into a new one (`ckptree recover`), or "
          "repair it where that file system is mounted above it",
          directory_)));
    }
    // Step 4.
    if (report_.action == Action::kRebuild) {
      CKPTREE_RETURN_IF_ERROR(Rebuild());
      CKPTREE_RETURN_IF_ERROR(CheckRemote());
    }
    std::sort(report_.steps.begin(), report_.steps.end(),
              [](const RecoveredStep& a, const RecoveredStep& b) {
                return std::tie(a.branch, a.step) < std::tie(b.branch, b.step);
              });
    CKPTREE_RETURN_IF_ERROR(CheckUnchanged());
    if (!options_.execute || report_.action == Action::kNothing) {
      return std::move(report_);
    }
    if (report_.steps_kept() == 0 && !report_.complete()) {
      return absl::DataLossError(absl::StrFormat(
          "not one step of %s could be kept; it was left as it is",
          directory_));
    }
    // Step 5.
    if (options_.confirm && !options_.confirm(report_)) {
      return std::move(report_);
    }
    CKPTREE_RETURN_IF_ERROR(CheckUnchanged());
    // Step 6.
    if (report_.action == Action::kMend) {
      CKPTREE_RETURN_IF_ERROR(Mend());
    } else {
      CKPTREE_ASSIGN_OR_RETURN(report_.damaged, swap_->Run());
    }
    report_.done = true;
    return std::move(report_);
  }

 private:
  absl::StatusOr<RepairReport> Finish(StoreSwap::Leftover leftover) {
    report_.action = Action::kFinish;
    report_.problems.push_back(
        leftover == StoreSwap::Leftover::kHalfWay
            ? absl::StrFormat("a repair was interrupted: the repaired store "
                              "waits in %s.repairing",
                              directory_)
            : absl::StrFormat("a repair was interrupted when it was done: the "
                              "damaged store is still in %s.repairing",
                              directory_));
    report_.id = IdOf(report_.action, directory_);
    if (!options_.only_if.empty() && options_.only_if != report_.id) {
      return absl::AbortedError(absl::StrFormat(
          "%s is not as it was when the repair was planned", directory_));
    }
    if (!options_.execute || (options_.confirm && !options_.confirm(report_))) {
      return std::move(report_);
    }
    CKPTREE_ASSIGN_OR_RETURN(report_.damaged,
                             StoreSwap::Finish(kv_options_, directory_));
    report_.done = true;
    return std::move(report_);
  }

  // A trainer could not write to what another user made for it.
  void NoteOwner() {
    struct stat status;
    if (report_.action == Action::kNothing ||
        stat(directory_.c_str(), &status) != 0 || status.st_uid == geteuid()) {
      return;
    }
    report_.notes.push_back(absl::StrFormat(
        "%s belongs to user %d and you are user %d, who would own the new "
        "files: better run this as that user",
        directory_, status.st_uid, geteuid()));
  }

  absl::Status TakeLock() {
    if (options_.execute) {
      CKPTREE_ASSIGN_OR_RETURN(
          lock_, kv::StoreLock::Acquire(directory_, absl::ToInt64Milliseconds(
                                                        options_.lock_wait)));
      return absl::OkStatus();
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<kv::LockHolder> holder,
                             kv::StoreLock::Probe(directory_));
    if (!holder.has_value()) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrFormat("%s is held by a writer: pid %d on host %s", directory_,
                        holder->pid, holder->host));
  }

  // Nobody wrote to the store since step 2.
  absl::Status CheckUnchanged() {
    if (lock_ != nullptr) {
      CKPTREE_RETURN_IF_ERROR(lock_->Check());
    } else {
      CKPTREE_RETURN_IF_ERROR(TakeLock());
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::string now, StampOf(directory_));
    if (now == stamp_) return absl::OkStatus();
    return absl::AbortedError(absl::StrFormat(
        "%s was changed while it was being looked at", directory_));
  }

  absl::Status Diagnose() {
    StoreOptions reading = QuietOptions();
    reading.read_only = true;
    absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(
        directory_, {.store = reading,
                     .file_system = kv_options_.file_system,
                     .use = lock_ != nullptr ? EngineOptions::Use::kReadLocked
                                             : EngineOptions::Use::kAsked,
                     .leaves_nothing = true});
    if (!engine.ok()) return Need(engine.status());
    if (const std::string feature = ReadOnlyFeature((*engine)->store_record());
        !feature.empty()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("the store uses '%s', with which this engine may "
                          "only read: use a newer one",
                          feature));
    }
    if (absl::Status status = LookAtAll(**engine); !status.ok()) {
      CKPTREE_RETURN_IF_ERROR(Need(status));
    }
    if (report_.action != Action::kRebuild) ListSteps(**engine);
    return (*engine)->Close();
  }

  // `status` is why nothing gentler than kRebuild will do, or is returned.
  // kNotFound: the journal is gone, for there is a store.
  absl::Status Need(const absl::Status& status) {
    if (!IsDamage(status) && !absl::IsNotFound(status)) return status;
    AddNew(&report_.problems,
           std::vector<std::string>{std::string(status.message())});
    report_.action = Action::kRebuild;
    return absl::OkStatus();
  }

  absl::Status LookAtAll(Engine& engine) {
    const kv::OpenReport& found = engine.database().report();
    const std::vector<std::string>& mended = found.warnings;
    const auto is_mended = [&mended](const std::string& line) {
      return std::find(mended.begin(), mended.end(), line) != mended.end();
    };
    bool rebuild = !found.lost.ok();
    for (const std::string& warning : engine.warnings()) {
      report_.problems.push_back(warning);
      rebuild = rebuild || !is_mended(warning);
    }
    VerifyOptions verifying;
    verifying.level = VerifyOptions::Level::kDeep;
    verifying.cancelled = options_.cancelled;
    verifying.on_progress = options_.on_progress;
    CKPTREE_ASSIGN_OR_RETURN(const VerifyReport verified,
                             Verify(&engine, verifying));
    report_.not_looked_at = verified.not_looked_at;
    // Whichever of the two is damaged, the other has the rows.
    index_damage_ = engine.database().IndexDamage();
    std::vector<std::string> ragged;
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> journal,
                             engine.database().CheckJournal(&ragged));
    AddNew(&report_.problems, journal);
    AddNew(&report_.problems, ragged);
    if (!index_damage_.empty()) {
      AddNew(&report_.problems, std::vector<std::string>{index_damage_});
    }
    for (const Finding& finding : verified.findings) {
      if (is_mended(finding.what) || finding.what == index_damage_ ||
          std::find(journal.begin(), journal.end(), finding.what) !=
              journal.end() ||
          std::find(ragged.begin(), ragged.end(), finding.what) !=
              ragged.end()) {
        continue;
      }
      const bool harmless = finding.severity == Finding::Severity::kWarning;
      rebuild = rebuild || !harmless;
      AddNew(harmless ? &report_.notes : &report_.problems,
             std::vector<std::string>{finding.what});
    }
    if (rebuild) {
      const absl::Status far = engine.database().FarAnswers();
      if (!far.ok() && !absl::IsFailedPrecondition(far)) {
        return base::WithText(
            far,
            absl::StrFormat("%s has to be written anew, with what left its "
                            "disk, which cannot be read now: %s",
                            directory_, far.message()));
      }
      report_.action = Action::kRebuild;
    } else if (!report_.problems.empty()) {
      report_.action = Action::kMend;
    }
    return absl::OkStatus();
  }

  // An open for writing makes a damaged index anew, and both copies of the
  // journal.
  absl::Status Mend() {
    if (!index_damage_.empty()) {
      CKPTREE_RETURN_IF_ERROR(kv::WriteFile(
          kv_options_,
          kv::Join(kv::Join(directory_, kv::kJournalName), kv::kRebuildName),
          ""));
    }
    lock_.reset();
    StoreOptions writing = QuietOptions();
    writing.lock_wait = options_.lock_wait;
    CKPTREE_ASSIGN_OR_RETURN(
        const std::shared_ptr<Engine> engine,
        Engine::Open(directory_, {.store = writing,
                                  .file_system = kv_options_.file_system}));
    CKPTREE_RETURN_IF_ERROR(engine->mutable_database()->WriteRows());
    return engine->Close();
  }

  // Of a store of which every step is whole.
  void ListSteps(const Engine& engine) {
    for (const StepRecordPtr& record : engine.catalog().AllSteps()) {
      RecoveredStep step;
      step.branch = engine.catalog().BranchName(record->branch);
      step.step = record->step;
      step.saved = true;
      step.leaves_saved = record->leaf_count;
      step.bytes = record->logical_bytes;
      report_.steps.push_back(std::move(step));
    }
  }

  absl::Status Rebuild() {
    CKPTREE_ASSIGN_OR_RETURN(swap_, StoreSwap::Begin(kv_options_, directory_));
    RecoveryPlan plan;
    plan.options.cancelled = options_.cancelled;
    plan.options.on_progress = options_.on_progress;
    plan.options.memory_bytes = options_.memory_bytes;
    plan.locked = lock_ != nullptr;
    plan.save = options_.execute;
    plan.above_versions = true;
    CKPTREE_ASSIGN_OR_RETURN(
        const RecoverReport recovered,
        RecoverInto(directory_, swap_->made(), swap_->scratch(), plan));
    report_.steps = recovered.steps;
    AddNew(&report_.losses, recovered.losses);
    for (const std::string& note : recovered.notes) {
      const auto& known = report_.problems;
      if (std::find(known.begin(), known.end(), note) == known.end()) {
        AddNew(&report_.notes, std::vector<std::string>{note});
      }
    }
    report_.notes.emplace_back(
        "the new store has another uuid, and its versions are above the old "
        "ones");
    return absl::OkStatus();
  }

  // What is lost here may be whole where the directory ships to, and the store
  // that is made is another one than is there.
  absl::Status CheckRemote() {
    const std::string address = Engine::ShippedFrom(directory_, kv_options_);
    if (address.empty()) return absl::OkStatus();
    if (report_.complete()) {
      report_.notes.push_back(absl::StrFormat(
          "%s ships to %s, where the new store is a stranger: give that an "
          "address of its own",
          directory_, kv::ShownAddress(address)));
      return absl::OkStatus();
    }
    return Hinder(absl::StrFormat(
        "%s ships to %s, which may have whole what is lost here: open it with "
        "that remote (a damaged file below db/ that `verify` names is fetched "
        "once it is removed), or fetch all into an empty directory. Where "
        "nothing of it is there any more remove %s first",
        directory_, kv::ShownAddress(address),
        kv::Join(directory_, kv::kRemoteName)));
  }

  // The report has the first one; whoever executes is told it.
  absl::Status Hinder(std::string why) {
    if (report_.hindrance.empty()) report_.hindrance = std::move(why);
    return options_.execute ? absl::FailedPreconditionError(report_.hindrance)
                            : absl::OkStatus();
  }

  const std::string directory_;
  const RepairOptions& options_;
  kv::Options kv_options_;
  std::unique_ptr<kv::StoreLock> lock_;  // With `execute`.
  std::string stamp_;
  RepairReport report_;
  std::unique_ptr<StoreSwap> swap_;
  std::string index_damage_;  // As Database::IndexDamage().
};

}  // namespace

absl::StatusOr<RepairReport> RepairOn(const std::string& directory,
                                      const RepairOptions& options,
                                      std::shared_ptr<void> file_system) {
  // The store itself moves, not a link to it.
  std::error_code error;
  const fs::path path = fs::weakly_canonical(directory, error);
  return Repairer(kv::AbsolutePath(error ? directory : path.string()), options,
                  std::move(file_system))
      .Run();
}

}  // namespace internal

bool RepairReport::complete() const {
  return losses.empty() &&
         std::all_of(steps.begin(), steps.end(), [](const RecoveredStep& s) {
           return s.saved && s.lost.empty();
         });
}

std::uint64_t RepairReport::steps_kept() const {
  return static_cast<std::uint64_t>(
      std::count_if(steps.begin(), steps.end(),
                    [](const RecoveredStep& s) { return s.saved; }));
}

std::optional<std::int64_t> RepairReport::newest_whole_step() const {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (step->branch.empty() && step->saved && step->lost.empty()) {
      return step->step;
    }
  }
  return std::nullopt;
}

absl::StatusOr<RepairReport> Repair(const std::string& directory,
                                    const RepairOptions& options) {
  CKPTREE_RETURN_IF_ERROR(internal::CheckMayOpen());
  CKPTREE_ASSIGN_OR_RETURN(const std::string path, LocalPath(directory));
  return internal::GuardedResult(
      "repairing", [&] { return internal::RepairOn(path, options, nullptr); });
}

}  // namespace ckptree
