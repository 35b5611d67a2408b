// SPDX-License-Identifier: Apache-2.0

#include "core/repair/store_swap.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/repair/recovery.h"
#include "kv/file_system.h"
#include "kv/store_directory.h"

namespace ckptree::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDamagedName = "damaged";
constexpr std::string_view kDoneName = "DONE";
constexpr std::size_t kUuidDigits = 32;

std::string FolderOf(const std::string& store) { return store + ".repairing"; }

std::string ParentOf(const std::string& path) {
  return fs::path(path).parent_path().string();
}

// A link that leads nowhere is something, too.
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// That of its journal, as 32 digits; empty where that cannot be read.
std::string UuidOf(const kv::Options& options, const std::string& store) {
  const auto uuid = kv::UuidOfStore(options, store);
  std::string text;
  if (!uuid.has_value()) return text;
  for (const std::uint8_t byte : *uuid) {
    absl::StrAppendFormat(&text, "%02x", byte);
  }
  return text;
}

// What DONE says; nothing where it is not there as a whole.
std::string DoneUuid(const kv::Options& options, const std::string& folder) {
  const absl::StatusOr<std::string> text = kv::ReadFile(
      options, absl::StrFormat("%s/%s", folder, kDoneName), kUuidDigits + 1);
  return text.ok() && text->size() == kUuidDigits ? *text : "";
}

std::string FreeName(const std::string& store) {
  std::string name = store + ".damaged";
  for (int n = 2; Exists(name); ++n) {
    name = absl::StrFormat("%s.damaged.%d", store, n);
  }
  return name;
}

// kFailedPrecondition: the folder is of others, or has what no repair made.
absl::Status CheckOurs(const kv::Options& options, const std::string& folder) {
  const auto not_ours = [&folder](std::string_view what) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s %s, and a repair works in a folder of that name: move it away",
        folder, what));
  };
  std::error_code error;
  if (fs::symlink_status(folder, error).type() != fs::file_type::directory) {
    return not_ours("is no folder");
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           kv::ListDirectory(options, folder));
  for (const std::string& name : names) {
    if (name != kDoneName && name != kDamagedName && name != kv::kLockName &&
        !IsOfWork(name)) {
      return not_ours(absl::StrFormat("has %s, which no repair made", name));
    }
  }
  return absl::OkStatus();
}

// DONE first: without it nothing else in the folder means anything.
absl::Status RemoveFolder(const kv::Options& options,
                          const std::string& folder) {
  CKPTREE_RETURN_IF_ERROR(
      kv::RemoveFile(options, absl::StrFormat("%s/%s", folder, kDoneName)));
  return kv::RemoveTree(options, folder);
}

}  // namespace

absl::StatusOr<StoreSwap::Leftover> StoreSwap::Look(const kv::Options& options,
                                                    const std::string& store) {
  const std::string folder = FolderOf(store);
  if (!Exists(folder)) return Leftover::kNone;
  CKPTREE_RETURN_IF_ERROR(CheckOurs(options, folder));
  const std::string made = absl::StrFormat("%s/%s", folder, kMadeName);
  const std::string damaged = absl::StrFormat("%s/%s", folder, kDamagedName);
  const std::string uuid = DoneUuid(options, folder);
  if (!uuid.empty()) {
    if (UuidOf(options, store) == uuid) return Leftover::kAdopted;
    const bool is_made = UuidOf(options, made) == uuid;
    if (!Exists(store) && is_made) return Leftover::kHalfWay;
    if (!Exists(damaged) && (is_made || !Exists(made))) return Leftover::kNone;
  } else if (!Exists(damaged)) {
    return Leftover::kNone;
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "a repair of %s was interrupted and something else took its place since: "
      "%s may hold the damaged and the repaired store; look at them and move "
      "them away",
      store, folder));
}

StoreSwap::StoreSwap(const kv::Options& options, std::string store,
                     std::unique_ptr<kv::StoreLock> lock)
    : options_(options),
      store_(std::move(store)),
      folder_(FolderOf(store_)),
      lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<StoreSwap>> StoreSwap::Begin(
    const kv::Options& options, const std::string& store) {
  const std::string folder = FolderOf(store);
  CKPTREE_RETURN_IF_ERROR(kv::MakeDirectory(options, folder));
  std::error_code error;
  fs::permissions(folder, fs::perms::owner_all, error);
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<kv::StoreLock> lock,
                           kv::StoreLock::Acquire(folder, /*wait_ms=*/0));
  // Once more, now that nobody else is at it: whoever was may have been killed
  // half-way, and the damaged store be in it.
  CKPTREE_ASSIGN_OR_RETURN(const Leftover leftover, Look(options, store));
  if (leftover != Leftover::kNone) {
    return absl::AbortedError(absl::StrFormat(
        "another repair of %s was interrupted just now: repair it again, which "
        "goes on with that one",
        store));
  }
  std::unique_ptr<StoreSwap> swap(
      new StoreSwap(options, store, std::move(lock)));
  // Now that nobody else is in it. The lock's own file must stay.
  CKPTREE_RETURN_IF_ERROR(kv::RemoveFile(options, swap->Name(kDoneName)));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           kv::ListDirectory(options, folder));
  for (const std::string& name : names) {
    if (IsOfWork(name)) {
      CKPTREE_RETURN_IF_ERROR(kv::RemoveTree(options, swap->Name(name)));
    }
  }
  return swap;
}

