// SPDX-License-Identifier: Apache-2.0

#include "core/ranks/rank_remote.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/process/disk_threads.h"
#include "core/process/guarded_call.h"
#include "core/remote/remote_objects.h"
#include "kv/object_store.h"
#include "schema/rank_message.h"

namespace ckptree::internal {
namespace {

// Of a record, and its length before it.
constexpr std::size_t kMostFramedBytes = (std::size_t{1} << 20) + 4;
// Of a mailbox of which one record was there, at the same time.
constexpr std::size_t kMostReads = 16;
constexpr std::size_t kDeletedAtOnce = 1000;

std::string OpenPrefix(const std::string& uuid, const std::string& job) {
  return absl::StrFormat("%s/attempt/open-%s/", HexOf(uuid), job);
}

std::string EraText(std::uint64_t era) { return absl::StrFormat("%020d", era); }

std::string RecordName(const std::string& folder, std::uint64_t number) {
  return absl::StrFormat("%s/%010d", folder, number);
}

absl::Status FindNewestEra(kv::ObjectStore& store, const std::string& prefix,
                           const kv::Call& call,
                           std::optional<std::uint64_t>* newest) {
  return ForEachObject(
      store, prefix, [&call] { return call; },
      [&](const kv::ObjectInfo& info) {
        std::uint64_t era = 0;
        if (absl::SimpleAtoi(info.name.substr(prefix.size()), &era)) {
          *newest = std::max(newest->value_or(0), era);
        }
      });
}

// Each record is an object, whose number is used for no other bytes: a request
// that arrives late, or twice, changes nothing.
class ObjectSink : public MailSink {
 public:
  // `sign`: an object that says that there is such a mailbox, made once its
  // first record is there.
  ObjectSink(std::shared_ptr<kv::ObjectStore> store,
             std::shared_ptr<MessageCalls> calls, std::string folder,
             std::string sign)
      : store_(std::move(store)),
        calls_(std::move(calls)),
        folder_(std::move(folder)),
        sign_(std::move(sign)) {}

  absl::Status Append(const std::string& record, bool* unsure) override {
    absl::Status status = Put(record);
    *unsure = !status.ok();
    return status;
  }

  absl::StatusOr<bool> Settle(const std::string& record) override {
    CKPTREE_RETURN_IF_ERROR(Put(record));
    return true;
  }

  void Forget(std::uint64_t records) override {
    std::vector<std::string> names;
    // The first one stays, as long as the sign says that it is there.
    for (std::uint64_t i = std::max<std::uint64_t>(forgotten_, 1); i < records;
         ++i) {
      names.push_back(RecordName(folder_, i));
      if (names.size() == kDeletedAtOnce) break;
    }
    if (names.empty()) return;
    // What stays is in nobody's way: the cleaner of the next era finds it.
    const absl::Status deleted = calls_->Make(
        [&](const kv::Call& call) { return store_->Delete(names, call); });
    if (deleted.ok()) {
      forgotten_ = std::max<std::uint64_t>(forgotten_, 1) + names.size();
    }
  }

 private:
  absl::Status Put(const std::string& record) {
    CKPTREE_RETURN_IF_ERROR(PutBytes(RecordName(folder_, number_), record));
    if (number_ == 0) CKPTREE_RETURN_IF_ERROR(PutBytes(sign_, "1"));
    ++number_;
    return absl::OkStatus();
  }
  absl::Status PutBytes(const std::string& name, const std::string& bytes) {
    return calls_->Make([&](const kv::Call& call) {
      return store_->Put(name, BytesOf(bytes), call);
    });
  }

  const std::shared_ptr<kv::ObjectStore> store_;
  const std::shared_ptr<MessageCalls> calls_;
  const std::string folder_;
  const std::string sign_;
  std::uint64_t number_ = 0;  // Of the next record.
  std::uint64_t forgotten_ = 0;
};

class ObjectSource : public MailSource {
 public:
  // `signs`: begins the names of objects that say that there is a coordinator
  // of that job.
  ObjectSource(std::shared_ptr<kv::ObjectStore> store,
               std::shared_ptr<MessageCalls> calls, std::string folder,
               std::string signs, std::uint64_t era)
      : store_(std::move(store)),
        calls_(std::move(calls)),
        folder_(std::move(folder)),
        signs_(std::move(signs)),
        era_(era) {}

