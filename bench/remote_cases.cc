// SPDX-License-Identifier: Apache-2.0

// Stores in an object store, beside requests of the same bytes by the same
// library. The server is in the environment: tests/objects/servers.py starts
// one.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "bench/cases.h"
#include "bench/counted_store.h"
#include "bench/state.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLeaf = 16 * kMiB;
// Of raw requests: as large and as many at once as is fast.
constexpr std::size_t kRawPut = 64 * kMiB;
constexpr std::size_t kRawPutsAtOnce = 4;
constexpr std::size_t kRawGet = 12 * kMiB;
constexpr std::size_t kRawGetsAtOnce = 16;

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) {
    Fail(absl::StrFormat(
        "%s is not set: bench/run remote starts a server and sets it", name));
  }
  return value;
}

std::size_t StateBytes(const Settings& settings) {
  if (settings.mib != 0) return settings.mib * kMiB / kLeaf * kLeaf;
  return settings.quick ? 64 * kMiB : 512 * kMiB;
}

int Repeats(const Settings& settings) { return settings.quick ? 3 : 5; }

kv::Call Patience() { return kv::Call::Within(absl::Minutes(5)); }

// Names of this process that nothing else has.
std::string FreshAddress(const std::string& what) {
  static std::atomic<int> count = 0;
  return absl::StrFormat("s3://%s/%s-%s-%d", Environment("CKPTREE_TEST_BUCKET"),
                         what, kv::NewWriteId().substr(0, 8), count++);
}

StoreOptions With(const std::string& address, Durable durable) {
  StoreOptions options;
  options.create_if_missing = true;
  options.remote = address;
  options.durable = durable;
  options.take_over = true;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  return options;
}

Store OpenThere(const std::string& address) {
  StoreOptions options;
  options.create_if_missing = false;
  options.read_only = true;
  auto store = Store::Open(address, options);
  Check(store.status());
  return *std::move(store);
}

Store OpenHere(const std::string& directory, const StoreOptions& options) {
  std::filesystem::remove_all(directory);
  auto store = Store::Open(directory, options);
  Check(store.status());
  return *std::move(store);
}

class Bytes : public kv::ObjectSource {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override {
    std::memcpy(into.data(), bytes_.data() + offset, into.size());
    return absl::OkStatus();
  }

 private:
  const std::span<const std::byte> bytes_;
};

// Calls work(i) for each i below `count`, so many at once.
template <typename Work>
void AtOnce(std::size_t threads, std::size_t count, Work work) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> others;
  for (std::size_t t = 0; t < std::min(threads, count); ++t) {
    others.emplace_back([&] {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    });
  }
}

class RawRequests {
 public:
  RawRequests()
      : store_(
            kv::OpenObjectStore(FreshAddress("raw"), {}, Patience()).value()) {}

  double Put(std::span<const std::byte> bytes) {
    const std::string name = absl::StrFormat("put-%d", count_++);
    const Stopwatch watch;
    const std::size_t objects = (bytes.size() + kRawPut - 1) / kRawPut;
    AtOnce(kRawPutsAtOnce, objects, [&](std::size_t i) {
      const Bytes some(bytes.subspan(
          i * kRawPut, std::min(kRawPut, bytes.size() - i * kRawPut)));
      Check(store_->Put(absl::StrFormat("%s-%d", name, i), some, Patience()));
    });
    const double seconds = watch.Seconds();
    last_ = name;
    return seconds;
  }
  // What was put last.
  double Get(std::span<std::byte> into) {
    const Stopwatch watch;
    const std::size_t per = kRawPut / kRawGet + 1;
    const std::size_t objects = (into.size() + kRawPut - 1) / kRawPut;
    AtOnce(kRawGetsAtOnce, objects * per, [&](std::size_t i) {
      const std::size_t begin = i / per * kRawPut;
      const std::size_t offset = i % per * kRawGet;
      const std::size_t end =
          std::min({kRawPut, into.size() - begin, offset + kRawGet});
      if (offset >= end) return;
      const auto read = store_->GetRange(
          absl::StrFormat("%s-%d", last_, i / per), offset,
          into.subspan(begin + offset, end - offset), Patience());
      Check(read.status());
      if (*read != end - offset) Fail("a raw GET came short");
    });
    return watch.Seconds();
  }
  double PutOne(std::span<const std::byte> bytes) {
    const Stopwatch watch;
    Check(store_->Put(absl::StrFormat("one-%d", count_++), Bytes(bytes),
                      Patience()));
    return watch.Seconds();
  }
  double GetOne(std::span<std::byte> into) {
    const Stopwatch watch;
    Check(store_->GetRange(last_ + "-0", 0, into, Patience()).status());
    return watch.Seconds();
  }

