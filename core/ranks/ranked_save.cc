// SPDX-License-Identifier: Apache-2.0

// The public face of a step of several processes, by the caller's messages.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/step_builder.h"
#include "core/engine/store_engine.h"
#include "core/ranks/part_build.h"
#include "core/ranks/rank_peer.h"
#include "kv/monotonic.h"
#include "kv/timed_wait.h"
#include "schema/limits.h"
#include "schema/rank_message.h"

namespace ckptree {

namespace internal {

// What the caller's thread and the store's write thread tell each other.
struct PartExchange {
  absl::Mutex mu;
  std::optional<std::string> plan ABSL_GUARDED_BY(mu);
  bool answered ABSL_GUARDED_BY(mu) = false;  // By Commit() or Fail().
  std::vector<std::string> parts ABSL_GUARDED_BY(mu);
  absl::Status why ABSL_GUARDED_BY(mu);
};

}  // namespace internal

using internal::PartExchange;
using internal::RankPeer;
using internal::Save;

namespace {

// How often a save that waits for its parts asks whether it was cancelled.
constexpr absl::Duration kAskEvery = absl::Milliseconds(20);

// The folder of the store, which every process sees.
internal::PartPlace PlaceOf(const internal::Engine& engine) {
  return {engine.database().staging_directory(), nullptr};
}

// The parts of every rank, each once.
absl::StatusOr<std::vector<internal::PartResult>> TakeAll(
    internal::Engine* engine, const schema::RankPlan& plan,
    const std::vector<std::string>& tokens) {
  std::vector<internal::PartResult> parts;
  std::vector<bool> there(plan.world, false);
  const auto take = [&](const std::string& bytes) -> absl::Status {
    CKPTREE_ASSIGN_OR_RETURN(const schema::PartToken token,
                             schema::DecodePartToken(bytes));
    CKPTREE_ASSIGN_OR_RETURN(
        internal::PartResult part,
        internal::TakeOver(engine, PlaceOf(*engine), plan, token,
                           [] { return absl::OkStatus(); }));
    if (there[token.rank]) {
      return absl::InvalidArgumentError(
          absl::StrFormat("rank %d handed over two parts", token.rank));
    }
    there[token.rank] = true;
    parts.push_back(std::move(part));
    return absl::OkStatus();
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const absl::Status status = take(tokens[i]);
    if (status.ok()) continue;
    // Bytes that came damaged do not say whose they are.
    return absl::Status(status.code(),
                        absl::StrFormat("part %d of %d given: %s", i + 1,
                                        tokens.size(), status.message()));
  }
  std::vector<int> missing;
  for (std::uint32_t rank = 0; rank < plan.world; ++rank) {
    if (!there[rank]) missing.push_back(static_cast<int>(rank));
  }
  if (!missing.empty()) {
    const std::size_t named = std::min<std::size_t>(missing.size(), 8);
    return absl::InvalidArgumentError(absl::StrFormat(
        "of %d ranks %d handed over no part: %s%s", plan.world, missing.size(),
        absl::StrJoin(missing.begin(),
                      missing.begin() + static_cast<std::ptrdiff_t>(named),
                      ", "),
        named < missing.size() ? ", ..." : ""));
  }
  return parts;
}

}  // namespace

struct RankedSave::Impl {
  std::shared_ptr<PartExchange> exchange;
  SaveHandle handle;
  std::string plan;

