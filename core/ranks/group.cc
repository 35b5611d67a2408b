// SPDX-License-Identifier: Apache-2.0

// The public face of ranks that meet in the store's folder.

#include "core/ranks/group.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "ckptree/local_path.h"
#include "ckptree/ranks.h"
#include "core/engine/engine.h"
#include "core/engine/step_builder.h"
#include "core/engine/store_engine.h"
#include "core/process/guarded_call.h"
#include "core/process/run_elsewhere.h"
#include "core/ranks/coordinator.h"
#include "core/ranks/member.h"
#include "core/ranks/rank_peer.h"
#include "core/ranks/rank_remote.h"
#include "core/ranks/refusal.h"
#include "core/remote/replicator.h"
#include "core/save/coding_choice.h"
#include "kv/object_store.h"
#include "kv/process_use.h"
#include "schema/limits.h"

namespace ckptree {

using internal::Coordinator;
using internal::Engine;
using internal::GroupEnds;
using internal::Member;
using internal::RankPeer;
using internal::RankRemote;
using internal::Save;
using internal::StepCall;

namespace {

constexpr std::size_t kMaxJobBytes = 64;

absl::Status Check(const RankOptions& options) {
  const auto invalid = [](std::string text) {
    return absl::InvalidArgumentError(std::move(text));
  };
  if (options.world < 1 || options.world > schema::kMaxParts) {
    return invalid(absl::StrFormat("a world of %d ranks: 1 to %d are possible",
                                   options.world, schema::kMaxParts));
  }
  if (options.rank < 0 || options.rank >= options.world) {
    return invalid(absl::StrFormat("rank %d of %d: 0 to %d are possible",
                                   options.rank, options.world,
                                   options.world - 1));
  }
  const bool named =
      !options.job.empty() && options.job.size() <= kMaxJobBytes &&
      std::all_of(options.job.begin(), options.job.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
               c == '_' || c == '.';
      });
  if (!named) {
    return invalid(absl::StrFormat(
        "job '%s': a name has 1 to %d letters, digits, '-', '_' and '.'",
        options.job, kMaxJobBytes));
  }
  for (const absl::Duration deadline :
       {options.deadline, options.open_deadline}) {
    if (deadline > absl::ZeroDuration()) continue;
    return invalid(absl::StrFormat("a deadline of %s: it must be above zero",
                                   absl::FormatDuration(deadline)));
  }
  if (!options.shared_folder && options.store.remote.empty()) {
    return invalid(
        "ranks that share no folder meet in their remote: set store.remote, "
        "the same on all of them");
  }
  if (!options.shared_folder && options.store.durable != Durable::kRemote) {
    return invalid(
        "ranks that share no folder see of a step what is in the remote: set "
        "store.durable to kRemote ('remote'); a step that is on rank 0's disk "
        "alone would be told to them as saved, and they could not read it");
  }
  if (options.store.read_only) {
    return invalid("a group saves: store.read_only is decided by the rank");
  }
  return absl::OkStatus();
}

// Where rank 0 meets ranks that do not see its folder. What it has is there by
// then: others open that.
absl::StatusOr<std::shared_ptr<RankRemote>> RemoteOf(
    Engine& engine, const RankOptions& options) {
  internal::Replicator& replicator = *engine.replicator();
  CKPTREE_RETURN_IF_ERROR(replicator.WaitForAll(options.store.remote_timeout));
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<kv::ObjectStore> store,
      kv::OpenObjectStore(options.store.remote, {},
                          kv::Call::Within(absl::Minutes(1))));
  return std::make_shared<RankRemote>(std::move(store), replicator.uuid(),
                                      options.job, replicator.era(),
                                      options.deadline);
}

// The store as rank 0 has it.
struct OpenForRanks {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<RankRemote> remote;  // Null where ranks share the folder.

  static absl::StatusOr<OpenForRanks> Of(const std::string& path,
                                         const RankOptions& options,
                                         std::shared_ptr<void> file_system) {
    OpenForRanks opened;
    CKPTREE_ASSIGN_OR_RETURN(
        opened.engine,
        Engine::Open(path, {.store = options.store,
                            .file_system = std::move(file_system)}));
    if (!options.shared_folder) {
      CKPTREE_ASSIGN_OR_RETURN(opened.remote,
                               RemoteOf(*opened.engine, options));
    }
    return opened;
  }
};

// The step of one Begin().
class Call : public internal::SaveSink {
 public:
  Call(GroupEnds ends, std::shared_ptr<Engine> engine, StepCall call)
      : ends_(std::move(ends)), engine_(std::move(engine)), call_(call) {}