 private:
  const std::unique_ptr<kv::ObjectStore> store_;
  int count_ = 0;
  std::string last_;
};

void ReadAll(Store& store, std::int64_t step, State& into) {
  const auto opened = store.OpenStep(step);
  Check(opened.status());
  std::vector<ReadRequest> requests;
  for (std::size_t i = 0; i < into.bytes().size() / kLeaf; ++i) {
    requests.push_back({.path = Path::Parse(LeafName(i)).value(),
                        .destination = into.bytes().subspan(i * kLeaf, kLeaf)});
  }
  Check(opened->ReadMany(requests));
}

// The server, and a cache that no one else has.
void UseServer(const Settings& settings) {
  setenv("AWS_ENDPOINT_URL_S3", Environment("CKPTREE_TEST_S3").c_str(), 1);
  setenv("XDG_CACHE_HOME",
         std::filesystem::absolute(settings.directory + "/cache").c_str(), 1);
}

void ForgetCache(const Settings& settings) {
  std::filesystem::remove_all(settings.directory + "/cache");
}

}  // namespace

bool RemoteLarge(const Settings& settings) {
  UseServer(settings);
  const std::size_t bytes = StateBytes(settings);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  State state(bytes);
  State read(bytes);
  RawRequests raw;
  std::vector<double> put, save, get, restore;
  const std::string address = FreshAddress("large");
  {
    // Random bits: nothing is to be coded, here and there.
    StoreOptions options = With(address, Durable::kRemote);
    options.coding = Coding::kNone;
    Store store = OpenHere(settings.directory + "/large", options);
    for (int i = 0; i < Repeats(settings); ++i) {
      state.Touch(kMiB, static_cast<std::uint64_t>(i) + 1);
      const double before = raw.Put(state.bytes());
      const double took =
          SaveLeaves(store, i, state, kLeaf, Ownership::kBorrow);
      const double after = raw.Put(state.bytes());
      put.push_back(gigabytes * 2 / (before + after));
      save.push_back(gigabytes / took);
      // Of a machine that has nothing of it.
      ForgetCache(settings);
      const double get_before = raw.Get(read.bytes());
      {
        Store reader = OpenThere(address);
        const Stopwatch watch;
        ReadAll(reader, i, read);
        restore.push_back(gigabytes / watch.Seconds());
        Check(reader.Close());
      }
      if (std::memcmp(read.bytes().data(), state.bytes().data(), bytes) != 0) {
        Fail("a restore gave other bytes");
      }
      get.push_back(gigabytes * 2 / (get_before + raw.Get(read.bytes())));
    }
    Check(store.Close());
  }
  const std::string size = absl::StrFormat("%d MiB", bytes / kMiB);
  const bool saved = Report(settings, {.name = "remote_large",
                                       .what = size + " saved, durable there",
                                       .unit = "GB/s",
                                       .values = save,
                                       .beside = "raw PUTs",
                                       .beside_values = put,
                                       .floor = 0.85});
  return Report(settings, {.name = "remote_large",
                           .what = size + " restored by the address",
                           .unit = "GB/s",
                           .values = restore,
                           .beside = "raw ranged GETs",
                           .beside_values = get,
                           .floor = 0.85}) &&
         saved;
}

