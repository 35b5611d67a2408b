// SPDX-License-Identifier: Apache-2.0

// Messages between processes that have nothing in common but a folder: each
// appends to a file of its own, and reads those of the others.

#ifndef CKPTREE_CORE_RANKS_MAILBOX_H_
#define CKPTREE_CORE_RANKS_MAILBOX_H_

#include <cstdint>
#include <deque>
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

// The folder of a job, and the mailboxes in it. A file system that is shared
// shows new bytes of a file at its next open, a new name perhaps much later:
// nobody waits for a name that comes after the group was opened.
struct MailFolder {
  std::string path;  // <store>/staging/job-<job>

  std::string Coordinator() const { return path + "/coordinator"; }
  std::string Of(std::uint32_t rank, std::uint64_t nonce) const;
  // The rank and nonce of a file's name; false of another file's.
  static bool Parse(const std::string& name, std::uint32_t* rank,
                    std::uint64_t* nonce);
};
// Beside the folders of attempts; goes with them at the next open for writing.
std::string MailFolderName(const std::string& job);
// The job of such a name; nothing of another one.
std::optional<std::string> JobOf(std::string_view folder_name);

// The one who writes a mailbox, which nobody has written to before.
// Thread-safe.
class MailWriter {
 public:
  MailWriter(kv::Options kv_options, std::string path, absl::Duration beat)
      : kv_options_(std::move(kv_options)),
        path_(std::move(path)),
        beat_(beat) {}

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

 private:
  absl::Status Add(const schema::RankMail& mail, bool keep);
  // Appends one record.
  absl::Status Append(const std::string& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After an append that failed: the record is there, or nothing of it.
  absl::StatusOr<bool> Repair(const std::string& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const kv::Options kv_options_;
  const std::string path_;
  const absl::Duration beat_;
  absl::Mutex mu_;
  absl::Time last_ ABSL_GUARDED_BY(mu_);
  // Bytes of whole records; those of one who wrote before are.
  std::optional<std::uint64_t> whole_ ABSL_GUARDED_BY(mu_);
  std::string unsure_ ABSL_GUARDED_BY(mu_);  // Perhaps behind these.
  bool unsure_kept_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::string> kept_ ABSL_GUARDED_BY(mu_);
};

// One who reads a mailbox, from its beginning. Confined to one thread at a
// time.
class MailReader {
 public:
  MailReader(kv::Options kv_options, std::string path)
      : kv_options_(std::move(kv_options)), path_(std::move(path)) {}

  // What came since, as far as it is whole. kNotFound where there is no such
  // file.
  absl::StatusOr<std::vector<schema::RankMail>> Poll();
  // False where the file that was read is gone, or another one has its name.
  bool StillThere() const;

 private:
  kv::Options kv_options_;
  std::string path_;
  std::uint64_t offset_ = 0;
  std::string beginning_;  // The first bytes, once they were read.
};

// How often a process says that it is there, and looks for what seldom comes:
// each second, and several times before a deadline.
absl::Duration BeatOf(absl::Duration deadline);

// "12 s".
std::string SecondsText(absl::Duration duration);

// Sleeps between looks: from 0.2 to 20 ms, longer the longer nothing came; no
// longer than until `watch` (may be null) sees something, at least 0.2 ms.
class Backoff {
 public:
  explicit Backoff(kv::FileWatch* watch = nullptr) : watch_(watch) {}

  void Pause();

 private:
  static constexpr absl::Duration kShortest = absl::Microseconds(200);
  kv::FileWatch* const watch_;
  absl::Duration pause_ = kShortest;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_MAILBOX_H_
