// SPDX-License-Identifier: Apache-2.0

#include "tests/trial/scenario.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/fault/runner.h"
#include "tests/model/store.h"

namespace ckptree::testing {
namespace {

ModelState::Content Share(ModelStep step) {
  return std::make_shared<const ModelStep>(std::move(step));
}

// The contents that all scenarios save, in the order of their making.
struct Contents {
  Contents() {
    FaultRandom random(20);
    ModelStep step = TinyStep(random);
    tiny = Share(step);
    changed = Share(step = Changed(step, random, false));
    // 1.1 MiB and a little: beyond what rides in a batch.
    ModelStep arrays = ArrayStep(random, 1, 1100000);
    arrays.leaves["params/l1"] =
        ArrayStep(random, 1, 50000).leaves.at("params/l0");
    arrays.leaves.merge(step.leaves);
    large = Share(arrays);
    // One byte of one of them: a small save on a large base.
    arrays.leaves.at("params/l1").bytes[77] ^= 1;
    nudged = Share(arrays);
    // One of them anew: segments, and references to the base.
    ModelStep other = ArrayStep(random, 1, 1100000);
    arrays.leaves.at("params/l0") = other.leaves.at("params/l0");
    half_new = Share(arrays);
    ModelStep floats = PairStep(random);
    floats.leaves.merge(ModelStep(*tiny).leaves);
    pair = Share(floats);
    floats.leaves.merge(ArrayStep(random, 1, 50000).leaves);
    ModelStep next = PairStep(random);
    for (const char* name : {"params/copy", "params/master"}) {
      floats.leaves.at(name) = next.leaves.at(name);
    }
    other_pair = Share(floats);
    // A copy that its master has left.
    floats.leaves.erase("params/master");
    lone_copy = Share(floats);
  }
  ModelState::Content tiny, changed, large, nudged, half_new;
  ModelState::Content pair, other_pair, lone_copy;
};

const Contents& AllContents() {
  static const Contents* contents = new Contents();
  return *contents;
}

void Nothing(ModelState&) {}

std::vector<TrialAction> Base() {
  const Contents& c = AllContents();
  return {CreateAction(),          SaveAction(10, c.tiny),
          SaveAction(20, c.large), SaveAction(30, c.nudged),
          TagAction("good", 20),   PinAction(10)};
}

TrialScenario OnOpenStore(std::string name, std::vector<TrialAction> body) {
  body.push_back(CloseAction());
  return {.name = std::move(name),
          .base = Base(),
          .setup = {OpenAction()},
          .body = std::move(body)};
}

// Says ACK or ERR for each; false where it must stop.
bool RunAction(const TrialAction& action, TrialContext& context, bool retry,
               const TrialPipe& pipe) {
  for (int attempt = 0; attempt < (retry ? 2 : 1); ++attempt) {
    absl::Status status = action.run(context);
    if (status.ok()) {
      pipe.Say("ACK " + action.name);
      return true;
    }
    pipe.Say(absl::StrFormat("ERR %s: %s",
                             absl::IsUnknown(status) ? "unknown" : "known",
                             std::string(status.ToString())));
  }
  return false;
}

}  // namespace

TrialAction CreateAction(Coding coding) {
  return {"create",
          [coding](TrialContext& context) {
            absl::StatusOr<Store> store = CreateStore(
                context.directory, context.threads, context.fs, coding);
            if (store.ok()) context.store.emplace(*std::move(store));
            return store.status();
          },
          Nothing};
}

TrialAction OpenAction() {
  return {"open",
          [](TrialContext& context) {
            absl::StatusOr<Store> store =
                OpenStore(context.directory, context.threads, context.fs);
            if (store.ok()) context.store.emplace(*std::move(store));
            return store.status();
          },
          Nothing};
}

TrialAction CloseAction() {
  return {"close",
          [](TrialContext& context) {
            if (!context.store) return absl::OkStatus();
            absl::Status status = context.store->Close();
            context.store.reset();
            return status;
          },
          Nothing};
}

TrialAction SaveAction(std::int64_t step, ModelState::Content content,
                       bool overwrite) {
  return {absl::StrFormat("%s %d", overwrite ? "overwrite" : "save", step),
          [=](TrialContext& context) {
            return SaveStep(*context.store, step, *content, overwrite);
          },
          [=](ModelState& state) { state.Save(step, content); }};
}

TrialAction DeleteAction(std::int64_t step) {
  return {absl::StrFormat("delete %d", step),
          [=](TrialContext& context) {
            return context.store->Delete(step, {.tagged = true});
          },
          [=](ModelState& state) { state.Delete(step); }};
}

TrialAction TagAction(std::string name, std::int64_t step) {
  return {"tag " + name,
          [=](TrialContext& context) {
            return context.store->Tag(name, step, {.move = true});
          },
          [=](ModelState& state) { state.tags[name] = step; }};
}

TrialAction UntagAction(std::string name) {
  return {"untag " + name,
          [=](TrialContext& context) { return context.store->Untag(name); },
          [=](ModelState& state) { state.tags.erase(name); }};
}

TrialAction PinAction(std::int64_t step) {
  return {absl::StrFormat("pin %d", step),
          [=](TrialContext& context) { return context.store->Pin(step); },
          [=](ModelState& state) { state.pins.insert(step); }};
}

TrialAction UnpinAction(std::int64_t step) {
  return {absl::StrFormat("unpin %d", step),
          [=](TrialContext& context) { return context.store->Unpin(step); },
          [=](ModelState& state) { state.pins.erase(step); }};
}

TrialAction CollectAction() {
  return {"collect",
          [](TrialContext& context) {
            CollectOptions options;
            options.min_dead_fraction = 0;
            return context.store->Collect(options).status();
          },
          Nothing};
}

TrialAction PackAction() {
  return {"pack",
          [](TrialContext& context) {
            CollectOptions options;
            options.min_dead_fraction = 0;
            options.pack = true;
            return context.store->Collect(options).status();
          },
          Nothing};
}

TrialAction PolicyAction(std::string policy) {
  return {"policy " + policy,
          [=](TrialContext& context) {
            return context.store->SetPolicy(ParsePreservation(policy).value());
          },
          Nothing};
}

TrialAction JudgedSaveAction(std::int64_t step, ModelState::Content content,
                             std::vector<std::int64_t> victims,
                             bool overwrite) {
  TrialAction action = SaveAction(step, content, overwrite);
  action.apply = [=](ModelState& state) {
    state.Save(step, content);
    for (const std::int64_t victim : victims) state.Delete(victim);
  };
  return action;
}

std::vector<TrialScenario> AllScenarios() {
  const Contents& c = AllContents();
  std::vector<TrialScenario> all;
  all.push_back(
      {.name = "create",
       .body = {CreateAction(), SaveAction(1, c.tiny), CloseAction()}});
  all.push_back(OnOpenStore("save_small", {SaveAction(40, c.changed)}));
  all.push_back(OnOpenStore("save_large", {SaveAction(40, c.large)}));
  all.back().base = {CreateAction(), SaveAction(10, c.tiny)};
  all.push_back(OnOpenStore("save_incremental", {SaveAction(40, c.half_new)}));
  // Coded for the first time, with a copy and its master in one block.
  all.push_back(
      OnOpenStore("save_coded",
                  {SaveAction(40, c.pair), SaveAction(50, c.tiny),
                   SaveAction(60, c.other_pair), SaveAction(70, c.lone_copy)}));
  all.back().base = {CreateAction(), SaveAction(10, c.tiny)};
  all.push_back(OnOpenStore("overwrite", {SaveAction(30, c.half_new, true),
                                          SaveAction(30, c.changed, true)}));
  all.push_back(OnOpenStore("delete", {DeleteAction(30), DeleteAction(20),
                                       SaveAction(30, c.nudged)}));
  all.push_back(OnOpenStore("tag", {TagAction("new", 10), TagAction("good", 30),
                                    UntagAction("new")}));
  all.push_back(OnOpenStore("pin", {PinAction(30), UnpinAction(10)}));
  // Whole files go, others are written again, blocks of small saves go, the tip
  // moves; a save finds what is left.
  all.push_back(
      OnOpenStore("collect", {CollectAction(), DeleteAction(40),
                              CollectAction(), SaveAction(50, c.half_new)}));
  all.back().base = {CreateAction(),           SaveAction(10, c.tiny),
                     SaveAction(20, c.large),  SaveAction(30, c.half_new),
                     SaveAction(40, c.nudged), SaveAction(35, c.changed),
                     DeleteAction(20),         DeleteAction(35),
                     DeleteAction(10)};
  // What was saved plain is coded, and what is dead beside it goes.
  all.push_back(OnOpenStore("pack", {PackAction(), DeleteAction(10),
                                     PackAction(), SaveAction(50, c.pair)}));
  all.back().base = {CreateAction(Coding::kAuto), SaveAction(10, c.pair),
                     SaveAction(20, c.lone_copy), SaveAction(30, c.tiny)};
  // 10 is pinned and 20 tagged; then the step itself is not kept, but for being
  // the newest; at last one takes the place of another.
  all.push_back(OnOpenStore(
      "policy",
      {PolicyAction("latest(1)"), JudgedSaveAction(40, c.half_new, {30}),
       JudgedSaveAction(50, c.nudged, {40}), PolicyAction("every(50)"),
       JudgedSaveAction(60, c.changed, {}), PolicyAction("every(30)"),
       JudgedSaveAction(60, c.tiny, {50}, true)}));
  all.push_back(
      {.name = "open", .base = Base(), .body = {OpenAction(), CloseAction()}});
  all.push_back({.name = "open_after_kill",
                 .base = Base(),
                 .base_dies = true,
                 .body = {OpenAction(), CloseAction()}});
  all.push_back({.name = "open_copy",
                 .base = Base(),
                 .base_dies = true,
                 .copied = true,
                 .body = {OpenAction(), CloseAction()}});
  all.push_back({.name = "reopen",
                 .base = Base(),
                 .setup = {OpenAction()},
                 .body = {SaveAction(40, c.changed), CloseAction(),
                          OpenAction(), SaveAction(50, c.nudged)}});
  return all;
}

TrialScenario LongScenario() {
  const Contents& c = AllContents();
  return {.name = "long",
          .base = Base(),
          .body = {OpenAction(), SaveAction(40, c.changed),
                   SaveAction(50, c.half_new), DeleteAction(20),
                   SaveAction(30, c.tiny, true), TagAction("x", 50),
                   CloseAction(), OpenAction(), SaveAction(15, c.large),
                   PinAction(15), SaveAction(60, c.nudged), DeleteAction(60),
                   CollectAction(), UnpinAction(15), CloseAction()}};
}

TrialBench::TrialBench(TrialScenario scenario)
    : scenario_(std::move(scenario)) {
  for (const TrialAction& action : scenario_.base) action.apply(base_);
  ModelState state = base_;
  for (const TrialAction& action : scenario_.setup) action.apply(state);
  states_.push_back(state);
  for (const TrialAction& action : scenario_.body) {
    action.apply(state);
    states_.push_back(state);
  }
  if (scenario_.creates()) return;
  const TrialResult made = RunChild([this](const TrialPipe& pipe) {
    TrialContext context{
        .directory = directory_.store(), .fs = nullptr, .store = std::nullopt};
    for (const TrialAction& action : scenario_.base) {
      if (!RunAction(action, context, false, pipe)) _exit(1);
    }
    if (scenario_.base_dies) _exit(0);
    if (!RunAction(CloseAction(), context, false, pipe)) _exit(1);
  });
  if (made.broken()) {
    std::cerr << "base of " << scenario_.name << ": " << made.Text() << "\n";
    std::abort();
  }
  CopyStore(directory_.store(), directory_.path() + "/base");
}

void TrialBench::Restore() const {
  namespace fs = std::filesystem;
  fs::remove_all(directory_.scratch());
  fs::create_directory(directory_.scratch());
  if (scenario_.creates() || scenario_.copied) {
    fs::remove_all(directory_.store());
  }
  if (scenario_.creates()) return;
  // The directory itself stays: HEAD knows it by its inode.
  fs::create_directories(directory_.store());
  for (const fs::directory_entry& entry :
       fs::directory_iterator(directory_.store())) {
    fs::remove_all(entry.path());
  }
  fs::copy(directory_.path() + "/base", directory_.store(),
           fs::copy_options::recursive);
}

std::uint64_t TrialBench::Calls() {
  const TrialOutcome outcome = Run({}, /*threads=*/1);
  if (!outcome.wrongs.empty()) std::abort();
  return counts_->calls;
}

TrialOutcome TrialBench::Run(const std::vector<FaultPlan>& plans, int threads,
                             bool cut_after) {
  Restore();
  counts_->Reset();
  bool follows = cut_after;
  bool fails = false;
  for (const FaultPlan& plan : plans) {
    follows |= plan.mode == FaultPlan::Mode::kPowerCut;
    fails |= plan.mode == FaultPlan::Mode::kFail;
  }
  const TrialResult worker = RunChild([&](const TrialPipe& pipe) {
    TrialContext context{
        .directory = directory_.store(),
        .threads = threads,
        .fs = std::make_shared<FaultFs>(
            follows ? directory_.scratch() : std::string(), counts_.get()),
        .store = std::nullopt};
    for (const TrialAction& action : scenario_.setup) {
      if (!action.run(context).ok()) _exit(7);
    }
    context.fs->Arm(plans);
    for (const TrialAction& action : scenario_.body) {
      if (RunAction(action, context, fails, pipe)) continue;
      if (cut_after) context.fs->CutPower(plans[0].seed);
      break;
    }
    if (cut_after && counts_->fired > 0) {
      context.fs->CutPower(plans[0].seed);
    }
    context.store.reset();
  });

  TrialOutcome outcome;
  outcome.fired = counts_->fired > 0;
  outcome.fired_at = counts_->FiredAt();
  outcome.died = worker.killed;
  if (worker.broken()) outcome.wrongs.push_back("worker: " + worker.Text());
  if (worker.killed && !outcome.fired) {
    outcome.wrongs.push_back("worker: killed without a fault");
  }
  const std::size_t done = worker.Said("ACK").size();
  for (const std::string& error : worker.Said("ERR")) {
    outcome.saw_error = true;
    outcome.unknown |= error.starts_with("unknown");
  }
  // A step that was in the middle may be there or not; one that failed with a
  // known outcome is not.
  std::vector<ModelState> allowed = {states_[done]};
  const bool in_flight = worker.killed && !outcome.saw_error;
  if (done + 1 < states_.size() && (in_flight || outcome.unknown)) {
    allowed.push_back(states_[done + 1]);
  }
  const bool collects =
      scenario_.name == "collect" || plans.empty() || plans[0].at % 4 == 1;
  const TrialResult judged = RunChild([&](const TrialPipe& pipe) {
    JudgeStore(directory_.store(), allowed, scenario_.creates() && done == 0,
               pipe, collects);
  });
  for (std::string& wrong : Wrongs(judged)) {
    outcome.wrongs.push_back(std::move(wrong));
  }
  if (follows) outcome.torn_manifest = ForgiveTornManifest(&outcome.wrongs) > 0;
  if (!outcome.wrongs.empty()) {
    std::string said;
    for (const std::string& line : worker.lines) {
      absl::StrAppend(&said, said.empty() ? "" : " | ", line);
    }
    outcome.wrongs.push_back("worker said: " + said);
  }
  return outcome;
}

}  // namespace ckptree::testing
