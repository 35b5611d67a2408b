// SPDX-License-Identifier: Apache-2.0

// Surroundings that a trainer meets: few files, no permission, a clock that
// goes back, signals, no memory. An error that says what is wrong, or it works.

#include <malloc.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/fault/directory.h"
#include "tests/fault/random.h"
#include "tests/fault/runner.h"
#include "tests/model/store.h"
#include "tests/testutil/sanitizer.h"
#include "tests/testutil/shifted_clock.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

// Bytes that follow from `seed`.
std::vector<std::byte> Filled(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  FaultRandom(seed).Fill(bytes);
  return bytes;
}

absl::Status Save(Store& store, std::int64_t step, std::size_t size,
                  Ownership ownership = Ownership::kCopy,
                  bool overwrite = false) {
  const auto bytes = Filled(size, static_cast<std::uint64_t>(step));
  Tensor tensor;
  tensor.dtype = DType::kUint8;
  tensor.shape = {static_cast<std::int64_t>(size)};
  tensor.data = bytes.data();
  StepBuilder builder = store.Begin(step, {.overwrite = overwrite});
  builder.Put("w", std::move(tensor), ownership);
  return std::move(builder).Commit().WaitCommitted(absl::InfiniteDuration());
}

absl::Status ReadsBack(const Store& store, std::int64_t step,
                       std::size_t size) {
  const auto restored = store.OpenStep(AtStep(step));
  if (!restored.ok()) return restored.status();
  const auto value = restored->Value("w");
  if (!value.ok()) return value.status();
  return value->bytes == Filled(size, static_cast<std::uint64_t>(step))
             ? absl::OkStatus()
             : absl::InternalError("other bytes");
}

class TrialEnvironmentTest : public ::testing::Test {
 protected:
  using Must = std::function<void(const absl::Status&, const std::string&)>;

  std::string store() const { return directory_.store(); }

  // In a child, which has failed unless it says nothing but notes.
  TrialResult Child(
      const std::function<void(const Must&, const TrialPipe&)>& body) const {
    const TrialResult result = RunChild(
        [&](const TrialPipe& pipe) {
          const Must must = [&pipe](const absl::Status& status,
                                    const std::string& what) {
            if (status.ok()) return;
            pipe.Say("WRONG " + what + ": " + std::string(status.message()));
            _exit(1);
          };
          body(must, pipe);
        },
        /*seconds=*/120);
    EXPECT_FALSE(result.broken() || result.killed) << result.Text();
    EXPECT_TRUE(result.Said("WRONG").empty()) << result.Text();
    return result;
  }
  static absl::Status True(bool good) {
    return good ? absl::OkStatus() : absl::InternalError("it is not so");
  }
  // A store with step 0, closed.
  void MakeOneStep(std::size_t size) const {
    Child([&](const Must& must, const TrialPipe&) {
      auto open = CreateStore(store(), 1);
      must(open.status(), "create");
      must(Save(*open, 0, size), "save");
      must(open->Close(), "close");
    });
  }
  // Steps [0, count) are there and whole.
  void ExpectSteps(int count, std::size_t size) const {
    Child([&](const Must& must, const TrialPipe&) {
      auto open = OpenStore(store(), 1);
      must(open.status(), "open");
      must(True(open->Steps()->size() == static_cast<std::size_t>(count)),
           "number of steps");
      for (int i = 0; i < count; ++i) {
        must(ReadsBack(*open, i, size), absl::StrFormat("step %d", i));
      }
      must(Save(*open, 1'000'000, size), "the next save");
    });
  }

  TrialDirectory directory_;
};

