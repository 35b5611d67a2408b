// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/mailbox.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/big_endian.h"
#include "base/status_macros.h"
#include "kv/file_system.h"
#include "kv/monotonic.h"

namespace ckptree::internal {
namespace {

// A record is a u32, its length, and an enveloped message.
constexpr std::size_t kLengthBytes = 4;
constexpr std::uint32_t kMostBytes = 1 << 20;  // Of a record: far above one.

// Of records that could not be written yet.
constexpr std::size_t kMostKept = 256;
constexpr absl::Duration kRetry = absl::Milliseconds(20);

constexpr std::string_view kJobPrefix = "job-";

// The first record names the process that wrote it.
constexpr std::size_t kMarkBytes = 64;

}  // namespace

std::string MailFolder::Of(std::uint32_t rank, std::uint64_t nonce) const {
  return absl::StrFormat("%s/rank-%d-%016x", path, rank, nonce);
}

bool MailFolder::Parse(const std::string& name, std::uint32_t* rank,
                       std::uint64_t* nonce) {
  unsigned number = 0;
  unsigned long long token = 0;
  int end = 0;
  if (std::sscanf(name.c_str(), "rank-%u-%16llx%n", &number, &token, &end) !=
          2 ||
      static_cast<std::size_t>(end) != name.size()) {
    return false;
  }
  *rank = number;
  *nonce = token;
  return true;
}

std::string MailFolderName(const std::string& job) {
  return std::string(kJobPrefix) + job;
}

std::optional<std::string> JobOf(std::string_view folder_name) {
  if (!folder_name.starts_with(kJobPrefix)) return std::nullopt;
  folder_name.remove_prefix(kJobPrefix.size());
  return std::string(folder_name);
}

absl::Status MailWriter::Post(const schema::RankMail& mail) {
  return Add(mail, /*keep=*/false);
}

absl::Status MailWriter::PostOrKeep(const schema::RankMail& mail) {
  return Add(mail, /*keep=*/true);
}

absl::Status MailWriter::Add(const schema::RankMail& mail, bool keep) {
  const std::string body = schema::EncodeRankMail(mail);
  std::string record;
  base::AppendBig(static_cast<std::uint32_t>(body.size()), &record);
  record += body;

  const absl::MutexLock lock(&mu_);
  last_ = kv::MonotonicNow();
  if (!whole_.has_value()) {
    const auto bytes = kv::FileSize(kv_options_, path_);
    if (!bytes.ok() && !absl::IsNotFound(bytes.status())) return bytes.status();
    whole_ = bytes.value_or(0);
  }
  absl::Status status;
  if (!unsure_.empty()) {
    const absl::StatusOr<bool> there = Repair(unsure_);
    status = there.status();
    if (there.ok()) {
      if (!*there && unsure_kept_) kept_.push_front(unsure_);
      unsure_.clear();
    }
  }
  while (status.ok() && !kept_.empty()) {
    const std::string first = kept_.front();
    kept_.pop_front();
    status = Append(first);
    if (status.ok()) continue;
    if (unsure_.empty()) {
      kept_.push_front(first);
    } else {
      unsure_kept_ = true;
    }
  }
  const bool tried = status.ok();
  if (tried) status = Append(record);
  if (status.ok()) return status;
  if (tried && !unsure_.empty()) {
    unsure_kept_ = keep;
  } else if (keep && kept_.size() < kMostKept) {
    kept_.push_back(record);
  }
  return status;
}

absl::Status MailWriter::Append(const std::string& record) {
  absl::Status status = kv::AppendToFile(kv_options_, path_, record);
  if (status.ok()) {
    *whole_ += record.size();
    return status;
  }
  const absl::StatusOr<bool> there = Repair(record);
  if (!there.ok()) {
    unsure_ = record;
  } else if (*there) {
    return absl::OkStatus();
  }
  return status;
}

absl::StatusOr<bool> MailWriter::Repair(const std::string& record) {
  absl::StatusOr<std::string> tail =
      kv::ReadFileFrom(kv_options_, path_, *whole_, record.size());
  if (absl::IsNotFound(tail.status())) return false;
  CKPTREE_RETURN_IF_ERROR(tail.status());
  if (*tail == record) {
    *whole_ += record.size();
    return true;
  }
  // Nobody has read half a record, and nobody reads on behind it.
  if (!tail->empty()) {
    CKPTREE_RETURN_IF_ERROR(kv::CutFile(kv_options_, path_, *whole_));
  }
  return false;
}

void MailWriter::Close() {
  schema::RankMail closed;
  closed.kind = schema::MailKind::kClosed;
  PostOrKeep(closed).IgnoreError();
}

void MailWriter::Beat() {
  {
    const absl::MutexLock lock(&mu_);
    const bool waiting = !kept_.empty() || !unsure_.empty();
    const absl::Duration pause = waiting ? std::min(beat_, kRetry) : beat_;
    if (kv::MonotonicNow() - last_ < pause) return;
  }
  // Who is not heard counts as lost: nothing better can be done about it.
  schema::RankMail beat;
  beat.kind = schema::MailKind::kBeat;
  Post(beat).IgnoreError();
}

absl::StatusOr<std::vector<schema::RankMail>> MailReader::Poll() {
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string bytes,
      kv::ReadFileFrom(kv_options_, path_, offset_, 16 * kMostBytes));
  std::vector<schema::RankMail> mails;
  std::size_t at = 0;
  while (bytes.size() - at >= kLengthBytes) {
    const auto length = base::ReadBig<std::uint32_t>(bytes, at);
    const std::string_view rest =
        std::string_view(bytes).substr(at + kLengthBytes);
    // What is cut off, or zeros yet, will come.
    if (length == 0 || length > kMostBytes || rest.size() < length) break;
    absl::StatusOr<schema::RankMail> mail =
        schema::DecodeRankMail(rest.substr(0, length));
    if (!mail.ok()) break;
    mails.push_back(*std::move(mail));
    at += kLengthBytes + length;
  }
  if (offset_ == 0) beginning_ = bytes.substr(0, std::min(at, kMarkBytes));
  offset_ += at;
  return mails;
}

bool MailReader::StillThere() const {
  const absl::StatusOr<std::string> now =
      kv::ReadFileFrom(kv_options_, path_, 0, beginning_.size());
  return now.ok() && *now == beginning_;
}

absl::Duration BeatOf(absl::Duration deadline) {
  return std::min(absl::Seconds(1), deadline / 4);
}

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.3g s", absl::ToDoubleSeconds(duration));
}

void Backoff::Pause() {
  // Each look costs something: several that write at once are one change.
  absl::SleepFor(watch_ == nullptr ? pause_ : kShortest);
  if (watch_ != nullptr && watch_->Wait(pause_)) return;
  pause_ = std::min(pause_ * 3 / 2, absl::Milliseconds(20));
}

}  // namespace ckptree::internal