bool RemoteSmall(const Settings& settings) {
  UseServer(settings);
  constexpr std::size_t kSmall = std::size_t{64} << 10;
  const int saves = settings.quick ? 10 : 60;
  RawRequests raw;
  Requests requests;
  std::vector<double> seconds, one, count, uploaded;
  {
    Store store = OpenHere(settings.directory + "/small",
                           With(FreshAddress("small"), Durable::kRemote));
    State state(kSmall);
    SaveLeaves(store, 0, state, kSmall, Ownership::kBorrow);
    requests.Reset();
    for (int i = 1; i <= saves; ++i) {
      state.Touch(kSmall / 16, static_cast<std::uint64_t>(i));
      one.push_back(1e3 * raw.PutOne(state.bytes()));
      seconds.push_back(
          1e3 * SaveLeaves(store, i, state, kSmall, Ownership::kBorrow));
    }
    Check(store.WaitReplicated(absl::Minutes(5)));
    count.push_back(requests.count() / saves);
    Check(store.Close());
  }
  {
    const std::size_t bytes = StateBytes(settings);
    constexpr std::size_t kChunk = 4 * kMiB;
    State state(bytes);
    StoreOptions options = With(FreshAddress("changes"), Durable::kRemote);
    Store store = OpenHere(settings.directory + "/changes", options);
    SaveLeaves(store, 0, state, kLeaf, Ownership::kBorrow);
    const std::size_t changed = std::max<std::size_t>(1, bytes / kChunk / 100);
    for (int i = 1; i <= Repeats(settings); ++i) {
      for (std::size_t c = 0; c < changed; ++c) {
        state.bytes()[(c * 100 + static_cast<std::size_t>(i)) * kChunk %
                      bytes] ^= std::byte{1};
      }
      Check(store.WaitReplicated(absl::Minutes(5)));
      requests.Reset();
      SaveLeaves(store, i, state, kLeaf, Ownership::kBorrow);
      Check(store.WaitReplicated(absl::Minutes(5)));
      const StepInfo info = store.Steps().value().back();
      uploaded.push_back(requests.bytes_put() /
                         static_cast<double>(info.new_bytes));
    }
    Check(store.Close());
  }
  bool good = Report(settings, {.name = "remote_small",
                                .what = "a save of 64 KiB, durable there",
                                .unit = "ms",
                                .values = seconds,
                                .beside = "one raw PUT",
                                .beside_values = one});
  good &= Report(settings, {.name = "remote_small",
                            .what = "requests of a save of 64 KiB",
                            .unit = "",
                            .values = count,
                            .floor = 2,
                            .at_least = false});
  return Report(settings,
                {.name = "remote_small",
                 .what = "1 % of the chunks changed: uploaded / changed",
                 .unit = "x",
                 .values = uploaded,
                 .floor = 1.05,
                 .at_least = false}) &&
         good;
}

