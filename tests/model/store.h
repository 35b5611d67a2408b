// SPDX-License-Identifier: Apache-2.0

// A store in a trial: opened over a FaultFs, judged against the model.

#ifndef CKPTREE_TESTS_MODEL_STORE_H_
#define CKPTREE_TESTS_MODEL_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/ckptree.h"
#include "tests/fault/runner.h"
#include "tests/model/state.h"

namespace ckptree::testing {

// As stores of a trial are opened: without log output, without a collection in
// the background.
StoreOptions TrialOptions(int threads);

// `file_system` may be null.
absl::StatusOr<Store> CreateStore(const std::string& directory, int threads,
                                  std::shared_ptr<void> file_system = nullptr,
                                  Coding coding = Coding::kPlanes);
absl::StatusOr<Store> OpenStore(const std::string& directory, int threads,
                                std::shared_ptr<void> file_system = nullptr,
                                bool read_only = false);

// Waits for the commit.
absl::Status SaveStep(Store& store, std::int64_t step, const ModelStep& content,
                      bool overwrite = false);

// True where nothing lies below <directory>/staging. While the store is open
// for writing a flush of its own may hold its room there: that does not count.
enum class StoreIs { kOpen, kClosed };
bool StagingIsEmpty(const std::string& directory, StoreIs state);

// What became of a store after a fault. Says through `pipe`, one line each:
//   STATE i      it is exactly allowed[i] (the first that fits)
//   UNOPENABLE, LOST, TORN, FINDING, STAGING, NEXT, COLLECT ...  what is wrong
// LOST: another catalog than any allowed; TORN: a step does not read back;
// NEXT: the saves that follow do not work; COLLECT: the collection after them,
// where it is asked for: it takes as long as all the rest. Where
// `may_be_absent`, a store that is not there or not finished is right, and
// Create must then succeed.
void JudgeStore(const std::string& directory,
                const std::vector<ModelState>& allowed, bool may_be_absent,
                const TrialPipe& pipe, bool collects = true);

// The same of the state alone: no deep check, nothing is saved.
void JudgeState(const std::string& directory,
                const std::vector<ModelState>& allowed, const TrialPipe& pipe);

// The same of an open store, and which of `allowed` it is.
std::optional<std::size_t> JudgeOpened(const Store& store,
                                       const std::vector<ModelState>& allowed,
                                       const TrialPipe& pipe);

// The lines of JudgeStore that tell of something wrong.
std::vector<std::string> Wrongs(const TrialResult& judged);

// Takes out what a power cut alone may say: that the MANIFEST was damaged, and
// the index made anew. RocksDB cannot tell one whose end the cut left half
// written from a damaged one. How many there were.
int ForgiveTornManifest(std::vector<std::string>* wrongs);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_MODEL_STORE_H_
