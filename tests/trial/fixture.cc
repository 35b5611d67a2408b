// SPDX-License-Identifier: Apache-2.0

#include "tests/trial/fixture.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/model/store.h"

namespace ckptree::testing {

namespace fs = std::filesystem;

ModelState::Content Share(ModelStep step) {
  return std::make_shared<const ModelStep>(std::move(step));
}

void Must(bool condition, std::string_view what, const TrialPipe& pipe) {
  if (condition) return;
  pipe.Say("WRONG " + std::string(what));
  _exit(3);
}

void Must(const absl::Status& status, std::string_view what,
          const TrialPipe& pipe) {
  Must(status.ok(), std::string(what) + ": " + std::string(status.ToString()),
       pipe);
}

SaveHandle BeginModel(Store& store, std::int64_t step,
                      const ModelStep& content) {
  StepBuilder builder = store.Begin(step);
  PutAll(content, builder);
  return std::move(builder).Submit();
}

TrialRulesTest::TrialRulesTest() {
  FaultRandom random(3);
  ModelStep step = TinyStep(random);
  for (int i = 0; i < 8; ++i) {
    small_.push_back(Share(step = Changed(step, random, false)));
  }
  step = ArrayStep(random, 2, 1100000);
  for (int i = 0; i < 4; ++i) {
    step.leaves.at("params/l0").bytes[static_cast<std::size_t>(i)] ^= 1;
    step.leaves.at("params/l1") =
        ArrayStep(random, 2, 1100000).leaves.at("params/l1");
    large_.push_back(Share(step));
  }
}

TrialResult TrialRulesTest::InStore(bool create, const Body& body,
                                    int threads) {
  return RunChild([&](const TrialPipe& pipe) {
    auto file_system =
        std::make_shared<FaultFs>(directory_.scratch(), counts_.get());
    absl::StatusOr<Store> store =
        create ? CreateStore(directory_.store(), threads, file_system)
               : OpenStore(directory_.store(), threads, file_system);
    Must(store.status(), "open", pipe);
    body(*store, *file_system, pipe);
    _exit(0);
  });
}

void TrialRulesTest::ExpectRan(const TrialResult& result) {
  EXPECT_FALSE(result.broken()) << result.Text();
  EXPECT_EQ(result.Said("WRONG"), std::vector<std::string>());
}

void TrialRulesTest::ExpectStore(const std::vector<ModelState>& allowed,
                                 std::string_view what) {
  const TrialResult judged = RunChild([&](const TrialPipe& pipe) {
    JudgeStore(directory_.store(), allowed, false, pipe);
  });
  EXPECT_EQ(Wrongs(judged), std::vector<std::string>()) << what;
}

}  // namespace ckptree::testing
