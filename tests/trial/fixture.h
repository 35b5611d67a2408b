// SPDX-License-Identifier: Apache-2.0

// The fixture of the tests of the save protocol's rules.

#ifndef CKPTREE_TESTS_TRIAL_FIXTURE_H_
#define CKPTREE_TESTS_TRIAL_FIXTURE_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/fs.h"
#include "tests/fault/runner.h"
#include "tests/model/state.h"

namespace ckptree::testing {

inline constexpr absl::Duration kTrialWait = absl::Seconds(30);

ModelState::Content Share(ModelStep step);

// In a child: what is false is said to the parent and ends the child.
void Must(bool condition, std::string_view what, const TrialPipe& pipe);
void Must(const absl::Status& status, std::string_view what,
          const TrialPipe& pipe);

// Begins a save and does not wait for it.
SaveHandle BeginModel(Store& store, std::int64_t step,
                      const ModelStep& content);

// Stores are opened in children only.
class TrialRulesTest : public ::testing::Test {
 protected:
  using Body = std::function<void(Store&, FaultFs&, const TrialPipe&)>;

  TrialRulesTest();

  // A child with a store over a FaultFs, new where `create`. It ends without
  // closing the store, as if killed, unless `body` closes it.
  TrialResult InStore(bool create, const Body& body, int threads = 2);

  // The child ended by itself and every Must held.
  void ExpectRan(const TrialResult& result);
  // The store is one of `allowed`, whole and usable.
  void ExpectStore(const std::vector<ModelState>& allowed,
                   std::string_view what = "");

  TrialDirectory directory_;
  SharedFaultCounts counts_;
  std::vector<ModelState::Content> small_;
  std::vector<ModelState::Content> large_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TRIAL_FIXTURE_H_
