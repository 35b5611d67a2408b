// SPDX-License-Identifier: Apache-2.0

// Where a step goes that was put together.

#ifndef CKPTREE_CORE_SAVE_SAVE_SINK_H_
#define CKPTREE_CORE_SAVE_SAVE_SINK_H_

#include <memory>

#include "absl/status/status.h"
#include "core/save/save.h"

namespace ckptree::internal {

class SaveSink {
 public:
  virtual ~SaveSink() = default;

  // Takes the save, waiting for room among those in flight. False where no more
  // are taken.
  [[nodiscard]] virtual bool Submit(const std::shared_ptr<Save>& save) = 0;
  // `save` ended without having been submitted, because of `why`; told like any
  // failure.
  virtual void Fail(const std::shared_ptr<Save>& save,
                    const absl::Status& why) = 0;
  // The step will not be saved: it was dropped.
  virtual void Dropped() {}
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_SAVE_SAVE_SINK_H_
