// SPDX-License-Identifier: Apache-2.0

// The state of a StepBuilder.

#ifndef CKPTREE_CORE_ENGINE_STEP_BUILDER_H_
#define CKPTREE_CORE_ENGINE_STEP_BUILDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "ckptree/save.h"
#include "core/engine/engine.h"
#include "core/process/guarded_call.h"
#include "core/save/failed_saves.h"
#include "core/save/save.h"
#include "core/save/save_sink.h"
#include "core/save/step_content.h"
#include "schema/rank_message.h"

namespace ckptree {

struct StepBuilder::Impl {
  Impl(std::shared_ptr<internal::Engine> owner, std::int64_t number)
      : engine(std::move(owner)),
        content(engine->options().chunk_bytes),
        step(number) {}

  // Runs `add` unless there was a mistake before; keeps its mistake.
  template <typename Fn>
  void Add(Fn add) {
    if (status.ok()) status = internal::GuardedStatus("adding to a step", add);
  }

  // Runs `add(Path)` unless there was a mistake before; that `path` is a text
  // which does not parse is one.
  template <typename Fn>
  void AddAt(PathRef path, Fn add) {
    Add([&]() -> absl::Status {
      std::optional<Path> parsed;
      CKPTREE_ASSIGN_OR_RETURN(const Path* const at, path.Get(&parsed));
      return add(*at);
    });
  }

  void AddValue(PathRef path, EntryKind kind, std::string bytes,
                std::string tag = "") {
    AddAt(path, [&](const Path& at) {
      return content.AddValue(at, kind, std::move(bytes), std::move(tag));
    });
  }

  // Makes the content of `save` and copies what is inline.
  absl::Status Prepare();

  ~Impl() {
    if (sink != nullptr) {
      // It is dropped where something threw, too.
      internal::GuardedCall("Dropped", [this] {
        sink->Dropped();
      }).IgnoreError();
    }
    if (untold != nullptr) failures->PutBack(untold);
  }

  // The failure of an earlier save that nobody else is told of is the status;
  // dropped before anybody asked for it, it is told by the next call.
  absl::Status PassOn(internal::FailedSaves* from) {
    failures = from;
    absl::Status unseen = from->Take(/*only_dropped=*/true, &untold);
    passed_on = !unseen.ok();
    return unseen;
  }

  const std::shared_ptr<internal::Engine> engine;
  // Where the step goes; null: to the engine's own writer, or nowhere any more.
  std::shared_ptr<internal::SaveSink> sink;
  // The plan that it is a part of (BeginPart); empty: of none.
  std::optional<schema::RankPlan> plan;
  std::uint16_t rank = 0;  // Of a part: whose.
  internal::ContentBuilder content;
  const std::int64_t step;
  std::shared_ptr<internal::Save> save;  // Null where status is not OK at once.
  absl::Status status;
  bool passed_on = false;  // `status` is the failure of an earlier save.
  std::shared_ptr<internal::Save> untold;  // That save, until somebody knows.
  internal::FailedSaves* failures = nullptr;  // Of the engine, or its group.
};

}  // namespace ckptree

#endif  // CKPTREE_CORE_ENGINE_STEP_BUILDER_H_
