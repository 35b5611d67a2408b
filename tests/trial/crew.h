// SPDX-License-Identifier: Apache-2.0

// Processes that build the parts of one step, as the ranks of a job do.

#ifndef CKPTREE_TESTS_TRIAL_CREW_H_
#define CKPTREE_TESTS_TRIAL_CREW_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/save.h"
#include "tests/fault/fs.h"
#include "tests/fault/plan.h"
#include "tests/model/step.h"

namespace ckptree::testing {

// The leaf that is in boxes over all parts: rows of 1024 floats.
inline constexpr std::string_view kShared = "params/w";
inline constexpr std::int64_t kSharedRows = 768;
inline constexpr std::int64_t kSharedColumns = 1024;

// That leaf, 3 MiB, and seven small ones, each of which is in one part.
ModelStep SharedStep(FaultRandom& random);

// Which bytes of which leaves part `part` of 4 or 2 has: offset and length. Of
// 4 parts, two are above what rides in a batch and two below.
std::map<std::string, std::pair<std::size_t, std::size_t>> ExtentsOf(
    const ModelStep& step, int part, int parts);

// Puts what part `part` of 4 or 2 has; what is in `step` outlives the builder.
void PutPart(const ModelStep& step, int part, int parts, StepBuilder* builder);

// What one process is to suffer.
struct CrewFault {
  static constexpr int kNobody = -2;
  static constexpr int kCoordinator = -1;

  int who = kNobody;  // Or the number of a rank.
  FaultPlan plan = {};
  FaultCounts* counts = nullptr;

  // Not armed, for that process; null for others.
  std::shared_ptr<FaultFs> For(int process) const;
};

// Each waits for a plan, opens the store read only, builds its part and sends
// what is to be sent; its fault counts from before it opens the store.
//
// REQUIRES: the process that makes it has one thread, and forks the coordinator
// afterwards.
class Crew {
 public:
  Crew(const std::string& store, const ModelStep& step, int parts,
       const CrewFault& fault = {});
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // In the coordinator, once: has all parts built, and returns what each rank
  // sent. kAborted where one died or failed, which then is said. Must ignore
  // SIGPIPE.
  absl::StatusOr<std::vector<std::string>> Gather(
      const std::string& plan) const;
  int size() const { return static_cast<int>(ranks_.size()); }

  // In the parent, after the coordinator: how many were killed by the fault; -1
  // where one ended neither so nor by itself.
  int Finish();

 private:
  struct Rank {
    pid_t pid = 0;
    int plan = -1;  // To the rank.
    int done = -1;  // From it.
    void Close() const;
  };

  std::vector<Rank> ranks_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TRIAL_CREW_H_
