// SPDX-License-Identifier: Apache-2.0

#include "python/src/log_queue.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "python/src/bindings.h"
#include "python/src/errors.h"
#include "python/src/log_thread.h"
#include "python/src/waiting.h"

namespace nb = nanobind;

namespace ckptree::python {
namespace {

using Message = nb::typed<nb::tuple, nb::int_, nb::str, nb::str, nb::str>;

constexpr std::size_t kMost = 1000;
// What nobody may ask for leaves room for what is wrong.
constexpr std::size_t kMostInfos = 500;

std::atomic<LogQueue*>& Current() {
  static auto* const current = new std::atomic<LogQueue*>(new LogQueue);
  return *current;
}

// Of an open, before its messages go to the thread that delivers.
constexpr absl::Duration kPatience = absl::Seconds(1);

// As the engine does where it has no sink.
void Print(const LogRecord& record) {
  if (record.severity == LogSeverity::kInfo) return;
  std::fprintf(stderr, "ckptree: %s: store %s: %s\n",
               record.severity == LogSeverity::kWarning ? "warning" : "error",
               record.store.c_str(), record.text.c_str());
}

Message ToTuple(const LogRecord& record) {
  return nb::make_tuple(static_cast<int>(record.severity),
                        ToFileName(record.store), ToText(record.part),
                        ToText(record.text));
}

thread_local bool delivering = false;
// Of what this thread has opened, or tried to, until DeliverOpened().
thread_local std::vector<LogRecord> opened_here;

// On this thread. What a handler raised that ends the call goes further; the
// messages that are left go to the thread that delivers.
void Deliver(std::vector<LogRecord> records) {
  if (records.empty()) return;
  struct Guard {
    Guard() { delivering = true; }
    ~Guard() {
      delivering = false;
      if (next < records.size()) logs_need_thread = true;
      for (; next < records.size(); ++next) {
        LogQueue::OfProcess().Add(std::move(records[next]));
      }
    }
    std::size_t next = 0;
    std::vector<LogRecord> records;
  };
  Guard guard;
  guard.records = std::move(records);
  const nb::object deliver = nb::module_::import_("ckptree.logs").attr("_log");
  while (guard.next < guard.records.size()) {
    const Message message = ToTuple(guard.records[guard.next++]);
    deliver(*message);
  }
}

}  // namespace

LogQueue& LogQueue::OfProcess() { return *Current().load(); }

void LogQueue::Renew() { Current().store(new LogQueue); }

void LogQueue::Add(LogRecord record) {
  const bool info = record.severity == LogSeverity::kInfo;
  absl::MutexLock lock(&mu_);
  if (closed_) {
    Print(record);
  } else if (records_.size() >= (info ? kMostInfos : kMost)) {
    ++dropped_;
  } else {
    records_.push_back(std::move(record));
  }
}

std::optional<LogRecord> LogQueue::Pop() {
  if (records_.empty()) return std::nullopt;
  LogRecord record = std::move(records_.front());
  records_.pop_front();
  if (records_.empty() && dropped_ > 0) {
    records_.push_back({LogSeverity::kWarning, record.store, "log",
                        absl::StrFormat("%d messages were dropped: they came "
                                        "faster than they were handled",
                                        dropped_)});
    dropped_ = 0;
  }
  return record;
}

void LogQueue::Wait() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &LogQueue::HasNext));
}

std::optional<LogRecord> LogQueue::TakeOne() {
  absl::MutexLock lock(&mu_);
  return Pop();
}

bool LogQueue::closed() const {
  absl::MutexLock lock(&mu_);
  return closed_;
}

std::vector<LogRecord> LogQueue::Take() {
  absl::MutexLock lock(&mu_);
  std::vector<LogRecord> taken;
  while (std::optional<LogRecord> record = Pop()) {
    taken.push_back(*std::move(record));
  }
  return taken;
}

void LogQueue::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
}

std::shared_ptr<StoreLog> StoreLog::Of(std::string directory, bool background) {
  if (background) nb::module_::import_("ckptree.logs").attr("_start")();
  return std::make_shared<StoreLog>(std::move(directory), background);
}

StoreLog::~StoreLog() {
  // Its opening was interrupted.
  for (LogRecord& record : held_) {
    LogQueue::OfProcess().Add(std::move(record));
  }
}

LogSink StoreLog::Sink() {
  return [self = shared_from_this()](
             LogSeverity severity, std::string_view part,
             std::string_view text) { self->Add(severity, part, text); };
}

void StoreLog::Add(LogSeverity severity, std::string_view part,
                   std::string_view text) {
  std::vector<LogRecord> records;
  {
    absl::MutexLock lock(&mu_);
    held_.push_back(
        {severity, directory_, std::string(part), std::string(text)});
    if (opening_ && (!background_ || absl::Now() - began_ < kPatience)) return;
    records.swap(held_);
  }
  for (LogRecord& record : records) {
    LogQueue::OfProcess().Add(std::move(record));
  }
  if (!background_) logs_need_thread = true;
}

void StoreLog::Opened() {
  std::vector<LogRecord> held;
  {
    absl::MutexLock lock(&mu_);
    opening_ = false;
    held.swap(held_);
  }
  std::move(held.begin(), held.end(), std::back_inserter(opened_here));
}

void DeliverLogs() {
  if (!delivering) Deliver(LogQueue::OfProcess().Take());
}

void BindLogs(nb::module_& m) {
  // For the thread of ckptree/logs.py: severity, store, part and text.
  m.def("next_log", []() -> std::optional<Message> {
    delivering = true;  // Whatever a handler calls.
    LogQueue& queue = LogQueue::OfProcess();
    // Taken with the GIL: a message that this thread holds and cannot deliver
    // yet would be missed by DeliverLogs() on another.
    while (true) {
      if (const auto record = queue.TakeOne()) return ToTuple(*record);
      if (queue.closed()) return std::nullopt;
      WithoutGil([&queue] { queue.Wait(); });
    }
  });
  m.def("deliver_opened", [] { Deliver(std::exchange(opened_here, {})); });
  m.def("close_logs", [] { LogQueue::OfProcess().Close(); });
  m.def("renew_logs", [] { LogQueue::Renew(); });
}

}  // namespace ckptree::python