TEST_F(TrialEnvironmentTest, SixtyFourFiles) {
  constexpr int kSteps = 130;  // A segment each.
  constexpr std::size_t kSize = (1 << 20) + 5000;
  Child([&](const Must& must, const TrialPipe& pipe) {
    rlimit limit{64, 64};
    must(True(setrlimit(RLIMIT_NOFILE, &limit) == 0), "setrlimit");
    auto open = CreateStore(store(), 2);
    must(open.status(), "create");
    for (int i = 0; i < kSteps; ++i) {
      must(Save(*open, i, kSize), absl::StrFormat("save %d", i));
    }
    must(open->Close(), "close");
    for (const bool read_only : {true, false}) {
      auto again = OpenStore(store(), 2, nullptr, read_only);
      must(again.status(), "open");
      for (int i = 0; i < kSteps; ++i) {
        must(ReadsBack(*again, i, kSize), absl::StrFormat("read %d", i));
        must(
            again->OpenStep(AtStep(i))->View(Path::Parse("w").value()).status(),
            absl::StrFormat("view %d", i));
      }
      if (read_only) continue;
      // Beside a writer a reader must hold all tables open, and says so.
      const auto beside = OpenStore(store(), 2, nullptr, true);
      must(True(absl::IsResourceExhausted(beside.status()) &&
                absl::StrContains(std::string(beside.status().message()),
                                  "ulimit")),
           "open beside: " + beside.status().ToString());
    }
    const auto files = std::distance(fs::directory_iterator(store() + "/db"),
                                     fs::directory_iterator());
    pipe.Say(absl::StrFormat("FILES %d", files));
    must(True(files > 128), "more files than may be open");
  });
  ExpectSteps(kSteps, kSize);
}

TEST_F(TrialEnvironmentTest, AClockThatGoesBack) {
  constexpr std::size_t kSize = 100'000;
  Child([&](const Must& must, const TrialPipe&) {
    auto open = CreateStore(store(), 1);
    must(open.status(), "create");
    must(Save(*open, 0, kSize), "save");
    const absl::Time before = absl::Now();
    clock_offset_seconds = -365 * 24 * 3600;
    // Abseil looks at the clock now and then, and counts cycles in between;
    // the child has a time limit.
    while (absl::Now() > before - absl::Hours(24 * 300)) {
      std::this_thread::yield();
    }
    for (int i = 1; i < 5; ++i) must(Save(*open, i, kSize), "a year ago");
    must(open->Close(), "close");
    auto again = OpenStore(store(), 1);
    must(again.status(), "open");
    must(Save(*again, 5, kSize), "save after open");
    must(True(again->Resolve(Latest())->step == 5), "latest");
    must(True(again->Verify({})->findings.empty()), "verify");
  });
  ExpectSteps(6, kSize);
}

TEST_F(TrialEnvironmentTest, SignalsInterruptEveryCall) {
  constexpr std::size_t kSize = 2 << 20;
  const TrialResult result =
      Child([&](const Must& must, const TrialPipe& pipe) {
        static std::atomic<int> signals{0};
        struct sigaction action = {};
        action.sa_handler = [](int) { signals.fetch_add(1); };
        must(True(sigaction(SIGUSR1, &action, nullptr) == 0), "sigaction");
        // Not to one thread: to whichever of the process the kernel likes.
        timer_t timer;
        sigevent event = {};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGUSR1;
        must(True(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0), "timer");
        const itimerspec often = {{0, 200'000}, {0, 200'000}};
        must(True(timer_settime(timer, 0, &often, nullptr) == 0), "timer");
        auto open = CreateStore(store(), 2);
        must(open.status(), "create");
        for (int i = 0; i < 40; ++i) {
          must(Save(*open, i, kSize), absl::StrFormat("save %d", i));
          must(ReadsBack(*open, i, kSize), "read");
        }
        must(open->Close(), "close");
        pipe.Say(absl::StrFormat("SIGNALS %d", signals.load()));
      });
  const auto signals = result.Said("SIGNALS");
  ASSERT_EQ(signals.size(), 1);
  EXPECT_GT(std::atoi(signals[0].c_str()), 100);
  ExpectSteps(40, kSize);
}

