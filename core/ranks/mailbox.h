// SPDX-License-Identifier: Apache-2.0

// Messages between processes that have nothing in common but a folder, or an
// object store: each appends to a mailbox of its own, and reads those of the
// others.

#ifndef CKPTREE_CORE_RANKS_MAILBOX_H_
#define CKPTREE_CORE_RANKS_MAILBOX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "kv/file_watch.h"
#include "kv/options.h"
#include "schema/rank_message.h"

namespace ckptree::internal {

// What mailboxes of a job are called.
inline constexpr char kCoordinatorBox[] = "coordinator";
std::string RankBox(std::uint32_t rank, std::uint64_t nonce);
// The rank and nonce of such a name; false of another one.
bool ParseRankBox(const std::string& name, std::uint32_t* rank,
                  std::uint64_t* nonce);

// One mailbox, as its owner writes it. Confined to one thread at a time.
class MailSink {
 public:
  virtual ~MailSink() = default;
  // Behind the records before. After an error nothing of it is there; or, with
  // `unsure`, perhaps all of it, now or later.
  virtual absl::Status Append(const std::string& record, bool* unsure) = 0;
  // Of a record that is `unsure`, before any other: whether it is there now.
  virtual absl::StatusOr<bool> Settle(const std::string& record) = 0;
  // Records that all who count have read, the first so many, may go.
  virtual void Forget(std::uint64_t records) = 0;
};

// One mailbox, as another one reads it. Confined to one thread at a time.
class MailSource {
 public:
  virtual ~MailSource() = default;
  // What came since, as far as it is whole. kNotFound where there is no such
  // mailbox, if that can be told.
  virtual absl::StatusOr<std::vector<schema::RankMail>> Poll() = 0;
  // False where what was read is gone, or another one has its place.
  virtual bool StillThere() = 0;
};

// How often is looked, where a look costs what it costs.
struct MailPace {
  absl::Duration beat = absl::Seconds(1);  // At most between signs of life.
  absl::Duration shortest = absl::Microseconds(200);  // Between two looks.
  absl::Duration longest = absl::Milliseconds(20);
  absl::Duration building = absl::Milliseconds(200);  // The same, then.
  absl::Duration place = absl::Seconds(1);  // For another one in its place.
  int at_once = 1;  // Mailboxes that are read at the same time.
};

// Where the mailboxes of a job are. Thread-safe.
class MailPlace {
 public:
  virtual ~MailPlace() = default;
  // Before the coordinator writes to it.
  virtual absl::Status Make() = 0;
  virtual std::unique_ptr<MailSink> Write(const std::string& box) = 0;
  virtual std::unique_ptr<MailSource> Read(const std::string& box) = 0;
  // The names of ranks' mailboxes, and perhaps others.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // A file or folder in which a change shows that a mailbox has more; empty:
  // nothing shows it. Of an empty name: any mailbox.
  virtual std::string Watched(const std::string& box) const = 0;
  virtual const MailPace& pace() const = 0;
};

// The folder of a job, and the mailboxes in it. A file system that is shared
// shows new bytes of a file at its next open, a new name perhaps much later:
// nobody waits for a name that comes after the group was opened.
class MailFolder : public MailPlace {
 public:
  // `path`: <store>/staging/job-<job>
  MailFolder(kv::Options kv_options, std::string path)
      : kv_options_(std::move(kv_options)), path_(std::move(path)) {}

  absl::Status Make() override;
  std::unique_ptr<MailSink> Write(const std::string& box) override;
  std::unique_ptr<MailSource> Read(const std::string& box) override;
  absl::StatusOr<std::vector<std::string>> List() override;
  std::string Watched(const std::string& box) const override;
  const MailPace& pace() const override { return pace_; }

 private:
  const kv::Options kv_options_;
  const std::string path_;
  const MailPace pace_;
};
// Beside the folders of attempts; goes with them at the next open for writing.
std::string MailFolderName(const std::string& job);
// The job of such a name; nothing of another one.
std::optional<std::string> JobOf(std::string_view folder_name);

// The one who writes a mailbox, which nobody has written to before.
// Thread-safe.
class MailWriter {
 public:
  MailWriter(std::unique_ptr<MailSink> sink, absl::Duration beat)
      : beat_(beat), sink_(std::move(sink)) {}

  // Whole records only, one after the other. An error: it may still be there,
  // and then is read.
  absl::Status Post(const schema::RankMail& mail);
  // The same; what cannot be written now, for a disk that is full, goes out
  // before the next record does.
  absl::Status PostOrKeep(const schema::RankMail& mail);
  // Post() of a kBeat, if the last record is that old; also what was kept.
  void Beat();
  // Says that no more comes. Who misses it learns it at the deadline.
  void Close();

  // Records that are there.
  std::uint64_t written() const;
  // The first so many were read by all who need them.
  void Forget(std::uint64_t records);

 private:
  absl::Status Add(const schema::RankMail& mail, bool keep);
  // Appends the first of `records`, which is in `unsure_` from then on until it
  // is known to be there; back again, where it is known not to be.
  absl::Status Append(std::list<std::string>* records)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration beat_;
  mutable absl::Mutex mu_;
  const std::unique_ptr<MailSink> sink_ ABSL_PT_GUARDED_BY(mu_);
  absl::Time last_ ABSL_GUARDED_BY(mu_);
  std::uint64_t written_ ABSL_GUARDED_BY(mu_) = 0;
  // Lists, as a record changes from one to the other without memory.
  std::list<std::string> unsure_ ABSL_GUARDED_BY(mu_);  // One, behind these.
  bool unsure_kept_ ABSL_GUARDED_BY(mu_) = false;
  std::list<std::string> kept_ ABSL_GUARDED_BY(mu_);
};

// The whole records at the beginning of `bytes`; `end` is where they end.
std::vector<schema::RankMail> ParseMail(std::string_view bytes,
                                        std::size_t* end);

// How often a process says that it is there, and looks for what seldom comes:
// each second where that costs little, and several times before a deadline.
absl::Duration BeatOf(absl::Duration deadline, const MailPace& pace = {});

// "12 s".
std::string SecondsText(absl::Duration duration);

// Sleeps between looks, longer the longer nothing came; no longer than until
// `watch` (may be null) sees something, at least the shortest pause, at most a
// small part of `deadline`, as others wait for it.
class Backoff {
 public:
  explicit Backoff(const MailPace& pace = {}, kv::FileWatch* watch = nullptr,
                   absl::Duration deadline = absl::InfiniteDuration())
      : shortest_(pace.shortest),
        longest_(
            std::max(pace.shortest, std::min(pace.longest, deadline / 16))),
        watch_(watch) {}

  void Pause();

 private:
  const absl::Duration shortest_;
  const absl::Duration longest_;
  kv::FileWatch* const watch_;
  absl::Duration pause_ = shortest_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_MAILBOX_H_
