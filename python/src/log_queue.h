// SPDX-License-Identifier: Apache-2.0

// Messages of the engine on their way to Python's logging.

#ifndef CKPTREE_PYTHON_SRC_LOG_QUEUE_H_
#define CKPTREE_PYTHON_SRC_LOG_QUEUE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ckptree/options.h"

namespace ckptree::python {

struct LogRecord {
  LogSeverity severity = LogSeverity::kInfo;
  std::string store;  // Its directory.
  std::string part;   // Of the engine.
  std::string text;
};

// The engine logs on its own threads, under its locks: there nobody may wait
// for the GIL. So messages are put here, and ckptree/logs.py has a thread that
// takes them out, one by one. Of too many the latest are dropped, which the
// last message says.
//
// Thread-safe. Nothing here needs the GIL.
class LogQueue {
 public:
  // That of the process. Never destroyed: the engine's threads may outlive the
  // statics.
  static LogQueue& OfProcess();
  // A new one, for a child that was forked off: locks of the old one may be
  // held by threads that are not there.
  static void Renew();

  // Writes to standard error once it was closed.
  void Add(LogRecord record);
  // Until there is one, or it was closed.
  void Wait();
  // Nothing where there is none.
  std::optional<LogRecord> TakeOne();
  // All that are there.
  std::vector<LogRecord> Take();
  // At the exit of the interpreter.
  void Close();
  bool closed() const;

 private:
  bool HasNext() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return closed_ || !records_.empty();
  }
  std::optional<LogRecord> Pop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable absl::Mutex mu_;
  std::deque<LogRecord> records_ ABSL_GUARDED_BY(mu_);
  std::uint64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// Where the messages of one store go. Those of its opening wait until the call
// that opens it can deliver them itself; where that takes longer than a second
// they do not: what an object store is waited for is told while it is. Without
// a background they always wait, for there may be nobody else to deliver them.
//
// Thread-safe.
class StoreLog : public std::enable_shared_from_this<StoreLog> {
 public:
  // With a `background`: the engine will log outside of calls, too. Then it
  // needs the GIL: it starts the thread that delivers.
  static std::shared_ptr<StoreLog> Of(std::string directory, bool background);
  StoreLog(std::string directory, bool background)
      : directory_(std::move(directory)), background_(background) {}
  StoreLog(const StoreLog&) = delete;
  StoreLog& operator=(const StoreLog&) = delete;
  ~StoreLog();

  LogSink Sink();
  // The store is open, or could not be opened. Python then calls
  // deliver_opened() on this thread, once it holds no lock: a handler may wait
  // for another thread that opens the same store.
  void Opened();

 private:
  void Add(LogSeverity severity, std::string_view part, std::string_view text);

  const std::string directory_;
  const bool background_;
  const absl::Time began_ = absl::Now();
  absl::Mutex mu_;
  bool opening_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<LogRecord> held_ ABSL_GUARDED_BY(mu_);
};

// Delivers what there is by now on this thread, at the end of a call, so that
// it is seen before what follows. Where a handler of logging is the caller it
// does nothing: that message comes first. Needs the GIL; throws what a signal
// handler or SystemExit throws in a handler of logging.
void DeliverLogs();

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_LOG_QUEUE_H_