// A copied save for which the allocator of the device's library has nothing is
// read in place.
TEST_F(TrialEnvironmentTest, NoStagingMemory) {
  constexpr std::size_t kSize = 2 << 20;
  Child([&](const Must& must, const TrialPipe&) {
    static std::atomic<int> asked{0};
    StoreOptions options;
    options.create_if_missing = true;
    options.host_allocator = {[](std::size_t) -> void* {
                                asked.fetch_add(1);
                                return nullptr;
                              },
                              [](void*, std::size_t) {}};
    options.log = [](LogSeverity, std::string_view, std::string_view) {};
    auto open = Store::Open(store(), options);
    must(open.status(), "create");
    // The writer may be faster than the stager.
    int steps = 0;
    while (asked.load() == 0 && steps < 200) {
      must(Save(*open, steps++, kSize, Ownership::kCopy), "save");
    }
    must(True(asked.load() > 0), "the allocator was asked");
    must(ReadsBack(*open, steps - 1, kSize), "read");
    must(True(open->Verify({})->findings.empty()), "verify");
  });
}

// The process may die of it; the store may not.
TEST_F(TrialEnvironmentTest, NoMemoryAtAll) {
  if (kAddressSanitizer) GTEST_SKIP() << "measures memory";
  constexpr std::size_t kSize = 4 << 20;
  Child([&](const Must& must, const TrialPipe&) {
    must(CreateStore(store(), 2)->Close(), "create");
  });
  int died = 0;
  for (const int megabytes : {40, 80, 120}) {
    const TrialResult result = RunChild(
        [&](const TrialPipe& pipe) {
          std::ifstream statm("/proc/self/statm");
          std::size_t pages = 0;
          statm >> pages;
          const rlim_t bytes =
              pages * 4096 + (rlim_t{1} << 20) * static_cast<rlim_t>(megabytes);
          rlimit limit{bytes, bytes};
          if (setrlimit(RLIMIT_AS, &limit) != 0) pipe.Say("WRONG setrlimit");
          auto open = OpenStore(store(), 2);
          if (!open.ok()) return;
          for (int i = 0; i < 15; ++i) {
            const std::int64_t step = megabytes * 1000 + i;
            if (!Save(*open, step, kSize).ok()) break;
            pipe.Say(absl::StrFormat("SAVED %d", step));
          }
        },
        120);
    EXPECT_TRUE(result.Said("WRONG").empty()) << result.Text();
    died += result.broken() ? 1 : 0;
    Child([&](const Must& must, const TrialPipe&) {
      auto open = OpenStore(store(), 1);
      must(open.status(), "open afterwards");
      for (const std::string& step : result.Said("SAVED")) {
        must(ReadsBack(*open, std::atoll(step.c_str()), kSize), "step " + step);
      }
      must(True(open->Verify({})->findings.empty()), "verify");
    });
  }
  std::cout << "trial no memory: 3 trials, 3 fired, " << died << " died\n";
}

TEST_F(TrialEnvironmentTest, NoPermission) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  constexpr std::size_t kSize = 100'000;
  MakeOneStep(kSize);
  chmod(directory_.path().c_str(), 0755);
  const auto as_nobody = [&](const std::function<void(const Must&)>& body) {
    Child([&](const Must& must, const TrialPipe&) {
      must(True(setresuid(kNobody, kNobody, kNobody) == 0), "setresuid");
      body(must);
    });
  };
  const auto told = [this](const absl::Status& status) {
    return True(status.code() == absl::StatusCode::kPermissionDenied &&
                absl::StrContains(std::string(status.message()), store()));
  };
  // 0700, another's: nothing can be seen.
  chmod(store().c_str(), 0700);
  as_nobody([&](const Must& must) {
    for (const bool read_only : {false, true}) {
      const auto open = OpenStore(store(), 1, nullptr, read_only);
      must(told(open.status()),
           absl::StrFormat("closed folder: %s", open.status().ToString()));
    }
    const auto created = CreateStore(directory_.path() + "/mine", 1);
    must(True(created.status().code() == absl::StatusCode::kPermissionDenied),
         "create: " + created.status().ToString());
  });
  // Readable by all, writable by none.
  for (const auto& entry : fs::recursive_directory_iterator(store())) {
    chmod(entry.path().c_str(), entry.is_directory() ? 0555 : 0444);
  }
  chmod(store().c_str(), 0555);
  as_nobody([&](const Must& must) {
    const auto writing = OpenStore(store(), 1);
    must(told(writing.status()),
         "open for writing: " + writing.status().ToString());
    const auto reading = OpenStore(store(), 1, nullptr, true);
    must(reading.status(), "open to read");
    must(ReadsBack(*reading, 0, kSize), "read");
  });
}

