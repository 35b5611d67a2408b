// SPDX-License-Identifier: Apache-2.0

#include "tests/model/store.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "tests/testutil/store_on.h"

namespace ckptree::testing {
namespace {

StoreOptions Options(int threads, bool read_only,
                     Coding coding = Coding::kPlanes) {
  StoreOptions options = TrialOptions(threads);
  options.read_only = read_only;
  options.coding = coding;
  return options;
}

// The saves that must work on any store that opened.
std::optional<std::string> NextSaves(Store& store, ModelState* state) {
  FaultRandom random(4711);
  const std::int64_t step =
      state->steps.empty() ? 1 : state->steps.rbegin()->first + 1;
  auto small = std::make_shared<ModelStep>(TinyStep(random));
  auto large = std::make_shared<ModelStep>(Changed(*small, random, true));
  for (const ModelState::Content& content :
       {ModelState::Content(small), ModelState::Content(large)}) {
    const std::int64_t at = step + (content == large ? 1 : 0);
    absl::Status status = SaveStep(store, at, *content);
    if (!status.ok()) return std::string(status.ToString());
    state->Save(at, content);
  }
  return StateDifference(store, *state);
}

// Collects everything; then the state is the same, and what is stored is what
// is referred to.
std::optional<std::string> CollectedDifference(Store& store,
                                               const ModelState& state) {
  if (auto wrong = CollectAll(store)) return wrong;
  if (auto wrong = StateDifference(store, state)) return wrong;
  return DeepFindings(store, /*and_leaks=*/true);
}

}  // namespace

StoreOptions TrialOptions(int threads) {
  StoreOptions options;
  // Trials hold several at once, one waiting for the next.
  options.max_saves_in_flight = 8;
  options.threads = threads;
  options.collect = false;  // The calls of a trial are always the same.
  // Of large arrays some are worth it, and others are not.
  options.coding = Coding::kPlanes;
  options.staging_bytes = std::size_t{64} << 20;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  return options;
}

absl::StatusOr<Store> CreateStore(const std::string& directory, int threads,
                                  std::shared_ptr<void> file_system,
                                  Coding coding) {
  return CreateStoreOn(std::move(file_system), directory,
                       Options(threads, false, coding));
}

absl::StatusOr<Store> OpenStore(const std::string& directory, int threads,
                                std::shared_ptr<void> file_system,
                                bool read_only) {
  return OpenStoreOn(std::move(file_system), directory,
                     Options(threads, read_only));
}

absl::Status SaveStep(Store& store, std::int64_t step, const ModelStep& content,
                      bool overwrite) {
  StepBuilder builder = store.Begin(
      step % kBranchSteps, {.overwrite = overwrite,
                            .tagged = overwrite,
                            .branch = BranchName(step / kBranchSteps)});
  PutAll(content, builder);
  SaveHandle handle = std::move(builder).Commit();
  return handle.WaitCommitted(absl::Seconds(30));
}

bool StagingIsEmpty(const std::string& directory, StoreIs state) {
  std::error_code error;
  const std::filesystem::path staging =
      std::filesystem::path(directory) / "staging";
  if (!std::filesystem::exists(staging, error)) return true;
  for (const auto& entry : std::filesystem::directory_iterator(staging)) {
    if (state == StoreIs::kClosed ||
        entry.path().filename() != "flush-room.tmp") {
      return false;
    }
  }
  return true;
}

std::optional<std::size_t> JudgeOpened(const Store& store,
                                       const std::vector<ModelState>& allowed,
                                       const TrialPipe& pipe) {
  std::string why;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (auto other = CatalogDifference(store, allowed[i])) {
      why += (why.empty() ? "LOST " : "; or ") + *other;
    } else if (auto torn = StateDifference(store, allowed[i])) {
      why = "TORN " + *torn;
    } else {
      pipe.Say(absl::StrFormat("STATE %d", i));
      return i;
    }
  }
  pipe.Say(why);
  return std::nullopt;
}

void JudgeState(const std::string& directory,
                const std::vector<ModelState>& allowed, const TrialPipe& pipe) {
  absl::StatusOr<Store> store = OpenStore(directory, 1);
  if (!store.ok()) {
    pipe.Say("UNOPENABLE " + std::string(store.status().ToString()));
    return;
  }
  JudgeOpened(*store, allowed, pipe);
}

void JudgeStore(const std::string& directory,
                const std::vector<ModelState>& allowed, bool may_be_absent,
                const TrialPipe& pipe, bool collects) {
  absl::StatusOr<Store> store = OpenStore(directory, 1);
  if (may_be_absent && (absl::IsNotFound(store.status()) ||
                        absl::IsFailedPrecondition(store.status()))) {
    store = CreateStore(directory, 1);
  }
  if (!store.ok()) {
    pipe.Say("UNOPENABLE " + std::string(store.status().ToString()));
    return;
  }
  if (!StagingIsEmpty(directory, StoreIs::kOpen)) {
    pipe.Say("STAGING is not empty after open");
  }
  const std::optional<std::size_t> fits = JudgeOpened(*store, allowed, pipe);
  if (!fits) return;
  if (auto findings = DeepFindings(*store)) pipe.Say("FINDING " + *findings);
  ModelState state = allowed[*fits];
  // The saves of the judge are to stay.
  if (absl::Status status = store->SetPolicy(PreserveAll{}); !status.ok()) {
    pipe.Say("NEXT SetPolicy: " + std::string(status.ToString()));
  }
  if (auto wrong = NextSaves(*store, &state)) {
    pipe.Say("NEXT " + *wrong);
  } else if (collects) {
    if (auto kept = CollectedDifference(*store, state)) {
      pipe.Say("COLLECT " + *kept);
    }
  }
  if (absl::Status status = store->Close(); !status.ok()) {
    pipe.Say("NEXT Close: " + std::string(status.ToString()));
  }
  if (!StagingIsEmpty(directory, StoreIs::kClosed)) {
    pipe.Say("STAGING is not empty after saves");
  }
}

std::vector<std::string> Wrongs(const TrialResult& judged) {
  std::vector<std::string> wrongs;
  for (const std::string& line : judged.lines) {
    if (!line.starts_with("STATE ")) wrongs.push_back(line);
  }
  if (judged.broken() || judged.killed) {
    wrongs.push_back("the judge: " + judged.Text());
  }
  if (wrongs.empty() && judged.Said("STATE").empty()) {
    wrongs.push_back("the judge said nothing");
  }
  return wrongs;
}

int ForgiveTornManifest(std::vector<std::string>* wrongs) {
  return static_cast<int>(std::erase_if(*wrongs, [](const std::string& wrong) {
    const std::string_view text = wrong;
    return (text.starts_with("FINDING the index is damaged: opening ") ||
            text.starts_with("COLLECT the index is damaged: opening ")) &&
           text.find("Corruption: ") != text.npos &&
           text.find("/db/MANIFEST-") != text.npos &&
           text.find(" | ") == text.npos;
  }));
}

}  // namespace ckptree::testing
