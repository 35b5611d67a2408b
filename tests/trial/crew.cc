// SPDX-License-Identifier: Apache-2.0

#include "tests/trial/crew.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "ckptree/ranks.h"
#include "ckptree/store.h"
#include "tests/fault/runner.h"
#include "tests/model/store.h"

namespace ckptree::testing {

namespace {

constexpr std::int64_t kRowBytes = kSharedColumns * 4;
const std::string kBuilt = "BUILT ";

std::pair<std::int64_t, std::int64_t> RowsOf(int part, int parts) {
  static constexpr std::int64_t kFour[] = {0, 320, 640, 704, kSharedRows};
  static constexpr std::int64_t kTwo[] = {0, 384, kSharedRows};
  const std::int64_t* bounds = parts == 4 ? kFour : kTwo;
  return {bounds[part], bounds[part + 1]};
}

std::optional<std::string> ReadLine(int fd) {
  std::string line;
  for (char c = 0;;) {
    const ssize_t n = read(fd, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

absl::StatusOr<std::string> Build(const std::string& directory,
                                  const ModelStep& step, int part, int parts,
                                  const std::string& plan,
                                  const CrewFault& fault) {
  const std::shared_ptr<FaultFs> fs = fault.For(part);
  if (fs) fs->Arm({fault.plan});
  absl::StatusOr<Store> store = OpenStore(directory, 1, fs, true);
  if (!store.ok()) return store.status();
  StepBuilder builder = BeginPart(*store, plan, part);
  PutPart(step, part, parts, &builder);
  return FinishPart(std::move(builder));
}

}  // namespace

ModelStep SharedStep(FaultRandom& random) {
  ModelStep step;
  const auto add = [&](std::string name, ModelLeaf::Kind kind, DType dtype,
                       Shape shape, std::int64_t bytes) {
    ModelLeaf& leaf = step.leaves[std::move(name)];
    leaf.kind = kind;
    leaf.dtype = dtype;
    leaf.shape = std::move(shape);
    leaf.bytes.resize(static_cast<std::size_t>(bytes));
    random.Fill(std::as_writable_bytes(std::span(leaf.bytes)));
  };
  using Kind = ModelLeaf::Kind;
  const std::vector<std::int64_t> sizes = {100, 40000, 4000, 300, 17};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    add(absl::StrFormat("opt/l%d", i), Kind::kArray, DType::kUint8, {sizes[i]},
        sizes[i]);
  }
  add(std::string(kShared), Kind::kArray, DType::kFloat32,
      {kSharedRows, kSharedColumns}, kSharedRows * kRowBytes);
  add("state/count", Kind::kInt, DType::kNone, {}, 8);
  add("state/key", Kind::kBytes, DType::kNone, {}, 50);
  return step;
}

std::map<std::string, std::pair<std::size_t, std::size_t>> ExtentsOf(
    const ModelStep& step, int part, int parts) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> extents;
  int index = 0;
  for (const auto& [name, leaf] : step.leaves) {
    if (name == kShared) {
      const auto [begin, end] = RowsOf(part, parts);
      extents[name] = {static_cast<std::size_t>(begin * kRowBytes),
                       static_cast<std::size_t>((end - begin) * kRowBytes)};
    } else if (index++ % parts == part) {
      extents[name] = {0, leaf.bytes.size()};
    }
  }
  return extents;
}

void PutPart(const ModelStep& step, int part, int parts, StepBuilder* builder) {
  // Who has what is the trial's to say.
  builder->SetPerRank(Path());
  for (const auto& [name, extent] : ExtentsOf(step, part, parts)) {
    const ModelLeaf& leaf = step.leaves.at(name);
    switch (leaf.kind) {
      case ModelLeaf::Kind::kInt: {
        std::int64_t value = 0;
        std::memcpy(&value, leaf.bytes.data(), sizeof(value));
        builder->PutInt(name, value);
        break;
      }
      case ModelLeaf::Kind::kBytes:
        builder->PutBytes(name, leaf.bytes);
        break;
      default: {
        Tensor tensor;
        tensor.dtype = leaf.dtype;
        tensor.shape = leaf.shape;
        tensor.data = leaf.bytes.data() + extent.first;
        tensor.size_bytes = extent.second;
        if (name == kShared) {
          const auto [begin, end] = RowsOf(part, parts);
          tensor.shape[0] = end - begin;
          tensor.start = {begin, 0};
          tensor.global_shape = leaf.shape;
        }
        builder->Put(name, std::move(tensor), Ownership::kBorrow);
      }
    }
  }
}

std::shared_ptr<FaultFs> CrewFault::For(int process) const {
  return process == who ? std::make_shared<FaultFs>("", counts) : nullptr;
}

Crew::Crew(const std::string& store, const ModelStep& step, int parts,
           const CrewFault& fault) {
  for (int part = 0; part < parts; ++part) {
    int plan[2];
    int done[2];
    if (pipe(plan) != 0 || pipe(done) != 0) std::abort();
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      for (const Rank& other : ranks_) other.Close();
      close(plan[1]);
      close(done[0]);
      alarm(60);
      signal(SIGPIPE, SIG_IGN);
      if (const auto line = ReadLine(plan[0])) {
        const absl::StatusOr<std::string> built = Build(
            store, step, part, parts, absl::HexStringToBytes(*line), fault);
        TrialPipe(done[1]).Say(built.ok()
                                   ? kBuilt + absl::BytesToHexString(*built)
                                   : std::string(built.status().ToString()));
      }
      _exit(0);
    }
    close(plan[0]);
    close(done[1]);
    ranks_.push_back({pid, plan[1], done[0]});
  }
}

Crew::~Crew() {
  if (!ranks_.empty()) Finish();
}

void Crew::Rank::Close() const {
  close(plan);
  close(done);
}

absl::StatusOr<std::vector<std::string>> Crew::Gather(
    const std::string& plan) const {
  for (const Rank& rank : ranks_) {
    TrialPipe(rank.plan).Say(absl::BytesToHexString(plan));
  }
  std::vector<std::string> tokens;
  for (std::size_t part = 0; part < ranks_.size(); ++part) {
    const std::optional<std::string> said = ReadLine(ranks_[part].done);
    if (!said.has_value() || !said->starts_with(kBuilt)) {
      return absl::AbortedError(
          absl::StrFormat("rank %d: %s", part, said.value_or("it died")));
    }
    tokens.push_back(absl::HexStringToBytes(said->substr(kBuilt.size())));
  }
  return tokens;
}

int Crew::Finish() {
  int killed = 0;
  for (const Rank& rank : ranks_) rank.Close();
  for (const Rank& rank : ranks_) {
    int status = 0;
    while (waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const bool by_fault = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const bool by_itself = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!by_fault && !by_itself) killed = -1;
    if (by_fault && killed >= 0) ++killed;
  }
  ranks_.clear();
  return killed;
}

}  // namespace ckptree::testing