  bool Submit(const std::shared_ptr<Save>& save) override {
    if (ends_.member != nullptr) return ends_.member->Submit(save);
    Save* const raw = save.get();  // It owns what calls these.
    save->gather = [end = ends_.coordinator, call = call_, raw](
                       const schema::RankPlan& plan,
                       const std::function<absl::Status()>& check) {
      return end->Gather(call, raw, plan, check);
    };
    ends_.coordinator->Begin();
    absl::Cleanup not_begun = [this] { ends_.coordinator->End(); };
    std::function<void()> on_done = [end = ends_.coordinator, call = call_, raw,
                                     database = &engine_->database()] {
      // Who beats for good is never taken for lost.
      const absl::Cleanup ended = [&end] { end->End(); };
      end->Settle(call, raw->Result(), database->newest_ordinal());
    };
    if (!engine_->writer()->Submit(save)) return false;  // Fail() follows.
    std::move(not_begun).Cancel();
    save->OnDone(std::move(on_done));
    return true;
  }

  void Fail(const std::shared_ptr<Save>& save,
            const absl::Status& why) override {
    Settle(why);
    if (ends_.member != nullptr) {
      ends_.member->failed().Add(save);
    } else if (engine_->CheckWritable().ok()) {
      engine_->writer()->Fail(save, why);
    }
  }

  void Dropped() override {
    Settle(absl::CancelledError("the step was dropped before its commit"));
  }

  // It ends without having been submitted.
  void Settle(const absl::Status& status) {
    if (!engine_->CheckUsable().ok()) return;  // A forked child, or closed.
    if (ends_.member != nullptr) {
      ends_.member->Refuse(call_.first, status);
    } else {
      ends_.coordinator->Settle(
          call_,
          absl::Status(status.code(),
                       absl::StrFormat("step %d was not saved: rank 0: %s",
                                       call_.first, status.message())),
          0);
    }
  }

 private:
  const GroupEnds ends_;
  const std::shared_ptr<Engine> engine_;
  const StepCall call_;
};

}  // namespace

struct RankGroup::Impl : internal::GroupRank {
  using GroupRank::GroupRank;
};

// ---- what is shared ----

namespace internal {

StepCall GroupRank::NextCall(std::int64_t step) {
  const absl::MutexLock lock(&mu_);
  return {step, ++calls_[step]};
}

int GroupRank::NextManager() {
  const absl::MutexLock lock(&mu_);
  return ++managers_;
}

void GroupRank::GiveUp(std::int64_t step, const absl::Status& why) {
  Call(ends_, StoreEngine::Shared(store_), NextCall(step)).Settle(why);
}

StepBuilder GroupRank::Begin(std::int64_t step, const SaveOptions& options) {
  const std::shared_ptr<Engine> engine = StoreEngine::Shared(store_);
  std::unique_ptr<RankPeer::Impl> built;
  if (ends_.coordinator != nullptr) {
    StepBuilder begun = store_.Begin(step, options);
    built = RankPeer::Take(&begun);
    built->status = ends_.coordinator->WithAdvice(built->status);
  } else {
    built = std::make_unique<RankPeer::Impl>(engine, step);
    built->status = GuardedStatus("Begin", [&]() -> absl::Status {
      CKPTREE_RETURN_IF_ERROR(engine->CheckUsable());
      CKPTREE_RETURN_IF_ERROR(built->PassOn(&ends_.member->failed()));
      built->save = std::make_shared<Save>(BranchId(), step, options);
      return absl::OkStatus();
    });
  }
  const auto world = static_cast<std::uint32_t>(options_.world);
  built->content.SetRank(static_cast<std::uint32_t>(options_.rank), world);
  built->status.Update(GuardedStatus("Begin", [&] {
    if (built->save != nullptr) {
      built->save->world = world;
      built->save->rank_options = TextOf(options);
    }
    built->sink = std::make_shared<Call>(ends_, engine, NextCall(step));
    return absl::OkStatus();
  }));
  return RankPeer::BuilderOf(std::move(built));
}

absl::Status GroupRank::Flush(absl::Duration timeout) {
  if (ends_.coordinator != nullptr) return store_.Flush(timeout);
  CKPTREE_RETURN_IF_ERROR(StoreEngine::Of(store_).CheckUsable());
  CKPTREE_RETURN_IF_ERROR(ends_.member->WaitIdle(timeout));
  return ends_.member->failed().Take(/*only_dropped=*/false);
}

absl::Status GroupRank::Close() {
  if (closed_) return absl::OkStatus();
  if (StoreEngine::Of(store_).forked()) {
    return StoreEngine::Of(store_).CheckUsable();
  }
  if (StoreEngine::Of(store_).IsInCallback()) {
    return absl::FailedPreconditionError(
        "a callback must not close the group that calls it: closing waits for "
        "the callback");
  }
  closed_ = true;
  absl::Status status;
  if (ends_.coordinator != nullptr) {
    status = store_.Flush();
    ends_.coordinator->Close();
  } else {
    ends_.member->Close();
    status = ends_.member->failed().Take(/*only_dropped=*/false);
  }
  status.Update(store_.Close());
  return status;
}

}  // namespace internal

