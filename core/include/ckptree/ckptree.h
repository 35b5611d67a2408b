// SPDX-License-Identifier: Apache-2.0

// Everything of ckptree: include this, or the headers behind it one by one.

#ifndef CKPTREE_CKPTREE_H_
#define CKPTREE_CKPTREE_H_

// A trainer:
//
//   auto store = ckptree::Store::Open("/runs/lm", {.create_if_missing = true});
//   ckptree::StepBuilder step = store->Begin(iteration);
//   step.Put("params/wte", {ckptree::DType::kFloat32, {50257, 768}, wte});
//   step.PutFloat("lr", lr).SetMetric("loss", loss);
//   ckptree::SaveHandle save = std::move(step).Commit();  // Returns at once.
//   save.WaitStaged(absl::Seconds(30));   // The memory is ours again.
//   ...
//   save.WaitCommitted(absl::InfiniteDuration());
//
// A resume:
//
//   auto step = store->Restore(ckptree::Latest());
//   step->Read("params/wte", destination);

#include "ckptree/collect.h"        // IWYU pragma: export
#include "ckptree/local_path.h"     // IWYU pragma: export
#include "ckptree/manager.h"        // IWYU pragma: export
#include "ckptree/options.h"        // IWYU pragma: export
#include "ckptree/policy.h"         // IWYU pragma: export
#include "ckptree/preservation.h"   // IWYU pragma: export
#include "ckptree/recover.h"        // IWYU pragma: export
#include "ckptree/repair.h"         // IWYU pragma: export
#include "ckptree/restore.h"        // IWYU pragma: export
#include "ckptree/save_decision.h"  // IWYU pragma: export
#include "ckptree/selector.h"       // IWYU pragma: export
#include "ckptree/step.h"           // IWYU pragma: export
#include "ckptree/store.h"          // IWYU pragma: export
#include "ckptree/tensor.h"         // IWYU pragma: export
#include "ckptree/usage.h"          // IWYU pragma: export
#include "ckptree/version.h"        // IWYU pragma: export

#endif  // CKPTREE_CKPTREE_H_
