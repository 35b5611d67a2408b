// SPDX-License-Identifier: Apache-2.0

// A workload whose every file-system call is made to fail in turn.

#ifndef CKPTREE_TESTS_TRIAL_SCENARIO_H_
#define CKPTREE_TESTS_TRIAL_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"
#include "tests/fault/directory.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/model/state.h"

namespace ckptree::testing {

// What the actions of a workload act on.
struct TrialContext {
  std::string directory;
  int threads = 1;
  std::shared_ptr<FaultFs> fs;  // Null: no faults.
  std::optional<Store> store;
};

struct TrialAction {
  std::string name;
  std::function<absl::Status(TrialContext&)> run;
  std::function<void(ModelState&)> apply;  // What it does to the model.
};

TrialAction CreateAction(Coding coding = Coding::kPlanes);
TrialAction OpenAction();
TrialAction CloseAction();
TrialAction SaveAction(std::int64_t step, ModelState::Content content,
                       bool overwrite = false);
TrialAction DeleteAction(std::int64_t step);
TrialAction TagAction(std::string name, std::int64_t step);
TrialAction UntagAction(std::string name);
TrialAction PinAction(std::int64_t step);
TrialAction UnpinAction(std::int64_t step);
TrialAction CollectAction();
// Collects, and codes what is there.
TrialAction PackAction();
TrialAction PolicyAction(std::string policy);
// A save whose commit removes `victims` by the policy; the step itself where it
// is among them.
TrialAction JudgedSaveAction(std::int64_t step, ModelState::Content content,
                             std::vector<std::int64_t> victims,
                             bool overwrite = false);

struct TrialScenario {
  std::string name;
  std::vector<TrialAction> base = {};  // Makes the store; empty: none is.
  bool base_dies = false;  // The base's process is killed, not closed.
  bool copied = false;     // The base is moved to another directory.
  std::vector<TrialAction> setup = {};  // Before the faults are armed.
  std::vector<TrialAction> body;

  bool creates() const { return base.empty(); }
};

// create, save_small, save_large, save_incremental, save_coded, overwrite,
// delete, tag, pin, collect, pack, policy, open, open_after_kill, open_copy,
// reopen.
std::vector<TrialScenario> AllScenarios();
// All of it in a row.
TrialScenario LongScenario();

struct TrialOutcome {
  bool fired = false;
  bool died = false;           // The worker, by its fault.
  bool saw_error = false;      // An action failed.
  bool unknown = false;        // ... with an unknown outcome.
  bool torn_manifest = false;  // By a power cut: the index was made anew.
  std::string fired_at;
  std::vector<std::string> wrongs;
};

// Runs trials of one scenario: each on the same base.
class TrialBench {
 public:
  explicit TrialBench(TrialScenario scenario);

  // With a kill or power cut, or a failing call; in that case a failed action
  // is tried once more. `cut_after`: where an action failed, power is cut.
  TrialOutcome Run(const std::vector<FaultPlan>& plans, int threads,
                   bool cut_after = false);

  // How many calls the body makes when nothing fails.
  std::uint64_t Calls();

  const TrialScenario& scenario() const { return scenario_; }

 private:
  void Restore() const;

  TrialScenario scenario_;
  TrialDirectory directory_;
  SharedFaultCounts counts_;
  ModelState base_;
  std::vector<ModelState> states_;  // Before the body and after each action.
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TRIAL_SCENARIO_H_
