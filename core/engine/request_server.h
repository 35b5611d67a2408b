// SPDX-License-Identifier: Apache-2.0

// Takes what other processes ask of this one, which has the store open for
// writing, and answers.

#ifndef CKPTREE_CORE_ENGINE_REQUEST_SERVER_H_
#define CKPTREE_CORE_ENGINE_REQUEST_SERVER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/process/logger.h"
#include "kv/database.h"
#include "kv/file_watch.h"
#include "kv/request_box.h"
#include "schema/store_request.h"

namespace ckptree::internal {

// What it works with; all of it outlives the server.
struct RequestServerContext {
  using Execute = std::function<schema::StoreAnswer(
      const schema::StoreRequest&, const std::function<bool()>& cancelled)>;

  std::string directory;
  int permissions = 0666;
  const kv::Database* database = nullptr;
  const Logger* logger = nullptr;
  Execute execute;
};

// Requests are executed in the order in which they were written, one after the
// other, and a collection, which may last, on a thread of its own beside them.
// The thread sleeps until a file comes to the store's `requests`; it looks once
// a second in any case, for what other hosts write to a shared folder.
//
// Thread-safe.
class RequestServer {
 public:
  explicit RequestServer(RequestServerContext context);
  ~RequestServer() { Stop(); }

  // Waits for what is being done; a collection is cancelled, and answered by
  // kAborted: it may be asked for again.
  void Stop();

 private:
  void Serve();
  void Collect();
  // Answers what cannot be done; hands a collection on.
  void Do(kv::TakenRequest taken);
  void Execute(const schema::StoreRequest& request);
  void Answer(const std::string& id, schema::StoreAnswer answer);
  // What could not be written, as on a full disk.
  void AnswerAgain();

  const RequestServerContext context_;
  kv::RequestBox box_;
  kv::FileWatch watch_;
  std::atomic<bool> stopped_{false};

  absl::Mutex mu_;
  std::deque<schema::StoreRequest> collections_ ABSL_GUARDED_BY(mu_);
  // Id and answer, and until when it is tried to be written.
  struct Unwritten {
    std::string id;
    std::string bytes;
    absl::Time until;
  };
  std::deque<Unwritten> unwritten_ ABSL_GUARDED_BY(mu_);
  absl::Time next_try_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();

  std::thread serving_;
  std::thread collecting_;  // Started by the first collection.
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_ENGINE_REQUEST_SERVER_H_