  SaveHandle Answer(std::vector<std::string> parts, const absl::Status& why) {
    const absl::MutexLock lock(&exchange->mu);
    if (!exchange->answered) {
      exchange->answered = true;
      exchange->parts = std::move(parts);
      exchange->why = why;
    }
    return handle;
  }
};

RankedSave::RankedSave(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankedSave::RankedSave(RankedSave&&) noexcept = default;
RankedSave& RankedSave::operator=(RankedSave&& other) noexcept {
  RankedSave next(std::move(other));
  impl_.swap(next.impl_);  // What was here ends as any save does.
  return *this;
}

RankedSave::~RankedSave() {
  if (impl_ == nullptr) return;
  {
    const absl::MutexLock lock(&impl_->exchange->mu);
    if (impl_->exchange->answered) return;
  }
  // Who drops it does not need to be told.
  impl_->handle.Cancel();
  impl_->Answer({}, absl::CancelledError("the save of its parts was dropped"));
}

const std::string& RankedSave::plan() const {
  base::Require(impl_ != nullptr,
                "a ckptree::RankedSave was used after it was moved from");
  return impl_->plan;
}

SaveHandle RankedSave::Commit(std::vector<std::string> parts) {
  plan();  // Ends the program where there is none.
  return impl_->Answer(std::move(parts), absl::OkStatus());
}

SaveHandle RankedSave::Fail(const absl::Status& why) {
  plan();
  return impl_->Answer(
      {}, why.ok() ? absl::CancelledError("it was given up") : why);
}

absl::StatusOr<RankedSave> RankedSave::Begin(StepBuilder about,
                                             const RankedSaveOptions& options) {
  return internal::GuardedResult("Begin", [&]() -> absl::StatusOr<RankedSave> {
    CKPTREE_RETURN_IF_ERROR(about.status());
    if (options.world < 1 || options.world > schema::kMaxParts) {
      return absl::InvalidArgumentError(
          absl::StrFormat("a step of %d ranks: 1 to %d are possible",
                          options.world, schema::kMaxParts));
    }
    if (options.deadline <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("a deadline of %s: it must be above zero",
                          absl::FormatDuration(options.deadline)));
    }
    auto exchange = std::make_shared<PartExchange>();
    const std::unique_ptr<RankPeer::Impl> impl = RankPeer::Take(&about);
    if (impl->content.has_entries() || impl->plan.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("step %d: a value was put where only what is said of "
                          "the step is: the coordinator's values are a part, "
                          "too (BeginPart)",
                          impl->step));
    }
    internal::Engine* const engine = impl->engine.get();
    const std::shared_ptr<Save> save = impl->save;
    save->world = static_cast<std::uint32_t>(options.world);
    save->gather = [exchange, engine, deadline = options.deadline](
                       const schema::RankPlan& plan,
                       const std::function<absl::Status()>& check)
        -> absl::StatusOr<std::vector<internal::PartResult>> {
      const absl::Time end = kv::MonotonicNow() + deadline;
      std::vector<std::string> tokens;
      {
        const absl::MutexLock lock(&exchange->mu);
        exchange->plan = schema::EncodeRankPlan(plan);
        while (!kv::AwaitFor(exchange->mu, absl::Condition(&exchange->answered),
                             kAskEvery)) {
          CKPTREE_RETURN_IF_ERROR(check());
          if (kv::MonotonicNow() < end) continue;
          return absl::DeadlineExceededError(absl::StrFormat(
              "its parts were not committed within %s of their plan",
              absl::FormatDuration(deadline)));
        }
        CKPTREE_RETURN_IF_ERROR(exchange->why);
        tokens = std::move(exchange->parts);
      }
      return TakeAll(engine, plan, tokens);
    };
    CKPTREE_RETURN_IF_ERROR(impl->Prepare());
    // Before anybody waits for parts. Dropped, it gives the save up.
    RankedSave begun(std::make_unique<Impl>());
    begun.impl_->exchange = exchange;
    begun.impl_->handle = RankPeer::HandleOf(save);
    if (!engine->writer()->Submit(save)) {
      return absl::FailedPreconditionError(
          absl::StrFormat("store %s was closed", engine->directory()));
    }
    std::string& told = begun.impl_->plan;
    {
      const absl::MutexLock lock(&exchange->mu);
      const auto planned = [&exchange]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return exchange->plan.has_value();
      };
      while (
          !kv::AwaitFor(exchange->mu, absl::Condition(&planned), kAskEvery)) {
        if (save->Done()) break;
      }
      if (exchange->plan.has_value()) told = *exchange->plan;
    }
    if (told.empty()) {
      return begun.impl_->handle.WaitCommitted();  // Why it had no turn.
    }
    return begun;
  });
}

