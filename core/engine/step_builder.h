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

#include "absl/strings/str_format.h"
#include "ckptree/step.h"
#include "core/engine/engine.h"
#include "core/save/save.h"
#include "core/save/step_content.h"

namespace ckptree {

struct StepBuilder::Impl {
  Impl(std::shared_ptr<internal::Engine> owner, std::int64_t number)
      : engine(std::move(owner)),
        content(engine->options().chunk_bytes),
        step(number) {}

  // Gives the ticket back: the saves behind it need not wait.
  void Discard();

  // Runs `add` unless there was a mistake before; keeps its mistake.
  template <typename Fn>
  void Add(Fn add) {
    if (status.ok()) status = add();
  }

  void AddValue(const Path& path, schema::EntryKind kind, std::string bytes,
                std::string tag = "") {
    Add([&] {
      return content.AddValue(path, kind, std::move(bytes), std::move(tag));
    });
  }

  // Null, and the mistake kept, where `text` is no path. The result is valid
  // until the next call.
  const Path* Parse(std::string_view text) {
    absl::StatusOr<Path> path = Path::Parse(text);
    if (!path.ok()) {
      Add([&] {
        return absl::Status(path.status().code(),
                            absl::StrFormat("%s: %s", internal::Quoted(text),
                                            path.status().message()));
      });
      return nullptr;
    }
    parsed = *std::move(path);
    return &*parsed;
  }

  // Makes the content of `save` and copies what is inline.
  absl::Status Prepare();

  const std::shared_ptr<internal::Engine> engine;
  internal::ContentBuilder content;
  const std::int64_t step;
  std::shared_ptr<internal::Save> save;  // Null where status is not OK at once.
  absl::Status status;
  bool passed_on = false;  // `status` is the failure of an earlier save.
  std::optional<Path> parsed;
};

}  // namespace ckptree

#endif  // CKPTREE_CORE_ENGINE_STEP_BUILDER_H_
