// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/far_destination.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "ckptree/local_path.h"
#include "core/remote/address_cache.h"
#include "tools/output/clock.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr absl::Duration kLookForTurn = absl::Milliseconds(50);
constexpr absl::Duration kTimeOfClose = absl::Seconds(10);

// Of what an open says when somebody else may be alive.
constexpr char kMayBeAlive[] = "may still be training";

bool MayBeAlive(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) &&
         absl::StrContains(status.message(), kMayBeAlive);
}

// True where it is the folder on the way that does not go on: another one has
// written there since, or the folder is damaged, or in part.
bool IsOfFolder(const absl::Status& status, const std::string& folder) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return absl::StrContains(status.message(), folder);
    default:
      return false;
  }
}

// As commits in an object store have it.
std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

bool IsAlive(std::int64_t pid) {
  return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

}  // namespace

bool IsFar(const std::string& to) {
  return !LocalPath(to).ok() &&
         (to.starts_with("s3://") || to.starts_with("gs://") ||
          to.starts_with("rados://") || to.starts_with("file:///"));
}

std::string ForACopy(std::string_view why) {
  const std::size_t advice = why.find(": to go on from an older step");
  if (advice == why.npos) return std::string(why);
  return std::string(why.substr(0, advice)) +
         "; `ckptree -C DST policy` shows what it keeps, and `--set` gives it "
         "another one, as all";
}

StoreOptions DestinationOptions(Session& session) {
  StoreOptions options;
  options.create_if_missing = true;
  options.log = [&session](LogSeverity severity, std::string_view,
                           std::string_view text) {
    if (severity != LogSeverity::kInfo) session.Note(ForACopy(text));
  };
  const std::string coding = session.arguments().Get("coding", "");
  if (coding == "none") options.coding = Coding::kNone;
  if (coding == "planes") options.coding = Coding::kPlanes;
  if (coding == "auto") options.coding = Coding::kAuto;
  return options;
}

FarDestination::~FarDestination() {
  if (lock_ >= 0) ::close(lock_);
}

absl::StatusOr<std::optional<Store>> FarDestination::Open(bool dry_run) {
  const auto wait = session_.arguments().Number("wait");
  if (!wait.ok()) return wait.status();
  // Only of the open: a close that is interrupted still ends the chain, so that
  // nobody has to ask whether this copy is alive.
  const auto opening = std::make_shared<bool>(true);
  StoreOptions options = DestinationOptions(session_);
  options.cancelled = [opening] { return *opening && Interrupted(); };
  if (dry_run) {
    options.read_only = true;
    options.create_if_missing = false;
    absl::StatusOr<Store> store = Store::Open(to_, std::move(options));
    *opening = false;
    if (absl::IsNotFound(store.status())) return std::optional<Store>();
    if (!store.ok()) return AtAddress(store.status());
    return std::optional<Store>(*std::move(store));
  }
  if (absl::Status status = FindFolder(); !status.ok()) return status;
  const absl::Duration patience = absl::Seconds(wait->value_or(0));
  if (absl::Status status = TakeTurn(patience); !status.ok()) return status;
  options.remote = to_;
  options.remote_timeout = kTimeOfClose;
  options.take_over = session_.arguments().Has("take-over");
  std::error_code error;
  const bool left = fs::exists(folder_, error);
  absl::StatusOr<Store> store = OpenFolder(options);
  const bool opened = store.ok();
  if (left && (opened ? !store->Info().warnings.empty()
                      : !MayBeAlive(store.status()) &&
                            IsOfFolder(store.status(), folder_))) {
    // Nothing in it is the only one: what is damaged there is no damage.
    if (opened) {
      if (absl::Status status = store->Close(); !status.ok()) {
        return AtAddress(status);
      }
    }
    if (absl::Status status = PutAway(); !status.ok()) return status;
    store = OpenFolder(options);
  }
  *opening = false;
  if (MayBeAlive(store.status())) {
    return WithHint(store.status(),
                    "where nothing runs there any more: --take-over");
  }
  if (!store.ok()) return AtAddress(store.status());
  return std::optional<Store>(*std::move(store));
}

absl::StatusOr<Store> FarDestination::OpenFolder(StoreOptions options) const {
  absl::StatusOr<Store> store = Store::Open(folder_, options);
  if (!options.take_over && WasOurs(store.status())) {
    options.take_over = true;
    store = Store::Open(folder_, std::move(options));
  }
  return store;
}