TEST_F(TrialEnvironmentTest, AReadOnlyMount) {
  constexpr std::size_t kSize = 100'000;
  MakeOneStep(kSize);
  const std::string mounted = directory_.path() + "/mounted";
  fs::create_directory(mounted);
  if (mount(store().c_str(), mounted.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "nothing can be mounted here";
  }
  const bool sealed = mount(nullptr, mounted.c_str(), nullptr,
                            MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  EXPECT_TRUE(sealed);
  Child([&](const Must& must, const TrialPipe&) {
    const auto writing = OpenStore(mounted, 1);
    must(True(!writing.ok() &&
              absl::StrContains(std::string(writing.status().message()),
                                mounted)),
         "open for writing: " + writing.status().ToString());
    const auto reading = OpenStore(mounted, 1, nullptr, true);
    must(reading.status(), "open to read");
    must(ReadsBack(*reading, 0, kSize), "read");
  });
  umount(mounted.c_str());
}

// Memory of this process; what free() left to malloc is given back first.
double Resident() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  double pages = 0, held = 0;
  statm >> pages >> held;
  return held * 4096;
}

// What is resident after 200 more saves: 1 % more at most where the saves are
// small. The memtables that they ride in are emptied before each look, by a
// collection, or it would tell how far their writing lags behind. A large save
// leaves a file, whose metadata stay in memory as nothing is collected yet: 1
// to 2 KB each, in 200 saves above 1 % of what this little process has.
TEST_F(TrialEnvironmentTest, MemoryDrifts) {
  if (kAddressSanitizer) GTEST_SKIP() << "measures memory";
  struct Case {
    std::size_t size;
    int steps;  // Then the first is overwritten.
    int warm_up;
    int window;  // Saves of which the least is taken.
    int apart;   // From the start of one to the start of the next.
    int every;   // Saves from one look to the next.
    bool collect;
  };
  const Case small{60'000, 4, 300, 1200, 1200, 100, true};
  const Case large{3 << 20, 1 << 20, 300, 50, 200, 5, false};
  for (const Case& c : {small, large}) {
    directory_.Clear();
    const TrialResult result =
        Child([&](const Must& must, const TrialPipe& pipe) {
          // How many arenas malloc makes, and fills, is luck of the threads.
          must(True(mallopt(M_ARENA_MAX, 1) == 1), "mallopt");
          auto open = CreateStore(store(), 2);
          must(open.status(), "create");
          double before = 1e12, after = 1e12;
          for (int i = 0; i < c.warm_up + c.apart + c.window; ++i) {
            must(Save(*open, i % c.steps, c.size, Ownership::kCopy,
                      /*overwrite=*/true),
                 "save");
            const int at = i - c.warm_up;
            if (at < 0 || at % c.every != 0) continue;
            if (c.collect) must(open->Collect().status(), "collect");
            const double now = Resident();
            if (at < c.window) before = std::min(before, now);
            if (at >= c.apart) after = std::min(after, now);
          }
          pipe.Say(absl::StrFormat("BEFORE %.0f", before));
          pipe.Say(absl::StrFormat("AFTER %.0f", after));
        });
    ASSERT_EQ(result.Said("BEFORE").size() + result.Said("AFTER").size(), 2);
    const double before = std::atof(result.Said("BEFORE")[0].c_str());
    const double after = std::atof(result.Said("AFTER")[0].c_str());
    const double a_save = (after - before) / c.apart;
    const double drift = a_save * 200 / before;
    std::cout << absl::StrFormat(
        "trial memory, saves of %d bytes: %.1f MB resident, %+.0f bytes a "
        "save, "
        "drift in 200 saves %+.2f %%\n",
        c.size, before / 1e6, a_save, 100 * drift);
    if (c.size == small.size) {
      EXPECT_LT(drift, 0.01);
    } else {
      EXPECT_LT(a_save, 3072);
    }
  }
}

}  // namespace
}  // namespace ckptree::testing
