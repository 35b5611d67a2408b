// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/kinds.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/engine/store_engine.h"
#include "tests/fault/directory.h"
#include "tests/fault/runner.h"
#include "tests/model/store.h"

namespace ckptree::testing {
namespace {

using LeafKind = ModelLeaf::Kind;

constexpr std::int64_t kChunk = 64 << 10;
constexpr int kManyLeaves = 500;
constexpr std::int64_t kManyChunk = 64;

std::string RandomBytes(FaultRandom& random, std::size_t size) {
  std::string bytes(size, '\0');
  random.Fill(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

ModelLeaf Array(FaultRandom& random, std::int64_t size,
                std::int64_t chunk = 0) {
  ModelLeaf leaf;
  leaf.dtype = DType::kUint8;
  leaf.shape = {size};
  if (chunk > 0) leaf.chunk_shape = {chunk};
  leaf.bytes = RandomBytes(random, static_cast<std::size_t>(size));
  return leaf;
}

template <typename T>
ModelLeaf Value(LeafKind kind, T value) {
  ModelLeaf leaf;
  leaf.kind = kind;
  leaf.bytes.resize(sizeof(T));
  std::memcpy(leaf.bytes.data(), &value, sizeof(T));
  return leaf;
}

ModelLeaf Text(LeafKind kind, std::string text) {
  ModelLeaf leaf;
  leaf.kind = kind;
  leaf.bytes = std::move(text);
  return leaf;
}

void PutValues(ModelStep* step, FaultRandom& random) {
  const std::uint64_t n = random.Below(1000000);
  step->leaves["opt/count"] =
      Value(LeafKind::kInt, static_cast<std::int64_t>(random.Next()));
  step->leaves["opt/rate"] =
      Value(LeafKind::kFloat, static_cast<double>(n) / 7);
  step->leaves["opt/warm"] = Value(LeafKind::kBool, random.OneIn(2));
  step->leaves["state/name"] =
      Text(LeafKind::kStr, absl::StrFormat("run %d", n));
  step->leaves["state/config"] =
      Text(LeafKind::kJson, absl::StrFormat("{\"depth\":%d}", n));
  step->leaves["state/key"] = Text(LeafKind::kBytes, RandomBytes(random, 32));
  step->metrics["loss"] = static_cast<double>(n) / 16;
  step->note = random.OneIn(2) ? absl::StrFormat("note %d", n) : "";
  step->custom = random.OneIn(2) ? absl::StrFormat("{\"at\":%d}", n) : "";
}

// Does to a store and to the model what it is told; the first failure ends the
// work on the store.
class Maker {
 public:
  Maker(std::uint64_t seed, std::string directory, std::string earlier)
      : random_(seed),
        directory_(std::move(directory)),
        earlier_(std::move(earlier)) {
    if (!directory_.empty()) store_ = CreateStore(directory_, 1);
    Check(store_.status());
  }

  FaultRandom& random() { return random_; }
  const ModelStep& last() const { return last_; }
  const Acknowledged& known() const { return known_; }
  const absl::Status& status() const { return status_; }

  void Save(std::int64_t key, ModelStep step, bool overwrite = false) {
    last_ = std::move(step);
    known_.state.Save(key, std::make_shared<const ModelStep>(last_));
    Do([&] { return SaveStep(*store_, key, last_, overwrite); });
  }
  void Next(std::int64_t key) { Save(key, NextStep(last_, random_)); }
  void Tag(const std::string& name, std::int64_t key) {
    known_.state.tags[name] = key;
    Do([&] { return store_->Tag(name, SelectorOf(key)); });
  }
  void Pin(std::int64_t key) {
    known_.state.pins.insert(key);
    Do([&] { return store_->Pin(SelectorOf(key)); });
  }
  void Delete(std::int64_t key) {
    known_.state.Delete(key);
    Do([&] { return store_->Delete(SelectorOf(key)); });
  }
  void Fork(std::int64_t key, std::int64_t branch) {
    known_.state.branches.insert(branch);
    known_.origins[branch] = key;
    Do([&] { return store_->Fork(SelectorOf(key), BranchName(branch)); });
  }
  void DropBranch(std::int64_t branch) {
    known_.state.DropBranch(branch);
    known_.origins.erase(branch);
    Do([&] { return store_->DropBranch(BranchName(branch)); });
  }
  void Policy(const std::string& text, std::int64_t branch = 0) {
    const Preservation policy = ParsePreservation(text).value();
    known_.policies[branch] = ckptree::Text(policy);
    Do([&] { return store_->SetPolicy(policy, BranchName(branch)); });
  }
  void Metadata(const std::string& json, std::int64_t branch = 0) {
    known_.metadata[branch] = json;
    Do([&] { return store_->SetMetadata(json, BranchName(branch)); });
  }
  void Collect() {
    Do([&] {
      CollectOptions options;
      options.min_dead_fraction = 0;
      return store_->Collect(options).status();
    });
  }
  void Close() {
    Do([&] { return store_->Close(); });
  }
  void Reopen() {
    Close();
    Do([&] {
      store_ = OpenStore(directory_, 1);
      return store_.status();
    });
  }
  // The files as they are now are the earlier ones.
  void Earlier() {
    Do([&] {
      CopyStore(directory_, earlier_);
      return absl::OkStatus();
    });
  }
  void Do(const std::function<absl::Status()>& action) {
    if (!directory_.empty() && status_.ok()) Check(action());
  }

 private:
  void Check(const absl::Status& status) {
    if (!directory_.empty()) status_.Update(status);
  }

  FaultRandom random_;
  const std::string directory_;
  const std::string earlier_;
  absl::StatusOr<Store> store_ = absl::UnavailableError("no store");
  absl::Status status_;
  ModelStep last_;
  Acknowledged known_;
};

void AddLarge(ModelStep* step, Maker& maker) {
  step->leaves["large/w"] = Array(maker.random(), 18 * kChunk, kChunk);
}

// Their records are large enough to be a segment of their own.
void AddMany(ModelStep* step, Maker& maker) {
  for (int i = 0; i < kManyLeaves; ++i) {
    step->leaves[absl::StrFormat("many/w%03d", i)] =
        Array(maker.random(), 1024, kManyChunk);
  }
}

void MakeSmall(Maker& maker) {
  maker.Save(1, SmallStep(maker.random()));
  maker.Metadata("{\"run\":1}");
  maker.Policy("latest(50)");
  maker.Next(2);
  maker.Tag("good", 1);
  maker.Reopen();
  maker.Next(3);
  maker.Pin(2);
  maker.Earlier();
  maker.Next(4);
  maker.Close();
}

void MakeLarge(Maker& maker) {
  ModelStep step = SmallStep(maker.random());
  AddLarge(&step, maker);
  AddMany(&step, maker);
  maker.Save(10, step);
  maker.Next(20);
  maker.Reopen();
  maker.Earlier();
  step = NextStep(maker.last(), maker.random());
  std::erase_if(step.leaves, [](const auto& leaf) {
    return leaf.first.starts_with("many/");
  });
  maker.Save(30, step);
  maker.Tag("best", 20);
  maker.Close();
}

void MakeMixed(Maker& maker) {
  maker.Save(1, SmallStep(maker.random()));
  maker.Next(2);
  ModelStep large = NextStep(maker.last(), maker.random());
  AddLarge(&large, maker);
  maker.Save(3, large);
  maker.Next(4);
  maker.Earlier();
  maker.Reopen();
  maker.Save(2, NextStep(SmallStep(maker.random()), maker.random()), true);
  maker.Delete(1);
  maker.Pin(3);
  maker.Next(5);
  maker.Close();
}

void MakeForks(Maker& maker) {
  maker.Save(1, SmallStep(maker.random()));
  maker.Next(2);
  maker.Next(3);
  maker.Fork(2, 1);
  maker.Next(kBranchSteps + 3);
  maker.Policy("latest(9)", 1);
  maker.Metadata("{\"fork\":true}", 1);
  maker.Fork(kBranchSteps + 3, 2);
  maker.Earlier();
  maker.Fork(1, 3);
  maker.Next(3 * kBranchSteps + 7);
  maker.DropBranch(3);
  maker.Tag("forked", kBranchSteps + 3);
  maker.Tag("main", 3);
  maker.Pin(2);
  maker.Reopen();
  maker.Next(2 * kBranchSteps + 4);
  maker.Next(4);
  maker.Close();
}

void MakeCollected(Maker& maker) {
  ModelStep large = SmallStep(maker.random());
  AddLarge(&large, maker);
  maker.Save(1, large);
  for (int step = 2; step < 8; ++step) maker.Next(step);
  maker.Earlier();
  maker.Delete(1);
  maker.Delete(3);
  maker.Delete(4);
  maker.Collect();
  maker.Next(8);
  maker.Delete(6);
  maker.Collect();
  maker.Next(9);
  maker.Close();
}

void MakeKilled(Maker& maker) {
  maker.Save(1, SmallStep(maker.random(), 2));
  for (int step = 2; step < 32; ++step) {
    maker.Next(step);
    if (step == 10) maker.Tag("ten", 10);
    if (step == 16) maker.Earlier();
    if (step == 20) maker.Delete(5);
  }
}

void MakeClosed(Maker& maker) {
  maker.Save(1, SmallStep(maker.random()));
  ModelStep large = NextStep(maker.last(), maker.random());
  AddLarge(&large, maker);
  maker.Earlier();
  maker.Save(2, large);
  maker.Next(3);
  maker.Tag("good", 2);
  maker.Close();
}

// A process that reads, waits at `go` and says at `done` that it has read.
void ReadBeside(const std::string& directory, int go, int done) {
  std::optional<absl::StatusOr<Store>> store;
  char c = 0;
  while (read(go, &c, 1) == 1) {
    bool good = true;
    if (!store) store = OpenStore(directory, 1, nullptr, /*read_only=*/true);
    good = store->ok() && (*store)->Refresh().ok();
    good = good && (*store)->OpenStep(Latest()).ok();
    c = good ? 'y' : 'n';
    if (write(done, &c, 1) != 1) break;
  }
  // Killed, as its writer is.
  _exit(0);
}

// The reader is forked before this process has threads.
struct Follower {
  Follower() = default;
  explicit Follower(const std::string& directory) {
    int from[2];
    int to[2];
    if (pipe(to) != 0 || pipe(from) != 0) std::abort();
    pid = fork();
    if (pid == 0) {
      close(to[1]);
      close(from[0]);
      ReadBeside(directory, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    go = to[1];
    done = from[0];
  }
  absl::Status Read() const {
    char c = 'g';
    if (write(go, &c, 1) != 1 || read(done, &c, 1) != 1 || c != 'y') {
      return absl::InternalError("the reader beside it failed");
    }
    return absl::OkStatus();
  }
  pid_t pid = 0;
  int go = -1;
  int done = -1;
};

void MakeFollowed(Maker& maker, const Follower& follower) {
  maker.Save(1, SmallStep(maker.random()));
  maker.Next(2);
  maker.Reopen();
  maker.Do([&] { return follower.Read(); });
  maker.Next(3);
  maker.Do([&] { return follower.Read(); });
  maker.Earlier();
  ModelStep large = NextStep(maker.last(), maker.random());
  AddLarge(&large, maker);
  maker.Save(4, large);
  maker.Next(5);
  maker.Do([&] { return follower.Read(); });
}

using Recipe = void (*)(Maker&);

const std::vector<std::pair<std::string, Recipe>>& Recipes() {
  static const std::vector<std::pair<std::string, Recipe>> recipes = {
      {"small", MakeSmall},         {"large", MakeLarge},
      {"mixed", MakeMixed},         {"forks", MakeForks},
      {"collected", MakeCollected}, {"killed", MakeKilled},
      {"closed", MakeClosed},       {"followed", nullptr}};
  return recipes;
}

Acknowledged Make(const std::string& kind, std::uint64_t seed,
                  const std::string& directory, const std::string& earlier,
                  absl::Status* status) {
  std::optional<Follower> follower;
  if (!directory.empty() && kind == "followed") follower.emplace(directory);
  // Never closed by its destructor: kinds that are killed end with _exit.
  auto* maker = new Maker(seed, directory, earlier);
  // Of which the leak sanitizer is told so.
  static auto& kept = *new std::vector<const Maker*>;
  kept.push_back(maker);
  for (const auto& [name, recipe] : Recipes()) {
    if (name != kind) continue;
    if (recipe != nullptr) {
      recipe(*maker);
    } else {
      MakeFollowed(*maker, follower ? *follower : Follower{});
    }
  }
  if (follower) kill(follower->pid, SIGKILL);
  *status = maker->status();
  return maker->known();
}

}  // namespace

ModelStep SmallStep(FaultRandom& random, int arrays) {
  ModelStep step;
  for (int i = 0; i < arrays; ++i) {
    step.leaves[absl::StrFormat("params/w%d", i)] = Array(
        random, static_cast<std::int64_t>(kPayloadBytes) + random.Int(5000));
  }
  // Within a record.
  step.leaves["params/bias"] = Array(random, 40);
  ModelLeaf tie;
  tie.kind = LeafKind::kTie;
  tie.target = "params/w0";
  step.leaves["params/tied"] = tie;
  PutValues(&step, random);
  return step;
}

ModelStep NextStep(const ModelStep& base, FaultRandom& random) {
  ModelStep step = base;
  PutValues(&step, random);
  for (auto& [name, leaf] : step.leaves) {
    if (leaf.kind != LeafKind::kArray) continue;
    const std::string fresh = RandomBytes(random, leaf.bytes.size());
    if (leaf.chunk_shape == Shape{kChunk}) {
      // One chunk of many.
      const std::size_t chunk = static_cast<std::size_t>(kChunk);
      const std::size_t at = random.Below(leaf.bytes.size() / chunk) * chunk;
      leaf.bytes.replace(at, chunk, fresh, at, chunk);
    } else if (!random.OneIn(leaf.chunk_shape.empty() ? 3 : 1)) {
      leaf.bytes = fresh;
    }
  }
  return step;
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : Recipes()) names.push_back(name);
  return names;
}

MadeStore MakeKind(const std::string& kind, std::uint64_t seed,
                   const std::string& directory, const std::string& earlier) {
  MadeStore made;
  if (!directory.empty()) {
    const TrialResult result = RunChild([&](const TrialPipe& pipe) {
      absl::Status status;
      Make(kind, seed, directory, earlier, &status);
      if (!status.ok()) pipe.Say(status.ToString());
      _exit(0);
    });
    if (result.broken() || !result.lines.empty()) made.error = result.Text();
  }
  absl::Status ignored;
  made.known = Make(kind, seed, "", "", &ignored);
  return made;
}

}  // namespace ckptree::testing
