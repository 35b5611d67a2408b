// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/refusal.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/ranks/coordinator_mail.h"
#include "core/ranks/rank_remote.h"
#include "core/remote/remote_objects.h"
#include "kv/file_system.h"
#include "kv/process_mark.h"
#include "kv/store_directory.h"

namespace ckptree::internal {
namespace {

using schema::MailKind;
using schema::RankMail;

constexpr std::size_t kMostRefusalBytes = std::size_t{64} << 10;
// Rank 0 is told why by then, and nobody waits for its word as for a step's.
constexpr absl::Duration kTimeToTell = absl::Seconds(5);

std::string FileOf(const std::string& directory) {
  return kv::AbsolutePath(directory) + ".refused";
}

// When this process began, by the clock of absl::Now().
absl::Time ProcessBegan() {
  const absl::Time now = absl::Now();
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      std::fopen("/proc/self/stat", "re"), &std::fclose);
  std::string text(4096, '\0');
  if (file != nullptr) {
    text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  }
  // Behind the name, which may have blanks and brackets: the 20th field.
  constexpr std::size_t kField = 20;
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(std::min(text.rfind(')'), text.size())), ' ');
  std::int64_t ticks = 0;
  timespec since_boot = {};
  if (file == nullptr || fields.size() <= kField ||
      !absl::SimpleAtoi(fields[kField], &ticks) ||
      clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) {
    return now;
  }
  const absl::Duration began = absl::Seconds(1) * ticks / sysconf(_SC_CLK_TCK);
  return now - (absl::DurationFromTimespec(since_boot) - began);
}

// By rank: what this process heard last is of an opening before.
class Heard {
 public:
  static Heard& Of() {
    static Heard* const heard = new Heard();
    return *heard;
  }
  absl::Time Last(const std::string& key) {
    const absl::MutexLock lock(&mu_);
    const auto found = last_.find(key);
    return found == last_.end() ? absl::InfinitePast() : found->second;
  }
  void Note(const std::string& key, absl::Time when) {
    const absl::MutexLock lock(&mu_);
    last_[key] = when;
  }

 private:
  absl::Mutex mu_;
  std::map<std::string, absl::Time> last_ ABSL_GUARDED_BY(mu_);
};

absl::Time TimeOf(const RankMail& refused) {
  return absl::FromUnixNanos(static_cast<std::int64_t>(refused.ordinal));
}

// Whether a file of another's has the name.
bool IsOfOthers(const kv::Options& kv_options, const std::string& file) {
  const absl::StatusOr<std::string> bytes =
      kv::ReadFile(kv_options, file, kMostRefusalBytes);
  if (absl::IsNotFound(bytes.status())) return false;
  if (!bytes.ok()) return true;
  const absl::StatusOr<RankMail> mail = schema::DecodeRankMail(*bytes);
  return !mail.ok() || mail->kind != MailKind::kRefused;
}

}  // namespace

void TellRefusal(const std::string& directory, const RankOptions& options,
                 const kv::Options& kv_options, const absl::Status& why) {
  if (options.world < 2) return;
  RankMail refused;
  refused.kind = MailKind::kRefused;
  refused.world = static_cast<std::uint32_t>(options.world);
  refused.job = options.job;
  refused.host = kv::HostName();
  refused.pid = static_cast<std::uint32_t>(getpid());
  refused.code = static_cast<std::uint32_t>(why.raw_code());
  refused.text = std::string(why.message());
  refused.ordinal = static_cast<std::uint64_t>(absl::GetCurrentTimeNanos());
  const std::string bytes = schema::EncodeRankMail(refused);
  if (options.shared_folder) {
    const std::string file = FileOf(directory);
    if (IsOfOthers(kv_options, file)) return;
    const std::string half = absl::StrCat(file, "-", refused.pid);
    if (kv::WriteFile(kv_options, half, bytes).ok() &&
        kv::RenameFile(kv_options, half, file).ok()) {
      return;
    }
    kv::RemoveFile(kv_options, half).IgnoreError();
    return;
  }
  // Who ended the wait for an object store does not begin another one.
  if (absl::IsCancelled(why)) return;
  const kv::Call call = kv::Call::Within(kTimeToTell);
  const auto store = kv::OpenObjectStore(options.store.remote, {}, call);
  if (!store.ok()) return;
  const auto there = FindRemoteStore(**store, call);
  if (!there.ok() || !there->has_value()) return;
  (*store)
      ->Put(RankRemote::RefusalName((*there)->uuid, options.job),
            BytesOf(bytes), call)
      .IgnoreError();
}

void ForgetRefusal(const std::string& directory,
                   const kv::Options& kv_options) {
  const std::string file = FileOf(directory);
  if (IsOfOthers(kv_options, file)) return;
  kv::RemoveFile(kv_options, file).IgnoreError();
}

RefusalWatch::RefusalWatch(const std::string& directory,
                           const RankOptions& options)
    : file_(FileOf(directory)),
      heard_key_(absl::StrCat(options.rank, " ", options.job, " ", file_)),
      options_(options),
      since_(std::max(ProcessBegan(), Heard::Of().Last(heard_key_))) {}

absl::Status RefusalWatch::Look(const kv::Options& kv_options,
                                kv::ObjectStore* store,
                                const std::string& uuid) {
  std::string bytes;
  if (options_.shared_folder) {
    absl::StatusOr<std::string> read =
        kv::ReadFile(kv_options, file_, kMostRefusalBytes);
    if (!read.ok()) return absl::OkStatus();
    bytes = *std::move(read);
  } else {
    if (store == nullptr) return absl::OkStatus();
    auto read = GetObject(*store, RankRemote::RefusalName(uuid, options_.job),
                          kMostRefusalBytes, kv::Call::Within(kTimeToTell));
    if (!read.ok() || !read->has_value()) return absl::OkStatus();
    bytes = **std::move(read);
  }
  absl::StatusOr<RankMail> mail = schema::DecodeRankMail(bytes);
  if (!mail.ok() || mail->kind != MailKind::kRefused ||
      mail->job != options_.job || mail->code == 0) {
    return absl::OkStatus();
  }
  const absl::Time when = TimeOf(*mail);
  if (when <= since_) {
    before_ = *std::move(mail);
    return absl::OkStatus();
  }
  Heard::Of().Note(heard_key_, when);
  const absl::Status why = StatusOf(*mail);
  return absl::Status(
      absl::IsCancelled(why) ? absl::StatusCode::kUnavailable : why.code(),
      absl::StrFormat(
          "rank %d of %d: rank 0 (pid %d on %s) was refused the store: %s",
          options_.rank, options_.world, mail->pid, mail->host, mail->text));
}

std::string RefusalWatch::Before() const {
  if (!before_.has_value()) return "";
  return absl::StrFormat(
      "; rank 0 of that job (pid %d on %s) was refused it before this process "
      "looked, at %s: %s",
      before_->pid, before_->host,
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", TimeOf(*before_),
                       absl::UTCTimeZone()),
      before_->text);
}

}  // namespace ckptree::internal
