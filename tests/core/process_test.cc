// SPDX-License-Identifier: Apache-2.0

// Several processes: children that were forked off after a store was opened,
// and many that start at once. What opens a store runs in helpers, so that this
// process itself never did.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/fixture.h"
#include "tests/core/waiting_tensor.h"
#include "tests/testutil/sanitizer.h"

namespace ckptree::testing {
namespace {

using ::testing::HasSubstr;

constexpr unsigned kHangs =
    kAddressSanitizer ? 300 : 30;  // Seconds that only a hang takes.

// The exit code of `pid`, or -1 where a signal ended it: its alarm, if it hung.
int Ended(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Forks a child that runs `body` and ends as a program does.
pid_t Fork(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangs);
    std::exit(body());
  }
  return child;
}

// A process that has opened no store before.
int InHelper(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(3 * kHangs);
    _exit(body());
  }
  return Ended(child);
}

class ProcessTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_ / "store"; }
  static StoreOptions Options() { return QuietOptions(); }
  static StoreOptions ReadOnly() { return ToRead(Options()); }
  // True where all went well.
  static bool Save(Store& store, std::int64_t step, const Bytes& bytes) {
    StepBuilder builder = store.Begin(step);
    builder.Put("w", Uint8s(bytes));
    return std::move(builder).Commit().WaitCommitted(kLong).ok();
  }
  static bool Holds(const Store& store, std::int64_t step, const Bytes& bytes) {
    const absl::StatusOr<Step> open = store.OpenStep(AtStep(step));
    if (!open.ok()) return false;
    const absl::StatusOr<LeafValue> value = open->Value("w");
    return value.ok() && value->bytes == bytes;
  }
  // Saves, deletes and collects, so that every thread of the engine has worked,
  // and leaves step 3.
  bool Use(Store& store) const {
    for (int step = 1; step <= 3; ++step) {
      if (!Save(store, step, large_)) return false;
      if (!Save(store, 10 + step, small_)) return false;
    }
    return store.Delete({AtStep(1), AtStep(2)}).ok() && store.Collect().ok() &&
           store.Verify().ok() && Holds(store, 3, large_);
  }

  TempDir dir_;
  const Bytes small_ = RandomBytes(1000, 1);
  const Bytes large_ = RandomBytes(40 << 20, 2);
};

TEST_F(ProcessTest, AForkedChildExitsWhetherTheStoreIsOpenOrClosed) {
  for (const bool open : {false, true}) {
    EXPECT_EQ(
        InHelper([&] {
          absl::StatusOr<Store> store = Store::Open(path(), Options());
          if (!store.ok() || (!open && !Use(*store))) return 1;
          if (!open && !store->Close().ok()) return 2;
          if (Ended(Fork([] { return 7; })) != 7) return 3;
          // And its own child.
          if (Ended(Fork([] { return Ended(Fork([] { return 8; })); })) != 8) {
            return 4;
          }
          return open && !Save(*store, 20, small_) ? 5 : 0;
        }),
        0)
        << (open ? "open" : "closed");
  }
}

// What a child prints reaches those who read it.
TEST_F(ProcessTest, AForkedChildsOutputIsNotLostAtItsExit) {
  const std::string file = dir_ / "output";
  EXPECT_EQ(InHelper([&] {
              absl::StatusOr<Store> store = Store::Open(path(), Options());
              if (!store.ok() || !Use(*store) || !store->Close().ok()) return 1;
              return Ended(Fork([&] {
                if (std::freopen(file.c_str(), "w", stdout) == nullptr) {
                  return 2;
                }
                std::printf("all that there is");
                return 0;
              }));
            }),
            0);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(
      std::fopen(file.c_str(), "r"), &std::fclose);
  ASSERT_NE(in, nullptr);
  std::array<char, 100> text{};
  EXPECT_GT(std::fread(text.data(), 1, text.size() - 1, in.get()), 0u);
  EXPECT_STREQ(text.data(), "all that there is");
}