bool RemoteOpen(const Settings& settings) {
  UseServer(settings);
  const int steps = settings.quick ? 500 : 10'000;
  const std::string address = FreshAddress("steps");
  {
    Store store =
        OpenHere(settings.directory + "/steps", With(address, Durable::kLocal));
    for (int step = 1; step <= steps; ++step) {
      StepBuilder builder = store.Begin(step);
      builder.PutInt("count", step);
      Check(builder.Commit().WaitCommitted(absl::InfiniteDuration()));
    }
    Check(store.WaitReplicated(absl::Minutes(5)));
    Check(store.Close());
  }
  // Leaves of a step whose segments nobody has.
  const std::string leaves = FreshAddress("leaves");
  State state(settings.quick ? 64 * kMiB : 256 * kMiB);
  RawRequests raw;
  raw.Put(state.bytes());
  {
    Store store = OpenHere(settings.directory + "/leaves",
                           With(leaves, Durable::kRemote));
    SaveLeaves(store, 1, state, 4 * kMiB, Ownership::kBorrow);
    Check(store.Close());
  }
  Requests requests;
  std::vector<double> open, opens, again, leaf, leaf_requests, get, look;
  State one(4 * kMiB);
  for (int i = 0; i < Repeats(settings); ++i) {
    ForgetCache(settings);
    requests.Reset();
    Stopwatch watch;
    Store store = OpenThere(address);
    if (store.Steps().value().size() != static_cast<std::size_t>(steps)) {
      Fail("an open found other steps");
    }
    open.push_back(1e3 * watch.Seconds());
    opens.push_back(requests.count());
    requests.Reset();
    Check(store.Refresh());
    look.push_back(requests.count());
    Check(store.Close());
    const Stopwatch second;
    Store warm = OpenThere(address);
    again.push_back(1e3 * second.Seconds());
    Check(warm.Close());

    get.push_back(1e3 * raw.GetOne(one.bytes()));
    Store reader = OpenThere(leaves);
    const auto step = reader.OpenStep(1);
    Check(step.status());
    requests.Reset();
    const Stopwatch reading;
    Check(step->Read(LeafName(static_cast<std::size_t>(i)), one.bytes()));
    leaf.push_back(1e3 * reading.Seconds());
    leaf_requests.push_back(requests.count());
    Check(reader.Close());
  }
  const std::string of = absl::StrFormat("open of %d steps", steps);
  bool good = Report(settings, {.name = "remote_open",
                                .what = of + " with an empty cache",
                                .unit = "ms",
                                .values = open});
  good &= Report(settings, {.name = "remote_open",
                            .what = "requests of that",
                            .unit = "",
                            .values = opens,
                            .floor = 10,
                            .at_least = false});
  good &= Report(settings, {.name = "remote_open",
                            .what = "the same with its rows in the cache",
                            .unit = "ms",
                            .values = again});
  good &= Report(settings, {.name = "remote_open",
                            .what = "requests of a look at what is new",
                            .unit = "",
                            .values = look,
                            .floor = 1,
                            .at_least = false});
  good &= Report(settings, {.name = "remote_open",
                            .what = "a leaf of 4 MiB, nothing of it here",
                            .unit = "ms",
                            .values = leaf,
                            .beside = "one raw GET",
                            .beside_values = get});
  return Report(settings, {.name = "remote_open",
                           .what = "requests of that leaf",
                           .unit = "",
                           .values = leaf_requests,
                           .floor = 2,
                           .at_least = false}) &&
         good;
}

bool RemoteBeside(const Settings& settings) {
  UseServer(settings);
  State state(StateBytes(settings));
  const double gigabytes = static_cast<double>(state.bytes().size()) / 1e9;
  std::vector<double> with, without;
  {
    StoreOptions options = With(FreshAddress("beside"), Durable::kLocal);
    options.coding = Coding::kNone;
    Store shipping = OpenHere(settings.directory + "/with", options);
    Store alone = FreshStore(settings.directory + "/without");
    for (int i = 0; i < 2 * Repeats(settings); ++i) {
      state.Touch(kMiB, static_cast<std::uint64_t>(i) + 1);
      // The backlog of the first is shipped beside the next saves of both.
      with.push_back(gigabytes /
                     SaveLeaves(shipping, i, state, kLeaf, Ownership::kBorrow));
      state.Touch(kMiB, static_cast<std::uint64_t>(i) + 1001);
      without.push_back(gigabytes /
                        SaveLeaves(alone, i, state, kLeaf, Ownership::kBorrow));
    }
    Check(shipping.WaitReplicated(absl::Minutes(10)));
    Check(shipping.Close());
  }
  return Report(settings, {.name = "remote_beside",
                           .what = "a local save beside replication",
                           .unit = "GB/s",
                           .values = with,
                           .beside = "without",
                           .beside_values = without,
                           .floor = 0.9});
}

}  // namespace ckptree::bench