// ---- the public face ----

absl::StatusOr<RankGroup> RankGroup::Open(const std::string& directory,
                                          RankOptions options) {
  return internal::GuardedResult("Open", [&] {
    return internal::RankGroupPeer::Open(directory, options, nullptr);
  });
}

absl::StatusOr<RankGroup> internal::RankGroupPeer::Open(
    const std::string& directory, const RankOptions& options,
    std::shared_ptr<void> file_system) {
  CKPTREE_RETURN_IF_ERROR(Check(options));
  CKPTREE_ASSIGN_OR_RETURN(const std::string path, LocalPath(directory));
  GroupEnds ends;
  if (options.rank == 0) {
    CKPTREE_RETURN_IF_ERROR(kv::CheckMayWrite(path));
    kv::Options kv_options;  // Before the store is open.
    kv_options.file_system = file_system;
    absl::StatusOr<OpenForRanks> opened =
        OpenForRanks::Of(path, options, std::move(file_system));
    if (!opened.ok()) {
      TellRefusal(path, options, kv_options, opened.status());
      return opened.status();
    }
    if (options.shared_folder) ForgetRefusal(path, kv_options);
    const std::shared_ptr<Engine> engine = std::move(opened->engine);
    Store store = StoreEngine::StoreOf(engine);
    ends.coordinator = std::make_shared<Coordinator>(engine.get(), options,
                                                     std::move(opened->remote));
    if (const absl::Status met = ends.coordinator->Meet(); !met.ok()) {
      ends.coordinator->Close();
      return met;
    }
    return RankGroup(std::make_shared<RankGroup::Impl>(
        std::move(store), std::move(ends), options));
  }
  // Rank 0 alone has the remote, and all code alike.
  RankOptions of_member = options;
  of_member.store.coding = CodingOf(options.store);
  CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<Member> member,
                           Member::Meet(path, of_member, file_system));
  Store store = StoreEngine::StoreOf(member->engine());
  ends.member = std::move(member);
  return RankGroup(std::make_shared<RankGroup::Impl>(std::move(store),
                                                     std::move(ends), options));
}

std::shared_ptr<internal::GroupRank> internal::RankGroupPeer::Shared(
    const RankGroup& group) {
  group.impl();
  return group.impl_;
}

RankGroup::RankGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankGroup::RankGroup(RankGroup&&) noexcept = default;
RankGroup& RankGroup::operator=(RankGroup&& other) noexcept {
  RankGroup next(std::move(other));
  impl_.swap(next.impl_);  // What was here ends as any group does.
  return *this;
}

RankGroup::~RankGroup() {
  if (impl_ == nullptr) return;
  const std::shared_ptr<Engine> engine =
      internal::StoreEngine::Shared(impl_->store());
  if (engine->forked()) {
    // A forked child has none of the threads: leaked on purpose.
    new std::shared_ptr<Impl>(std::move(impl_));
    return;
  }
  const auto close = [](const std::shared_ptr<Impl>& impl) {
    const absl::Status closed =
        internal::GuardedStatus("Close", [&impl] { return impl->Close(); });
    if (!closed.ok()) {
      internal::StoreEngine::Of(impl->store())
          .logger()
          .Log(LogSeverity::kError, "close", closed);
    }
  };
  if (!engine->IsInCallback()) {
    close(impl_);
    return;
  }
  // It would wait for its caller.
  internal::RunElsewhere([impl = std::move(impl_), close] { close(impl); });
}

RankGroup::Impl& RankGroup::impl() const {
  base::Require(impl_ != nullptr,
                "a ckptree::RankGroup was used after it was moved from");
  return *impl_;
}

StepBuilder RankGroup::Begin(std::int64_t step, SaveOptions options) {
  return impl().Begin(step, options);
}

Store& RankGroup::store() { return impl().store(); }
int RankGroup::rank() const { return impl().options().rank; }
int RankGroup::world() const { return impl().options().world; }

absl::Status RankGroup::Flush(absl::Duration timeout) {
  return internal::GuardedResult("Flush",
                                 [&] { return impl().Flush(timeout); });
}

absl::Status RankGroup::Close() {
  return internal::GuardedResult("Close", [&] { return impl().Close(); });
}

}  // namespace ckptree