TEST_F(ProcessTest, AForkedChildMayReadAndNotWrite) {
  // Closed again, open, and open to read alone.
  for (const std::string_view parent : {"closed", "open", "reads"}) {
    EXPECT_EQ(
        InHelper([&] {
          absl::StatusOr<Store> store =
              Store::Open(path(), parent == "reads" ? ReadOnly() : Options());
          if (!store.ok() || (parent == "closed" && !Use(*store))) return 1;
          if (parent == "closed" && !store->Close().ok()) return 2;
          return Ended(Fork([&] {
            const auto refused = [](const absl::Status& status) {
              return absl::IsFailedPrecondition(status) &&
                     std::string(status.message()).find("spawn") !=
                         std::string::npos;
            };
            if (!refused(Store::Open(path(), Options()).status())) return 3;
            if (!refused(Store::Create(dir_ / "other", Options()).status())) {
              return 4;
            }
            absl::StatusOr<Store> reader = Store::Open(path(), ReadOnly());
            if (!reader.ok()) return 5;
            if (!Holds(*reader, 3, large_)) return 6;
            if (!reader->Verify().ok()) return 7;
            return reader->Close().ok() ? 0 : 8;
          }));
        }),
        0)
        << parent;
  }
}

// The save has no end there: each wait says so at once.
TEST_F(ProcessTest, AForkedChildDoesNotWaitForASaveOfItsParent) {
  EXPECT_EQ(InHelper([&] {
              absl::StatusOr<Store> store = Store::Open(path(), Options());
              if (!store.ok()) return 1;
              absl::Notification set;
              StepBuilder builder = store->Begin(1);
              builder.Put("w", WaitingFor(set));
              SaveHandle handle = std::move(builder).Submit();
              const int child = Ended(Fork([&] {
                if (!absl::IsFailedPrecondition(handle.WaitCommitted()))
                  return 2;
                if (!absl::IsFailedPrecondition(handle.WaitStaged())) return 3;
                if (!handle.Done() || !handle.Staged()) return 4;
                int called = 0;
                handle.OnCommitted([&](const absl::Status& status) {
                  called += absl::IsFailedPrecondition(status) ? 1 : 0;
                });
                handle.OnDone([&] { ++called; });
                handle.Cancel();
                if (called != 2) return 5;
                return store->Info().directory.empty() ? 6 : 0;
              }));
              set.Notify();
              if (child != 0) return child;
              return handle.WaitCommitted(kLong).ok() && Save(*store, 2, small_)
                         ? 0
                         : 7;
            }),
            0);
}

TEST_F(ProcessTest, AChildForkedBeforeAnyStoreWasOpenedWrites) {
  std::array<int, 2> opened{};
  ASSERT_EQ(pipe(opened.data()), 0);
  EXPECT_EQ(InHelper([&] {
              const pid_t child = Fork([&] {
                char byte = 0;
                if (read(opened[0], &byte, 1) != 1) return 1;
                absl::StatusOr<Store> store =
                    Store::Open(dir_ / "other", Options());
                if (!store.ok() || !Use(*store)) return 2;
                for (int step = 100; step < 400; ++step) {
                  if (!Save(*store, step, small_)) return 3;
                }
                return store->Close().ok() ? 0 : 4;
              });
              absl::StatusOr<Store> store = Store::Open(path(), Options());
              if (!store.ok() || !Use(*store)) return 10;
              if (write(opened[1], "x", 1) != 1) return 11;
              return Ended(child);
            }),
            0);
}

// A step that the parent reads stays its own whatever its child does to it.
TEST_F(ProcessTest, AForkedChildDoesNotTakeTheLeaseOfItsParentAway) {
  EXPECT_EQ(InHelper([&] {
              std::array<int, 2> reads{}, removed{};
              if (pipe(reads.data()) != 0 || pipe(removed.data()) != 0)
                return 1;
              const pid_t reader = Fork([&] {
                char byte = 0;
                if (read(removed[0], &byte, 1) != 1)
                  return 2;  // There is a store.
                absl::StatusOr<Store> store = Store::Open(path(), ReadOnly());
                if (!store.ok()) return 3;
                absl::StatusOr<Step> step = store->OpenStep(AtStep(1));
                if (!step.ok()) return 4;
                const int child = Ended(Fork([&] {
                  { const Step gone = *std::move(step); }
                  return 0;
                }));
                if (child != 0) return 5;
                if (write(reads[1], "x", 1) != 1) return 6;
                if (read(removed[0], &byte, 1) != 1) return 7;
                const absl::StatusOr<LeafValue> value = step->Value("w");
                return value.ok() && value->bytes == large_ ? 0 : 8;
              });
              StoreOptions options = Options();
              options.collect = false;
              absl::StatusOr<Store> store = Store::Open(path(), options);
              if (!store.ok() || !Save(*store, 1, large_)) return 10;
              if (!Save(*store, 2, small_)) return 11;
              char byte = 0;
              if (write(removed[1], "x", 1) != 1) return 12;
              if (read(reads[0], &byte, 1) != 1) return 13;
              if (!store->Delete(AtStep(1)).ok()) return 14;
              const absl::StatusOr<CollectReport> report = store->Collect();
              if (!report.ok() || report->kept.size() != 1) return 15;
              if (write(removed[1], "x", 1) != 1) return 16;
              return Ended(reader);
            }),
            0);
}

