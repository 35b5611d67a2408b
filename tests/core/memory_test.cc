// SPDX-License-Identifier: Apache-2.0

// Memory that runs out: each call of a store, with one allocation that fails,
// or all from it on that would make more of it. Nothing is thrown, nothing ends
// the process, and what was committed is there afterwards. Each trial is a
// process of its own.

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testutil/in_child.h"
#include "tests/testutil/sanitizer.h"
#include "tests/testutil/temp_dir.h"

namespace {

enum class Failing : std::uint8_t { kNothing, kOne, kMore };

std::atomic<Failing> failing = Failing::kNothing;
std::atomic<std::int64_t> until = 0;  // Allocations that still succeed.
std::atomic<std::int64_t> live = 0;   // Bytes.
// From the allocation on that fails: as many as there were then.
std::atomic<std::int64_t> most = std::numeric_limits<std::int64_t>::max();
std::atomic<std::size_t> least = 0;  // Smaller ones do, always.
std::atomic<std::int64_t> counted = 0;
std::atomic<std::int64_t> failed = 0;

// RocksDB's own threads end the process where they are thrown out of.
bool IsOfRocksDb() {
  thread_local const bool is = [] {
    std::array<char, 16> name{};
    pthread_getname_np(pthread_self(), name.data(), name.size());
    return std::string_view(name.data()).starts_with("rocksdb:");
  }();
  return is;
}

bool Fails(std::size_t bytes) {
  const Failing how = failing.load(std::memory_order_relaxed);
  if (how == Failing::kNothing || bytes < least.load() || IsOfRocksDb()) {
    return false;
  }
  ++counted;
  const std::int64_t left = until.fetch_sub(1);
  if (left > 0) return false;
  if (left < 0 && (how == Failing::kOne ||
                   live + static_cast<std::int64_t>(bytes) <= most)) {
    return false;
  }
  if (left == 0) most = live.load();
  ++failed;
  return true;
}

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (Fails(bytes)) return nullptr;
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes == 0 ? 1 : bytes);
  } else if (posix_memalign(&memory, alignment, bytes) != 0) {
    memory = nullptr;
  }
  live += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}

