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
constexpr std::uint32_t kMostRecordBytes =
    1 << 20;  // Of a record: far above one.

// Of records that could not be written yet.
constexpr std::size_t kMostKept = 256;
constexpr absl::Duration kRetry = absl::Milliseconds(20);

constexpr std::string_view kJobPrefix = "job-";

// The first record names the process that wrote it.
constexpr std::size_t kMarkBytes = 64;

// As a file, to which each record is appended.
class FileSink : public MailSink {
 public:
  FileSink(kv::Options kv_options, std::string path)
      : kv_options_(std::move(kv_options)), path_(std::move(path)) {}

  absl::Status Append(const std::string& record, bool* unsure) override {
    *unsure = false;
    if (!whole_.has_value()) {
      const auto bytes = kv::FileSize(kv_options_, path_);
      if (!bytes.ok() && !absl::IsNotFound(bytes.status())) {
        return bytes.status();
      }
      whole_ = bytes.value_or(0);
    }
    absl::Status status = kv::AppendToFile(kv_options_, path_, record);
    if (status.ok()) {
      *whole_ += record.size();
      return status;
    }
    const absl::StatusOr<bool> there = Settle(record);
    *unsure = !there.ok();
    return there.value_or(false) ? absl::OkStatus() : status;
  }

  // The record is there, or nothing of it.
  absl::StatusOr<bool> Settle(const std::string& record) override {
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

  // It goes with its folder.
  void Forget(std::uint64_t /*records*/) override {}

 private:
  const kv::Options kv_options_;
  const std::string path_;
  // Bytes of whole records; those of one who wrote before are.
  std::optional<std::uint64_t> whole_;
};

class FileSource : public MailSource {
 public:
  FileSource(kv::Options kv_options, std::string path)
      : kv_options_(std::move(kv_options)), path_(std::move(path)) {}

  absl::StatusOr<std::vector<schema::RankMail>> Poll() override {
    CKPTREE_ASSIGN_OR_RETURN(
        const std::string bytes,
        kv::ReadFileFrom(kv_options_, path_, offset_, 16 * kMostRecordBytes));
    std::size_t end = 0;
    std::vector<schema::RankMail> mails = ParseMail(bytes, &end);
    if (offset_ == 0) beginning_ = bytes.substr(0, std::min(end, kMarkBytes));
    offset_ += end;
    return mails;
  }

  bool StillThere() override {
    const absl::StatusOr<std::string> now =
        kv::ReadFileFrom(kv_options_, path_, 0, beginning_.size());
    return now.ok() && *now == beginning_;
  }

 private:
  const kv::Options kv_options_;
  const std::string path_;
  std::uint64_t offset_ = 0;
  std::string beginning_;  // The first bytes, once they were read.
};

}  // namespace

std::string RankBox(std::uint32_t rank, std::uint64_t nonce) {
  return absl::StrFormat("rank-%d-%016x", rank, nonce);
}

bool ParseRankBox(const std::string& name, std::uint32_t* rank,
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

absl::Status MailFolder::Make() {
  return kv::MakeDirectory(kv_options_, path_);
}

std::unique_ptr<MailSink> MailFolder::Write(const std::string& box) {
  return std::make_unique<FileSink>(kv_options_, path_ + "/" + box);
}

std::unique_ptr<MailSource> MailFolder::Read(const std::string& box) {
  return std::make_unique<FileSource>(kv_options_, path_ + "/" + box);
}

absl::StatusOr<std::vector<std::string>> MailFolder::List() {
  return kv::ListDirectory(kv_options_, path_);
}

std::string MailFolder::Watched(const std::string& box) const {
  return box.empty() ? path_ : path_ + "/" + box;
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
  std::list<std::string> added(1);
  std::string& record = added.front();
  base::AppendBig(static_cast<std::uint32_t>(body.size()), &record);
  record += body;

  const absl::MutexLock lock(&mu_);
  last_ = kv::MonotonicNow();
  // First, as something may be thrown.
  if (keep && kept_.size() < kMostKept) kept_.splice(kept_.end(), added);
  absl::Status status;
  if (!unsure_.empty()) {
    const absl::StatusOr<bool> there = sink_->Settle(unsure_.front());
    status = there.status();
    if (there.ok()) {
      written_ += *there ? 1 : 0;
      if (!*there && unsure_kept_) kept_.splice(kept_.begin(), unsure_);
      unsure_.clear();
    }
  }
  while (status.ok() && !kept_.empty()) {
    unsure_kept_ = true;
    status = Append(&kept_);
  }
  if (status.ok() && !added.empty()) {
    unsure_kept_ = keep;
    status = Append(&added);
  }
  return status;
}

absl::Status MailWriter::Append(std::list<std::string>* records) {
  unsure_.splice(unsure_.begin(), *records, records->begin());
  bool unsure = false;
  absl::Status status = sink_->Append(unsure_.front(), &unsure);
  if (status.ok()) {
    ++written_;
    unsure_.clear();
  } else if (!unsure) {
    records->splice(records->begin(), unsure_);
  }
  return status;
}

std::uint64_t MailWriter::written() const {
  const absl::MutexLock lock(&mu_);
  return written_;
}

void MailWriter::Forget(std::uint64_t records) {
  const absl::MutexLock lock(&mu_);
  sink_->Forget(records);
}

void MailWriter::Close() {
  schema::RankMail closed;
  closed.kind = schema::MailKind::kClosed;
  PostOrKeep(closed).IgnoreError();
}

void MailWriter::Beat() {
  // Who writes now says as much.
  if (!mu_.TryLock()) return;
  const bool waiting = !kept_.empty() || !unsure_.empty();
  const absl::Duration pause = waiting ? std::min(beat_, kRetry) : beat_;
  const bool due = kv::MonotonicNow() - last_ >= pause;
  mu_.Unlock();
  if (!due) return;
  // Who is not heard counts as lost: nothing better can be done about it.
  schema::RankMail beat;
  beat.kind = schema::MailKind::kBeat;
  Post(beat).IgnoreError();
}

std::vector<schema::RankMail> ParseMail(std::string_view bytes,
                                        std::size_t* end) {
  std::vector<schema::RankMail> mails;
  std::size_t at = 0;
  while (bytes.size() - at >= kLengthBytes) {
    const auto length = base::ReadBig<std::uint32_t>(bytes, at);
    const std::string_view rest = bytes.substr(at + kLengthBytes);
    // What is cut off, or zeros yet, will come.
    if (length == 0 || length > kMostRecordBytes || rest.size() < length) break;
    absl::StatusOr<schema::RankMail> mail =
        schema::DecodeRankMail(rest.substr(0, length));
    if (!mail.ok()) break;
    mails.push_back(*std::move(mail));
    at += kLengthBytes + length;
  }
  *end = at;
  return mails;
}

absl::Duration BeatOf(absl::Duration deadline, const MailPace& pace) {
  return std::min(pace.beat, deadline / 4);
}

std::string SecondsText(absl::Duration duration) {
  return absl::StrFormat("%.3g s", absl::ToDoubleSeconds(duration));
}

void Backoff::Pause() {
  // Each look costs something: several that write at once are one change.
  absl::SleepFor(watch_ == nullptr ? pause_ : shortest_);
  if (watch_ != nullptr && watch_->Wait(pause_)) return;
  pause_ = std::min(pause_ * 3 / 2, longest_);
}

}  // namespace ckptree::internal
