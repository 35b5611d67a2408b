// SPDX-License-Identifier: Apache-2.0

// Carries the operations of a ModelDriver out on a real store.

#ifndef CKPTREE_TESTS_MODEL_EXECUTOR_H_
#define CKPTREE_TESTS_MODEL_EXECUTOR_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"
#include "tests/fault/fs.h"
#include "tests/fault/runner.h"
#include "tests/model/driver.h"
#include "tests/model/store.h"

namespace ckptree::testing {

// Confined to one thread.
class ModelExecutor {
 public:
  ModelExecutor(std::string directory, std::shared_ptr<FaultFs> fs,
                StoreOptions options = TrialOptions(1))
      : directory_(std::move(directory)),
        fs_(std::move(fs)),
        options_(std::move(options)) {}

  // Opens the store, or makes it.
  absl::Status Open(bool create);

  // What differs from `before`, or what went wrong; nothing where all is well.
  // Says "SAVED 1" or "SAVED 0" as each save ends, and appends to `results`.
  std::optional<std::string> Execute(const ModelOperation& operation,
                                     const ModelState& before,
                                     const TrialPipe& pipe,
                                     std::vector<bool>* results);

  std::optional<std::string> Close();

  // REQUIRES: it is open.
  Store& store() { return *store_; }

 private:
  std::optional<std::string> Saves(const ModelOperation& operation,
                                   const TrialPipe& pipe,
                                   std::vector<bool>* results);
  std::optional<std::string> DeletePredicted(std::int64_t step);
  std::optional<std::string> Collect(const ModelOperation& operation);
  std::optional<std::string> Catalog(const ModelOperation& operation,
                                     const ModelState& before);

  const std::string directory_;
  const std::shared_ptr<FaultFs> fs_;
  const StoreOptions options_;
  std::optional<Store> store_;
  // Equal values in equal boxes must have equal digests.
  std::map<std::string, std::string> digest_of_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_MODEL_EXECUTOR_H_
