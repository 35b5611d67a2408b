// SPDX-License-Identifier: Apache-2.0

// Everything of ckptree: include this, or the headers behind it one by one.

#ifndef CKPTREE_CKPTREE_H_
#define CKPTREE_CKPTREE_H_

// A trainer:
//
//   absl::StatusOr<ckptree::Store> store =
//       ckptree::Store::Open("/runs/lm", {.create_if_missing = true});
//   ckptree::StepBuilder step = store->Begin(iteration);
//   step.Put("params/wte", {ckptree::DType::kFloat32, {50257, 768}, wte});
//   step.PutFloat("lr", lr).SetMetric("loss", loss);
//   ckptree::SaveHandle save = std::move(step).Commit();  // Copies, and
//   returns.
//   ...                                                   // Training goes on.
//   absl::Status durable = save.WaitCommitted(absl::InfiniteDuration());
//
// A resume:
//
//   absl::StatusOr<ckptree::Step> step = store->OpenStep(ckptree::Latest());
//   absl::Status read = step->Read("params/wte", destination);
//
// Where to read on: store.h is the store, save.h what is saved, step.h what is
// read, manager.h the loop of a trainer, history.h what became of a parameter.
//
// Errors are absl::Status values with a message for a person; nothing throws.
// Memory that runs out is kResourceExhausted. Where not even a few hundred
// bytes are left for a message, or for RocksDB's own threads, the process may
// end; as after any other end of it, what was committed is there.
// A code means the same everywhere: kNotFound: what was named is not there.
// kAlreadyExists: it is. kInvalidArgument: a mistake of the caller's, and
// nothing was done. kFailedPrecondition: not in this state. kUnavailable:
// another process has the store, or an object store that has what is asked for
// does not answer. kDataLoss: bytes on disk are not those that
// were written; the message says which. kUnknown: a write failed so that only
// the next open can tell whether it happened.

#include "ckptree/best_mode.h"      // IWYU pragma: export
#include "ckptree/collect.h"        // IWYU pragma: export
#include "ckptree/copy.h"           // IWYU pragma: export
#include "ckptree/dtype.h"          // IWYU pragma: export
#include "ckptree/entry_kind.h"     // IWYU pragma: export
#include "ckptree/history.h"        // IWYU pragma: export
#include "ckptree/local_path.h"     // IWYU pragma: export
#include "ckptree/manager.h"        // IWYU pragma: export
#include "ckptree/options.h"        // IWYU pragma: export
#include "ckptree/path.h"           // IWYU pragma: export
#include "ckptree/policy.h"         // IWYU pragma: export
#include "ckptree/preservation.h"   // IWYU pragma: export
#include "ckptree/ranks.h"          // IWYU pragma: export
#include "ckptree/recover.h"        // IWYU pragma: export
#include "ckptree/remove.h"         // IWYU pragma: export
#include "ckptree/repair.h"         // IWYU pragma: export
#include "ckptree/save.h"           // IWYU pragma: export
#include "ckptree/save_decision.h"  // IWYU pragma: export
#include "ckptree/selector.h"       // IWYU pragma: export
#include "ckptree/statistics.h"     // IWYU pragma: export
#include "ckptree/step.h"           // IWYU pragma: export
#include "ckptree/store.h"          // IWYU pragma: export
#include "ckptree/tensor.h"         // IWYU pragma: export
#include "ckptree/usage.h"          // IWYU pragma: export
#include "ckptree/version.h"        // IWYU pragma: export

#endif  // CKPTREE_CKPTREE_H_