absl::Status StoreSwap::Tidy(const kv::Options& options,
                             const std::string& store) {
  if (!Exists(FolderOf(store))) return absl::OkStatus();
  // Goes with what it returns.
  return Begin(options, store).status();
}

absl::StatusOr<std::string> StoreSwap::Finish(const kv::Options& options,
                                              const std::string& store) {
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::StoreLock> lock,
      kv::StoreLock::Acquire(FolderOf(store), /*wait_ms=*/0));
  StoreSwap swap(options, store, std::move(lock));
  swap.begun_ = true;
  // Once more, now that nobody else is at it.
  CKPTREE_ASSIGN_OR_RETURN(const Leftover leftover, Look(options, store));
  if (leftover == Leftover::kHalfWay) {
    CKPTREE_RETURN_IF_ERROR(
        kv::RenameFile(options, swap.Name(kMadeName), store));
  }
  return swap.PutAway();
}

StoreSwap::~StoreSwap() {
  // What cannot be removed now is removed by the next repair.
  if (!begun_) RemoveFolder(options_, folder_).IgnoreError();
}

std::string StoreSwap::Name(std::string_view name) const {
  return absl::StrFormat("%s/%s", folder_, name);
}
std::string StoreSwap::made() const { return Name(kMadeName); }
std::string StoreSwap::scratch() const { return Name(kScratchName); }

absl::StatusOr<std::string> StoreSwap::Run() {
  // Step 1.
  std::error_code error;
  const fs::perms mode = fs::status(store_, error).permissions();
  if (!error) fs::permissions(made(), mode, error);
  // By this the next repair knows which store is which.
  const std::string uuid = UuidOf(options_, made());
  if (uuid.empty()) {
    return absl::UnavailableError(absl::StrFormat(
        "%s cannot be read just now, so that nothing was changed", made()));
  }
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, made()));
  CKPTREE_RETURN_IF_ERROR(kv::WriteFile(options_, Name(kDoneName), uuid));
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, folder_));
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, ParentOf(store_)));
  // Step 2.
  begun_ = true;
  if (absl::Status status = ChangePlaces(); !status.ok()) {
    // Nothing was moved, or it was moved back.
    begun_ = !Exists(store_) || Exists(Name(kDamagedName));
    return status;
  }
  return PutAway();
}

absl::Status StoreSwap::ChangePlaces() {
  const absl::Status exchanged = kv::ExchangeFiles(options_, store_, made());
  if (!absl::IsUnimplemented(exchanged)) return exchanged;
  const std::string damaged = Name(kDamagedName);
  CKPTREE_RETURN_IF_ERROR(kv::RenameFile(options_, store_, damaged));
  const absl::Status status = kv::RenameFile(options_, made(), store_);
  if (status.ok()) return status;
  if (!Exists(store_) && kv::RenameFile(options_, damaged, store_).ok()) {
    return status;
  }
  return absl::Status(
      status.code(),
      absl::StrFormat("%s; the damaged store is now %s, and the repaired one "
                      "%s: repair it again to go on",
                      std::string(status.message()), damaged, made()));
}

absl::Status StoreSwap::ReturnFilesOfOthers(const std::string& from) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           kv::ListDirectory(options_, from));
  for (const std::string& name : names) {
    const std::string back = kv::Join(store_, name);
    if (kv::IsOwnName(name) || Exists(back)) continue;
    CKPTREE_RETURN_IF_ERROR(
        kv::RenameFile(options_, kv::Join(from, name), back));
  }
  return kv::SyncDirectory(options_, store_);
}

absl::StatusOr<std::string> StoreSwap::PutAway() {
  const std::string parent = ParentOf(store_);
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, parent));
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, folder_));
  // Step 3.
  std::string kept;
  for (const std::string_view name : {kDamagedName, kMadeName}) {
    if (!Exists(Name(name))) continue;
    CKPTREE_RETURN_IF_ERROR(ReturnFilesOfOthers(Name(name)));
    kept = FreeName(store_);
    CKPTREE_RETURN_IF_ERROR(kv::RenameFile(options_, Name(name), kept));
  }
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, parent));
  CKPTREE_RETURN_IF_ERROR(kv::SyncDirectory(options_, folder_));
  // Step 4.
  CKPTREE_RETURN_IF_ERROR(RemoveFolder(options_, folder_));
  return kept;
}

}  // namespace ckptree::internal
