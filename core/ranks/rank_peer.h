// SPDX-License-Identifier: Apache-2.0

// Makes step builders and handles of saves that several processes have between
// them.

#ifndef CKPTREE_CORE_RANKS_RANK_PEER_H_
#define CKPTREE_CORE_RANKS_RANK_PEER_H_

#include <memory>
#include <utility>

#include "ckptree/save.h"
#include "core/engine/step_builder.h"
#include "core/save/save.h"

namespace ckptree::internal {

struct RankPeer {
  using Impl = StepBuilder::Impl;
  static StepBuilder BuilderOf(std::unique_ptr<Impl> impl) {
    return StepBuilder(std::move(impl));
  }
  // REQUIRES: it was not committed or moved from.
  static std::unique_ptr<Impl> Take(StepBuilder* builder) {
    builder->impl();
    return std::move(builder->impl_);
  }
  static SaveHandle HandleOf(std::shared_ptr<Save> save) {
    return SaveHandle(std::move(save));
  }
  static const std::shared_ptr<Save>& SaveOf(const SaveHandle& handle) {
    return handle.save_;
  }
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_RANKS_RANK_PEER_H_
