// SPDX-License-Identifier: Apache-2.0

// An object store of which somebody hears why it does not answer, and which is
// left where its user does not want to wait any more.

#ifndef CKPTREE_CORE_REMOTE_ATTENDED_STORE_H_
#define CKPTREE_CORE_REMOTE_ATTENDED_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/process/logger.h"
#include "kv/object_store.h"

namespace ckptree::internal {

// What keeps a store from its object store. Logs it, once, when it has lasted
// for some seconds, and when it is over. Thread-safe.
class RemoteTrouble {
 public:
  // What lasts shorter than `patience` is not logged.
  RemoteTrouble(std::string address, LogSink log,
                absl::Duration patience = absl::Seconds(3))
      : address_(std::move(address)),
        logger_(std::move(log)),
        patience_(patience) {}

  // A request failed, and is sent again.
  void Heard(const absl::Status& why);
  // Logs it: nothing else comes of it.
  void NoteDamagedAnswer(const std::string& what);
  // Of one that was not answered yet; Ended() takes what Began() returned.
  std::uint64_t Began(std::string what);
  void Ended(std::uint64_t call, const absl::Status& how);
  // In place of Ended(), of a request that threw.
  void Forget(std::uint64_t call);
  // Logs what has lasted; for a caller that looks now and then.
  void Look();

  // Ends what is waited for; asks for nothing where nobody attends.
  std::stop_token token() const;
  // Of one who attends from now on, until Leave(); the last of them has the
  // calls that begin.
  void Attend(std::stop_token token);
  void Leave(const std::stop_token& token);

  // OK, or what it is.
  absl::Status now() const;
  // Since when nothing was answered that was asked.
  absl::Duration silent() const;
  // Whether it was logged, and lasts.
  bool told() const {
    const absl::MutexLock lock(&mu_);
    return told_;
  }

 private:
  absl::Status Now() const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // What is to be logged now. It is logged without the mutex: a sink may ask.
  std::optional<std::string> ToTell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  struct Waiting {
    std::string what;
    absl::Time since;
  };

  const std::string address_;
  const Logger logger_;
  const absl::Duration patience_;
  mutable absl::Mutex mu_;
  std::map<std::uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  std::uint64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status heard_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Time> since_ ABSL_GUARDED_BY(mu_);
  bool told_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::stop_token> attending_ ABSL_GUARDED_BY(mu_);
};

// While somebody waits for the object store, in an open or a refresh: looks ten
// times a second whether the caller has enough of it, and what it waits for.
class RemoteAttendant {
 public:
  RemoteAttendant(std::shared_ptr<RemoteTrouble> trouble,
                  std::function<bool()> cancelled);
  ~RemoteAttendant();
  RemoteAttendant(const RemoteAttendant&) = delete;
  RemoteAttendant& operator=(const RemoteAttendant&) = delete;

 private:
  const std::shared_ptr<RemoteTrouble> trouble_;
  std::stop_source stop_;
  std::jthread thread_;
};

// `trouble` hears of the calls to it, and those without a token of their own
// end with its attendant's.
std::unique_ptr<kv::ObjectStore> Attended(
    std::shared_ptr<kv::ObjectStore> store,
    std::shared_ptr<RemoteTrouble> trouble);
// As kv::OpenObjectStore() without options; `trouble` hears of that, and it
// ends with its attendant's token where `call` has none. Nobody hears of the
// calls to it.
absl::StatusOr<std::unique_ptr<kv::ObjectStore>> ConnectAttended(
    const std::string& address, RemoteTrouble& trouble, const kv::Call& call);
// The same; `trouble` hears of its calls, too, and those without a token of
// their own end with its attendant's.
absl::StatusOr<std::unique_ptr<kv::ObjectStore>> OpenAttended(
    const std::string& address, std::shared_ptr<RemoteTrouble> trouble,
    const kv::Call& call);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_ATTENDED_STORE_H_