absl::Status FarDestination::Await(Store& store) {
  while (true) {
    const absl::Status there = store.WaitReplicated(kLook);
    if (!absl::IsDeadlineExceeded(there)) return there;
    if (Interrupted()) return absl::CancelledError("interrupted");
  }
}

void FarDestination::Remove() {
  std::error_code error;
  if (absl::Status status = PutAway(); !status.ok()) {
    session_.Note(std::string(status.message()));
    return;
  }
  fs::remove(folder_ + ".writers", error);
}

absl::Status FarDestination::FindFolder() {
  const std::optional<std::string> cache = internal::CacheFolder();
  if (!cache.has_value()) {
    return WithHint(absl::FailedPreconditionError(
                        "a copy to an object store needs a folder on its way "
                        "there"),
                    "set XDG_CACHE_HOME");
  }
  const fs::path root = *cache;
  std::error_code error;
  fs::create_directories(root, error);
  if (error) {
    return WithHint(
        absl::FailedPreconditionError(
            absl::StrFormat("%s, where a copy to an object store lies on its "
                            "way, cannot be made: %s",
                            root.string(), error.message())),
        "set XDG_CACHE_HOME to a folder that this user may write to");
  }
  folder_ = root / absl::StrFormat("copy-%016x", std::hash<std::string>()(to_));
  return absl::OkStatus();
}

absl::Status FarDestination::TakeTurn(absl::Duration wait) {
  const absl::Time until = NowForWaits() + wait;
  while (true) {
    const absl::StatusOr<bool> taken = TryTurn();
    if (!taken.ok()) return taken.status();
    if (*taken) break;
    if (Interrupted()) return absl::CancelledError("interrupted");
    if (NowForWaits() >= until) {
      return WithExitCode(
          WithHint(
              absl::UnavailableError(absl::StrFormat(
                  "another command of this machine copies to %s", Escape(to_))),
              "wait for its end, or use --wait SECONDS"),
          kExitBusy);
    }
    absl::SleepFor(kLookForTurn);
  }
  std::ifstream lines(folder_ + ".writers");
  for (Writer writer; lines >> writer.host >> writer.pid;) {
    before_.push_back(writer);
  }
  const std::string line = absl::StrFormat("%s %d\n", HostName(), ::getpid());
  if (::write(lock_, line.data(), line.size()) !=
          static_cast<ssize_t>(line.size()) ||
      ::fsync(lock_) != 0) {
    return FileError(errno, folder_ + ".writers");
  }
  // What the removal of an earlier one left.
  std::error_code error;
  fs::remove_all(folder_ + ".gone", error);
  return absl::OkStatus();
}

absl::StatusOr<bool> FarDestination::TryTurn() {
  const std::string path = folder_ + ".writers";
  const int descriptor =
      ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(errno, path);
  struct stat locked {};
  struct stat named {};
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(descriptor);
    if (error == EWOULDBLOCK || error == EINTR) return false;
    return FileError(error, path);
  }
  // The one that had it may have removed it since.
  if (::fstat(descriptor, &locked) != 0 || ::stat(path.c_str(), &named) != 0 ||
      locked.st_ino != named.st_ino || locked.st_dev != named.st_dev) {
    ::close(descriptor);
    return TryTurn();
  }
  lock_ = descriptor;
  return true;
}

// A copy from here that was ended: who holds the turn knows that it is.
bool FarDestination::WasOurs(const absl::Status& refused) const {
  return MayBeAlive(refused) &&
         std::any_of(before_.begin(), before_.end(), [&](const Writer& writer) {
           return absl::StrContains(
                      refused.message(),
                      absl::StrFormat("host %s, pid %d, wrote to ", writer.host,
                                      writer.pid)) &&
                  !IsAlive(writer.pid);
         });
}

absl::Status FarDestination::PutAway() const {
  const std::string gone = folder_ + ".gone";
  std::error_code error;
  fs::remove_all(gone, error);
  fs::rename(folder_, gone, error);
  if (!error) fs::remove_all(gone, error);
  if (!error) return absl::OkStatus();
  return absl::UnknownError(
      absl::StrFormat("%s stays: %s", Escape(folder_), error.message()));
}

}  // namespace ckptree::tools