// ---- starting at once ----

// A file of the store under the number of a standard output would be written to
// by whatever the program prints.
TEST_F(ProcessTest, NoFileOfTheStoreIsAStandardStream) {
  const auto streams_are_elsewhere = [] {
    for (int fd = 0; fd < 3; ++fd) {
      std::array<char, 4096> target{};
      const std::string name = absl::StrFormat("/proc/self/fd/%d", fd);
      const ssize_t n =
          readlink(name.c_str(), target.data(), target.size() - 1);
      if (n <= 0 || std::string_view(target.data()) != "/dev/null") {
        return false;
      }
    }
    return true;
  };
  const Bytes bytes = RandomBytes(100'000, 7);
  EXPECT_EQ(InHelper([&] {
              for (int fd = 0; fd < 3; ++fd) close(fd);
              absl::StatusOr<Store> store = Store::Create(path(), Options());
              if (!store.ok() || !Save(*store, 1, bytes)) return 1;
              static_cast<void>(write(1, "output\n", 7));
              static_cast<void>(write(2, "error\n", 6));
              return streams_are_elsewhere() && store->Close().ok() ? 0 : 2;
            }),
            0);
  for (const bool read_only : {true, false}) {
    EXPECT_EQ(InHelper([&] {
                for (int fd = 0; fd < 3; ++fd) close(fd);
                absl::StatusOr<Store> store =
                    Store::Open(path(), read_only ? ReadOnly() : Options());
                if (!store.ok() || !Holds(*store, 1, bytes)) return 1;
                return streams_are_elsewhere() ? 0 : 2;
              }),
              0);
  }
}

TEST_F(ProcessTest, OfManyStartersOneCreatesTheStore) {
  constexpr int kStarters = 16;
  for (const bool waiting : {false, true}) {
    for (int round = 0; round < 12; ++round) {
      const std::string store_path =
          dir_ / absl::StrFormat("store%d-%d", waiting, round);
      std::array<int, 2> start{}, told{};
      ASSERT_EQ(pipe(start.data()), 0);
      ASSERT_EQ(pipe(told.data()), 0);
      std::vector<pid_t> starters;
      for (int i = 0; i < kStarters; ++i) {
        starters.push_back(Fork([&] {
          close(start[1]);
          char byte = 0;
          if (read(start[0], &byte, 1) != 0) return 1;
          StoreOptions options = Options();
          if (waiting) {
            options.lock_wait =
                i % 2 == 0 ? absl::Seconds(kHangs) : absl::InfiniteDuration();
          }
          std::string line;
          {
            const absl::StatusOr<Store> store =
                Store::Open(store_path, options);
            line = store.ok() ? "OK " + store->Info().uuid + "\n"
                              : store.status().ToString() + "\n";
          }
          std::replace(line.begin(), line.end() - 1, '\n', ' ');
          line.resize(std::min<std::size_t>(line.size(), 400));
          line.back() = '\n';
          return write(told[1], line.data(), line.size()) > 0 ? 0 : 2;
        }));
      }
      close(start[0]);
      close(told[1]);
      close(start[1]);  // They are off.
      std::string text;
      std::array<char, 4096> buffer{};
      for (ssize_t n = 0;
           (n = read(told[0], buffer.data(), buffer.size())) > 0;) {
        text.append(buffer.data(), static_cast<std::size_t>(n));
      }
      close(told[0]);
      for (const pid_t starter : starters) EXPECT_EQ(Ended(starter), 0);
      std::map<std::string, int> opened;
      int busy = 0;
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("OK ")) {
          ++opened[line];
        } else {
          EXPECT_THAT(line, HasSubstr("is held by another writer"));
          ++busy;
        }
      }
      EXPECT_EQ(opened.size(), 1u) << text;  // One store, whoever made it.
      if (opened.empty()) continue;
      EXPECT_EQ(opened.begin()->second + busy, kStarters);
      if (waiting) {
        EXPECT_EQ(busy, 0);
      }
    }
  }
}

}  // namespace
}  // namespace ckptree::testing