void Free(void* memory) {
  live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment) {
  void* const memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new[](std::size_t bytes) { return AllocateOrThrow(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, 1);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return Allocate(bytes, 1);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  Free(memory);
}

namespace ckptree::testing {
namespace {

constexpr std::int64_t kSteps = 3;
constexpr std::size_t kElements = 40'000;

std::vector<float> ArrayOf(std::int64_t step) {
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(i % 1000) + static_cast<float>(step) * 1000;
  }
  return values;
}

StoreOptions Quiet(bool read_only) {
  StoreOptions options;
  options.read_only = read_only;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  return options;
}

void Fill(StepBuilder& builder, std::int64_t step,
          const std::vector<float>& values) {
  builder
      .Put("w", Tensor{DType::kFloat32,
                       {static_cast<std::int64_t>(values.size())},
                       values.data()})
      .PutInt("step", step);
  for (int i = 0; i < 20; ++i) {
    builder.PutString(absl::StrFormat("names/%d", i),
                      absl::StrFormat("a name of %d that is long enough", i));
  }
  builder.SetMetric("loss", 1.0 / static_cast<double>(step));
}

SaveHandle SaveStep(Store& store, std::int64_t step,
                    const std::vector<float>& values) {
  StepBuilder builder = store.Begin(step);
  Fill(builder, step, values);
  return std::move(builder).Commit();
}

// What a call may change, and what is so whether it did or not.
struct Case {
  std::string name;
  // With the store open; what it is told.
  std::function<absl::Status(Store&)> call;
  // The step that is there where the call was told OK, beside those before.
  std::optional<std::int64_t> saves = std::nullopt;
  std::optional<std::int64_t> removes = std::nullopt;
  bool opens = false;  // The call is the open itself.
  bool read_only = false;
  // In place of `call`, of a manager over the store. It makes nothing of its
  // own that takes memory: what is thrown, the engine throws.
  std::function<absl::Status(CheckpointManager&)> manages = {};
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  cases.push_back({.name = "Open",
                   .call = [](Store&) { return absl::OkStatus(); },
                   .opens = true});
  cases.push_back({.name = "OpenToRead",
                   .call = [](Store&) { return absl::OkStatus(); },
                   .opens = true,
                   .read_only = true});
  const auto read = [](Store& store) -> absl::Status {
    absl::StatusOr<Step> step = store.OpenStep(2);
    if (!step.ok()) return step.status();
    absl::StatusOr<std::vector<float>> values =
        step->Read<std::vector<float>>("w");
    if (!values.ok()) return values.status();
    absl::StatusOr<LeafView> view = step->View("w");
    if (!view.ok()) return view.status();
    absl::StatusOr<std::string> name = step->Read<std::string>("names/3");
    if (!name.ok()) return name.status();
    absl::StatusOr<std::vector<LeafInfo>> leaves = step->Leaves();
    if (!leaves.ok()) return leaves.status();
    return step->Details(*leaves).status();
  };
  cases.push_back({.name = "Read", .call = read});
  cases.push_back({.name = "ReadOnly", .call = read, .read_only = true});
  cases.push_back({.name = "Lists", .call = [](Store& store) -> absl::Status {
                     absl::Status status = store.Steps().status();
                     status.Update(store.Resolve(Latest()).status());
                     status.Update(store.Tags().status());
                     status.Update(store.Branches().status());
                     status.Update(store.Policy().status());
                     status.Update(store.PreviewPolicy("").status());
                     status.Update(store.Usage().status());
                     return status;
                   }});
  cases.push_back({.name = "Save",
                   .call =
                       [values = ArrayOf(4)](Store& store) {
                         return SaveStep(store, 4, values).WaitCommitted();
                       },
                   .saves = 4});
  cases.push_back({.name = "Delete",
                   .call = [](Store& store) { return store.Delete(1); },
                   .removes = 1});
  cases.push_back({.name = "Tag",
                   .call = [](Store& store) { return store.Tag("good", 2); }});
  cases.push_back({.name = "Fork", .call = [](Store& store) {
                     return store.Fork(2, "trial");
                   }});
  cases.push_back({.name = "SetPolicy", .call = [](Store& store) {
                     return store.SetPolicy(LatestN{10});
                   }});
  cases.push_back({.name = "SetMetadata", .call = [](Store& store) {
                     return store.SetMetadata(R"({"run": "a"})");
                   }});
  cases.push_back({.name = "Verify", .call = [](Store& store) {
                     VerifyOptions options;
                     options.level = VerifyOptions::Level::kDeep;
                     return store.Verify(options).status();
                   }});
  cases.push_back({.name = "Collect",
                   .call =
                       [](Store& store) {
                         absl::Status status = store.Delete(1);
                         CollectOptions options;
                         options.min_dead_fraction = 0;
                         status.Update(store.Collect(options).status());
                         return status;
                       },
                   .removes = 1});
  cases.push_back({.name = "Diff", .call = [](Store& store) -> absl::Status {
                     absl::StatusOr<Step> one = store.OpenStep(1);
                     if (!one.ok()) return one.status();
                     absl::StatusOr<Step> two = store.OpenStep(2);
                     if (!two.ok()) return two.status();
                     return Diff(*one, *two).status();
                   }});
  cases.push_back({.name = "History", .call = [](Store& store) {
                     return History(store, "w").status();
                   }});
  cases.push_back({.name = "ManagerSave",
                   .saves = 4,
                   .manages = [values = ArrayOf(4)](
                                  CheckpointManager& manager) -> absl::Status {
                     const absl::StatusOr<bool> saved =
                         manager.Save(4, [&](StepBuilder& builder) {
                           Fill(builder, 4, values);
                           return absl::OkStatus();
                         });
                     if (!saved.ok()) return saved.status();
                     const bool going = manager.IsSavingInProgress();
                     absl::Status status = manager.WaitUntilFinished();
                     if (status.ok() &&
                         (!*saved || (going && !manager.LastSave().Done()))) {
                       return absl::InternalError("it was not saved");
                     }
                     return status;
                   }});
  cases.push_back(
      {.name = "ManagerLists", .manages = [](CheckpointManager& manager) {
         absl::Status status = manager.AllSteps().status();
         status.Update(manager.LatestStep().status());
         status.Update(manager.BestStep().status());
         status.Update(manager.ShouldSave(4).status());
         status.Update(manager.Metrics(2).status());
         status.Update(manager.ItemMetadata(2).status());
         status.Update(manager.OpenStep(Latest()).status());
         status.Update(manager.Reload());
         return status;
       }});
  cases.push_back({.name = "ManagerDelete",
                   .removes = 1,
                   .manages = [](CheckpointManager& manager) {
                     return manager.Delete(1);
                   }});
  return cases;
}

// A child in which nothing that is thrown gets to the tests behind this one.
int InTrial(const std::function<int()>& body) {
  std::fflush(nullptr);
  return InChild([&]() noexcept {
    const int code = body();
    std::fflush(nullptr);
    return code;
  });
}

enum Code : std::uint8_t {
  kDone = 0,
  kTold = 10,
  kNotFailed = 11,
  kWrong = 12
};

int Try(const Case& c, const std::string& directory, Failing how,
        std::int64_t after, std::size_t least_bytes) {
  const auto arm = [&] {
    least = least_bytes;
    until = after;
    failing = how;
  };
  std::optional<Store> store;
  absl::Status status;
  if (c.opens) arm();
  {
    absl::StatusOr<Store> opened = Store::Open(directory, Quiet(c.read_only));
    if (opened.ok()) {
      store = *std::move(opened);
    } else {
      status = opened.status();
    }
  }
  if (!c.opens) {
    if (!status.ok()) {
      std::printf("cannot be opened: %s\n", status.ToString().c_str());
      return kWrong;
    }
    std::optional<CheckpointManager> manager;
    if (c.manages) {
      absl::StatusOr<CheckpointManager> over =
          CheckpointManager::Over(*store, ManagerOptions());
      if (!over.ok()) return kWrong;
      manager = *std::move(over);
    }
    arm();
    try {
      status = c.manages ? c.manages(*manager) : c.call(*store);
    } catch (const std::bad_alloc&) {
      failing = Failing::kNothing;
      // The call's own small values have no room either; else the engine threw.
      if (least_bytes > 0 || c.manages) {
        std::printf("thrown\n");
        return kWrong;
      }
      status = absl::ResourceExhaustedError("thrown");
    }
    failing = Failing::kNothing;
  }
  failing = Failing::kNothing;
  // Of a commit nobody may know; behind one the handle may be dead.
  const bool fits = status.ok() || absl::IsResourceExhausted(status) ||
                    absl::IsUnknown(status) ||
                    absl::IsFailedPrecondition(status);
  if (!fits) std::printf("told: %s\n", status.ToString().c_str());
  if (store.has_value()) store->Close().IgnoreError();
  store.reset();
  if (!fits) return kWrong;
  if (failed == 0) return kNotFailed;
  return status.ok() ? kDone : kTold;
}

// What is in the store, by a process that never lacked memory.
int Check(const Case& c, const std::string& directory, bool told) {
  absl::StatusOr<Store> store = Store::Open(directory, Quiet(false));
  if (!store.ok()) {
    std::printf("does not open: %s\n", store.status().ToString().c_str());
    return kWrong;
  }
  int code = kDone;
  const auto wrong = [&](std::string_view what) {
    std::printf("%s\n", std::string(what).c_str());
    code = kWrong;
  };
  for (std::int64_t number = 1; number <= 4; ++number) {
    const bool may_miss = number == c.removes || number == c.saves;
    const bool must_miss = number == c.removes && !told;
    if (number == 4 && c.saves != 4) continue;
    const absl::StatusOr<Step> step = store->OpenStep(number);
    if (!step.ok()) {
      if (!may_miss || (number == c.saves && !told)) {
        wrong(absl::StrFormat("step %d: %s", number, step.status().ToString()));
      }
      continue;
    }
    if (must_miss) wrong(absl::StrFormat("step %d is still there", number));
    const auto values = step->Read<std::vector<float>>("w");
    if (!values.ok() || *values != ArrayOf(number)) {
      wrong(absl::StrFormat("step %d has other bytes", number));
    }
    const auto value = step->Read<std::int64_t>("step");
    if (!value.ok() || *value != number) {
      wrong(absl::StrFormat("step %d has another number", number));
    }
  }
  const absl::Status next = SaveStep(*store, 9, ArrayOf(9)).WaitCommitted();
  if (!next.ok()) wrong("the next save: " + next.ToString());
  VerifyOptions deep;
  deep.level = VerifyOptions::Level::kDeep;
  const absl::StatusOr<VerifyReport> report = store->Verify(deep);
  if (!report.ok()) wrong("verify: " + report.status().ToString());
  if (report.ok()) {
    for (const Finding& finding : report->findings) {
      if (finding.severity == Finding::Severity::kWarning) continue;
      wrong("verify finds " + finding.what);
    }
  }
  const absl::Status collected = store->Collect().status();
  if (!collected.ok()) wrong("the next collection: " + collected.ToString());
  return code;
}

class Memory : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << "its allocator is the sanitizer's";
    ASSERT_EQ(InTrial([this] {
                absl::StatusOr<Store> store =
                    Store::Create(made_, Quiet(false));
                if (!store.ok()) return 1;
                for (std::int64_t step = 1; step <= kSteps; ++step) {
                  const std::vector<float> values = ArrayOf(step);
                  if (!SaveStep(*store, step, values).WaitCommitted().ok())
                    return 1;
                }
                return store->Close().ok() ? 0 : 1;
              }),
              0);
  }

  // A store as SetUp() made it.
  void Renew() {
    std::filesystem::remove_all(directory_);
    std::filesystem::copy(made_, directory_,
                          std::filesystem::copy_options::recursive);
  }

  // How many allocations of `least` bytes or more the call makes.
  std::int64_t Count(std::size_t least_bytes) {
    Renew();
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    EXPECT_EQ(InTrial([&] {
                const int code = Try(GetParam(), directory_, Failing::kOne,
                                     std::int64_t{1} << 40, least_bytes);
                const std::int64_t count = counted;
                return write(ends[1], &count, sizeof count) == sizeof count
                           ? code
                           : kWrong;
              }),
              kNotFailed);
    std::int64_t count = 0;
    EXPECT_EQ(read(ends[0], &count, sizeof count),
              static_cast<ssize_t>(sizeof count));
    close(ends[0]);
    close(ends[1]);
    return count;
  }

  // What the call was told, where of its allocations of `least_bytes` or more
  // that behind `after` others fails. What was committed is there.
  int Fail(Failing how, std::int64_t after, std::size_t least_bytes) {
    Renew();
    const int code = InTrial(
        [&] { return Try(GetParam(), directory_, how, after, least_bytes); });
    EXPECT_EQ(
        InTrial([&] { return Check(GetParam(), directory_, code != kDone); }),
        kDone);
    return code;
  }

 private:
  const TempDir temp_;
  const std::string made_ = temp_ / "made";
  const std::string directory_ = temp_ / "store";
};

