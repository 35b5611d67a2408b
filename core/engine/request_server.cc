// SPDX-License-Identifier: Apache-2.0

#include "core/engine/request_server.h"

#include <unistd.h>

#include <optional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "core/process/engine_thread.h"
#include "core/process/guarded_call.h"
#include "kv/monotonic.h"
#include "kv/process_mark.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

constexpr absl::Duration kServerLook = absl::Seconds(1);
// Who asks has given up by then.
constexpr absl::Duration kAnswerAgain = absl::Seconds(1);
constexpr absl::Duration kGiveUpAnswer = absl::Minutes(1);

schema::StoreAnswer RefusalOf(const absl::Status& status) {
  schema::StoreAnswer answer;
  answer.code = static_cast<std::uint32_t>(status.code());
  answer.text = std::string(status.message());
  return answer;
}

std::string_view NameOfRequest(schema::RequestKind kind) {
  using Kind = schema::RequestKind;
  switch (kind) {
    case Kind::kTag:
      return "tagging";
    case Kind::kUntag:
      return "removing a tag";
    case Kind::kPin:
      return "pinning";
    case Kind::kUnpin:
      return "unpinning";
    case Kind::kDelete:
      return "deleting steps";
    case Kind::kFork:
      return "making a branch";
    case Kind::kDropBranch:
      return "dropping a branch";
    case Kind::kSetPolicy:
      return "setting the policy";
    case Kind::kApplyPolicy:
      return "applying the policy";
    case Kind::kCollect:
      return "collecting";
  }
  return "something";
}

}  // namespace

RequestServer::RequestServer(RequestServerContext context)
    : context_(std::move(context)),
      box_(context_.directory, context_.permissions),
      watch_(context_.directory) {
  box_.DisownOld();
  try {
    serving_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& error) {
    context_.logger->Log(
        LogSeverity::kWarning, "requests",
        absl::StrFormat("no thread to take requests: %s", error.what()));
  }
}

void RequestServer::Stop() {
  {
    const absl::MutexLock lock(&mu_);
    stopped_.store(true);
  }
  watch_.Wake();
  if (serving_.joinable()) serving_.join();
  if (collecting_.joinable()) collecting_.join();
  AnswerAgain();
}

void RequestServer::Serve() {
  const EngineThread mark(context_.database);
  absl::Status told;
  while (!stopped_.load()) {
    const absl::Status status =
        GuardedStatus("taking requests", [this]() -> absl::Status {
          // First, so that nothing comes between; the folder may be made anew.
          watch_.Add(kv::RequestFolder(context_.directory));
          AnswerAgain();
          while (!stopped_.load()) {
            auto taken = box_.Take(schema::kMaxRequestBytes);
            if (!taken.ok()) return taken.status();
            if (!taken->has_value()) break;
            Do(**std::move(taken));
          }
          return absl::OkStatus();
        });
    if (!status.ok() && status != told) {
      context_.logger->Log(LogSeverity::kWarning, "requests", status);
    }
    told = status;
    watch_.Wait(kServerLook);
  }
}

void RequestServer::Do(kv::TakenRequest taken) {
  if (!taken.status.ok()) {
    context_.logger->Log(LogSeverity::kWarning, "requests", taken.status);
    return Answer(taken.id, RefusalOf(taken.status));
  }
  absl::StatusOr<schema::StoreRequest> request =
      schema::DecodeStoreRequest(taken.bytes);
  if (request.ok() && request->id != taken.id) {
    request = absl::DataLossError("its file has the name of another request");
  }
  if (!request.ok()) {
    const absl::Status refused = absl::InvalidArgumentError(absl::StrFormat(
        "the request cannot be read: %s", request.status().message()));
    context_.logger->Log(LogSeverity::kWarning, "requests", refused);
    return Answer(taken.id, RefusalOf(refused));
  }
  if (request->kind != schema::RequestKind::kCollect) return Execute(*request);
  {
    const absl::MutexLock lock(&mu_);
    collections_.push_back(*std::move(request));
  }
  if (collecting_.joinable()) return;
  try {
    collecting_ = std::thread([this] { Collect(); });
  } catch (const std::system_error&) {
    std::optional<schema::StoreRequest> waiting;
    {
      const absl::MutexLock lock(&mu_);
      waiting = std::move(collections_.front());
      collections_.pop_front();
    }
    Execute(*waiting);
  }
}

void RequestServer::Collect() {
  const EngineThread mark(context_.database);
  while (true) {
    schema::StoreRequest request;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(
          +[](RequestServer* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(self->mu_) {
            return self->stopped_.load() || !self->collections_.empty();
          },
          this));
      if (collections_.empty()) return;
      request = std::move(collections_.front());
      collections_.pop_front();
    }
    Execute(request);
  }
}

void RequestServer::Execute(const schema::StoreRequest& request) {
  schema::StoreAnswer answer =
      context_.execute(request, [this] { return stopped_.load(); });
  if (stopped_.load() &&
      answer.code == static_cast<std::uint32_t>(absl::StatusCode::kCancelled)) {
    // Nobody interrupted it. Who asked begins again, here or by himself.
    answer.code = static_cast<std::uint32_t>(absl::StatusCode::kAborted);
    answer.text = "the store was closed before it was done";
  }
  context_.logger->Log(
      LogSeverity::kInfo, "requests",
      absl::StrFormat("%s, asked for by pid %d on host %s: %s",
                      NameOfRequest(request.kind), request.pid, request.host,
                      answer.code == 0 ? "done" : answer.text));
  Answer(request.id, std::move(answer));
}

void RequestServer::Answer(const std::string& id, schema::StoreAnswer answer) {
  answer.id = id;
  answer.host = kv::HostName();
  answer.pid = static_cast<std::uint32_t>(getpid());
  std::string bytes = schema::EncodeStoreAnswer(answer);
  const absl::Status status = box_.Answer(id, bytes);
  if (status.ok()) return;
  context_.logger->Log(LogSeverity::kWarning, "requests", status);
  const absl::MutexLock lock(&mu_);
  const absl::Time now = kv::MonotonicNow();
  unwritten_.push_back({id, std::move(bytes), now + kGiveUpAnswer});
  next_try_ = now + kAnswerAgain;
}

void RequestServer::AnswerAgain() {
  const absl::MutexLock lock(&mu_);
  // Each try wakes this thread, which watches the folder.
  const absl::Time now = kv::MonotonicNow();
  if (unwritten_.empty() || (now < next_try_ && !stopped_.load())) return;
  std::erase_if(unwritten_, [&](const Unwritten& answer) {
    return box_.Answer(answer.id, answer.bytes).ok() || now > answer.until;
  });
  next_try_ = now + kAnswerAgain;
}

}  // namespace ckptree::internal