StepBuilder BeginPart(const Store& store, std::string_view plan, int rank) {
  const std::shared_ptr<internal::Engine> shared =
      internal::StoreEngine::Shared(store);
  const internal::Engine& engine = *shared;
  absl::StatusOr<schema::RankPlan> decoded = schema::DecodeRankPlan(plan);
  auto impl = std::make_unique<RankPeer::Impl>(
      shared, decoded.ok() ? decoded->step : 0);
  impl->status = [&]() -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(engine.CheckUsable());
    CKPTREE_RETURN_IF_ERROR(decoded.status());
    CKPTREE_RETURN_IF_ERROR(internal::CheckPlan(engine, *decoded));
    if (engine.database().reads_far()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s is read by its address: a part is handed over in the folder of "
          "the store. Open that, or a RankGroup without a shared folder",
          engine.address()));
    }
    if (rank < 0 || static_cast<std::uint32_t>(rank) >= decoded->world) {
      return absl::InvalidArgumentError(
          absl::StrFormat("rank %d of %d: 0 to %d are possible", rank,
                          decoded->world, decoded->world - 1));
    }
    return absl::OkStatus();
  }();
  if (impl->status.ok()) {
    impl->content.SetRank(static_cast<std::uint32_t>(rank), decoded->world);
    impl->rank = static_cast<std::uint16_t>(rank);
    impl->save = std::make_shared<Save>(internal::BranchOf(*decoded),
                                        decoded->step, SaveOptions());
  }
  impl->plan = decoded.ok() ? *std::move(decoded) : schema::RankPlan();
  return RankPeer::BuilderOf(std::move(impl));
}

absl::StatusOr<std::string> FinishPart(StepBuilder part) {
  const std::unique_ptr<RankPeer::Impl> impl = RankPeer::Take(&part);
  // Which step it is of a plan that is damaged does not say.
  const auto annotate = [&impl](const absl::Status& status) {
    return absl::Status(
        status.code(),
        impl->plan.has_value() && impl->plan->version == 0
            ? absl::StrFormat("the part was not built: its plan: %s",
                              status.message())
            : absl::StrFormat("step %d: the part was not built: %s", impl->step,
                              status.message()));
  };
  if (!impl->plan.has_value()) {
    return absl::FailedPreconditionError(
        "a step that Store::Begin() began is no part: commit to it");
  }
  if (!impl->status.ok()) return annotate(impl->status);
  internal::Builder builder;
  builder.rank = impl->rank;
  builder.nonce = internal::NewNonce();
  builder.planned = kv::MonotonicNow();
  const internal::PartPlace place = PlaceOf(*impl->engine);
  const auto no_check = [] { return absl::OkStatus(); };
  absl::StatusOr<std::string> token = internal::GuardedResult(
      "building a part", [&]() -> absl::StatusOr<std::string> {
        CKPTREE_RETURN_IF_ERROR(impl->Prepare());
        CKPTREE_ASSIGN_OR_RETURN(
            internal::PartResult result,
            internal::BuildPart(impl->engine.get(), place, *impl->plan, builder,
                                impl->save->content.get(),
                                &impl->save->counters, no_check));
        return internal::HandOver(*impl->engine, place, *impl->plan, builder,
                                  std::move(result), no_check);
      });
  // Also of a part that wrote no file: before it is sent nobody can have ended
  // the attempt with it.
  if ((token.ok() || absl::IsNotFound(token.status())) &&
      internal::IsGivenUp(place, *impl->plan)) {
    return annotate(absl::FailedPreconditionError(
        "its plan was given up, or its step is saved: begin the step again on "
        "the coordinator, and send what plan() says then"));
  }
  if (!token.ok()) return annotate(token.status());
  return token;
}

}  // namespace ckptree