  absl::StatusOr<std::vector<schema::RankMail>> Poll() override {
    std::vector<schema::RankMail> mails;
    // Who comes late has many records before it.
    for (std::size_t count = 1;; count = std::min(2 * count, kMostReads)) {
      std::vector<absl::StatusOr<std::optional<std::string>>> found(
          count, std::optional<std::string>());
      std::atomic<std::size_t> next = 0;
      RunOnDiskThreads(count, [&] {
        for (std::size_t i = next++; i < count; i = next++) {
          found[i] = GuardedResult("reading a mailbox", [&] {
            return calls_->Make([&](const kv::Call& call) {
              return GetObject(*store_, RecordName(folder_, number_ + i),
                               kMostFramedBytes, call);
            });
          });
        }
      });
      for (const auto& one : found) {
        // What was read before is not to be lost: the rest is looked for again.
        if (!one.ok() && mails.empty()) return one.status();
        if (!one.ok() || !one->has_value()) return mails;
        std::size_t end = 0;
        std::vector<schema::RankMail> some = ParseMail(**one, &end);
        if (end != (*one)->size()) return mails;
        for (schema::RankMail& mail : some) mails.push_back(std::move(mail));
        ++number_;
      }
    }
  }

  bool StillThere() override {
    std::optional<std::uint64_t> newest;
    const absl::Status found = calls_->Make([&](const kv::Call& call) {
      return FindNewestEra(*store_, signs_, call, &newest);
    });
    // Of a store that does not answer nothing is known.
    return !found.ok() || !newest.has_value() || *newest <= era_;
  }

 private:
  const std::shared_ptr<kv::ObjectStore> store_;
  const std::shared_ptr<MessageCalls> calls_;
  const std::string folder_;
  const std::string signs_;
  const std::uint64_t era_;
  std::uint64_t number_ = 0;  // Of the next record.
};

}  // namespace

RankRemote::RankRemote(std::shared_ptr<kv::ObjectStore> store, std::string uuid,
                       std::string job, std::uint64_t era,
                       absl::Duration deadline)
    : store_(std::move(store)),
      calls_(std::make_shared<MessageCalls>(deadline)),
      uuid_(std::move(uuid)),
      job_(std::move(job)),
      era_(era),
      above_(absl::StrFormat("%s/attempt/job-%s/%s/", HexOf(uuid_), job_,
                             EraText(era_))) {}

absl::StatusOr<std::optional<std::uint64_t>> RankRemote::NewestEra(
    kv::ObjectStore& store, const std::string& uuid, const std::string& job) {
  std::optional<std::uint64_t> newest;
  CKPTREE_RETURN_IF_ERROR(FindNewestEra(store, OpenPrefix(uuid, job),
                                        kv::Call::Within(MessageCalls::kMost),
                                        &newest));
  return newest;
}

std::string RankRemote::RefusalName(std::string_view uuid,
                                    const std::string& job) {
  return absl::StrFormat("%s/attempt/refused-%s/%s", HexOf(uuid), job,
                         EraText(1));
}

std::string RankRemote::PartName(std::string_view attempt, std::uint32_t rank,
                                 std::uint64_t nonce) const {
  return absl::StrFormat("%spart/%s/%s", above_, attempt, RankBox(rank, nonce));
}

std::unique_ptr<MailSink> RankRemote::Write(const std::string& box) {
  return std::make_unique<ObjectSink>(
      store_, calls_, absl::StrFormat("%sbox/%s", above_, box),
      box == kCoordinatorBox ? OpenPrefix(uuid_, job_) + EraText(era_)
                             : absl::StrFormat("%srank/%s", above_, box));
}

std::unique_ptr<MailSource> RankRemote::Read(const std::string& box) {
  return std::make_unique<ObjectSource>(
      store_, calls_, absl::StrFormat("%sbox/%s", above_, box),
      OpenPrefix(uuid_, job_), era_);
}

absl::StatusOr<std::vector<std::string>> RankRemote::List() {
  const std::string prefix = above_ + "rank/";
  std::vector<std::string> names;
  CKPTREE_RETURN_IF_ERROR(calls_->Make([&](const kv::Call& call) {
    return ForEachObject(
        *store_, prefix, [&call] { return call; },
        [&](const kv::ObjectInfo& info) {
          names.push_back(info.name.substr(prefix.size()));
        });
  }));
  return names;
}

}  // namespace ckptree::internal