int Trials(int usual) {
  const char* const asked = std::getenv("CKPTREE_TEST_ALLOCATIONS");
  return asked == nullptr ? usual : std::atoi(asked);
}

std::string Failed(std::int64_t number, std::int64_t count, Failing how) {
  return absl::StrFormat(
      "of %d allocations number %d %s", count, number,
      how == Failing::kOne ? "fails" : "and what needs more fail");
}

// What takes more than a little is what fails in a process that has little
// left: it is told, and the process goes on.
TEST_P(Memory, RunsOutAndTheCallSaysSo) {
  constexpr std::size_t kLarge = 2048;
  const std::int64_t count = Count(kLarge);
  ASSERT_GT(count, 0);
  int told = 0;
  // Some, evenly; CKPTREE_TEST_ALLOCATIONS asks for more.
  const std::int64_t every = std::max<std::int64_t>(1, count / Trials(5));
  for (std::int64_t i = 0; i < count; i += every) {
    for (const Failing how : {Failing::kOne, Failing::kMore}) {
      SCOPED_TRACE(Failed(i, count, how));
      const int code = Fail(how, i, kLarge);
      EXPECT_THAT(code, ::testing::AnyOf(kDone, kTold, kNotFailed));
      told += code == kTold ? 1 : 0;
    }
  }
  EXPECT_GT(told, 0);
}

// Where there is not even room for a message the process may end: as after any
// other end of one, nothing is lost.
TEST_P(Memory, RunsOutAndNothingIsLost) {
  const std::int64_t count = Count(0);
  ASSERT_GT(count, 10);
  const int trials = Trials(5);
  std::minstd_rand random(static_cast<unsigned>(count));
  int fired = 0;
  for (int i = 0; i < trials; ++i) {
    const Failing how = i % 2 == 0 ? Failing::kOne : Failing::kMore;
    const std::int64_t after = static_cast<std::int64_t>(random()) % count;
    SCOPED_TRACE(Failed(after, count, how));
    const int code = Fail(how, after, 0);
    EXPECT_NE(code, kWrong);
    EXPECT_NE(code, -SIGALRM) << "it hangs";
    fired += code == kNotFailed ? 0 : 1;
  }
  EXPECT_GT(fired, trials / 4);
}

INSTANTIATE_TEST_SUITE_P(Calls, Memory, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return info.param.name;
                         });

}  // namespace
}  // namespace ckptree::testing
