// SPDX-License-Identifier: Apache-2.0

// ckptree_beside DIR LEAVES LEAF_BYTES: does, when it is asked to, what
// the benchmarks of the Python package are measured beside: raw I/O, and the
// same work by the engine without Python. A process of its own, so that the two
// take turns within one run. What it leaves behind does not burden whoever is
// next: nothing of its files stays in the page cache.
//
// Reads one word a line; writes the seconds it took:
//   raw_write, raw_read, copy       2 threads, all bytes of the state
//   save_fresh                      durable, lent, into a new store
//   save_aged                       into one that holds steps; all is changed
//   restore                         cold, opening included, into fresh memory
//   leaf                            one leaf by name, warm; p50 of 1000

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/fresh_memory.h"
#include "bench/measure.h"
#include "bench/raw_io.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr int kAge = 2;  // Steps that an aged store holds before a save.

class Beside {
 public:
  Beside(std::string directory, std::size_t leaves, std::size_t leaf_bytes)
      : directory_(std::move(directory)),
        leaf_bytes_(leaf_bytes),
        state_(leaves * leaf_bytes) {}

  double Do(const std::string& what) {
    if (what == "raw_write") return RawWrite(directory_, state_.bytes());
    if (what == "raw_read") return RawRead(directory_, Pool());
    if (what == "copy") return CopyPass(state_.bytes(), Pool());
    if (what == "save_fresh") return SaveFresh();
    if (what == "save_aged") return SaveAged();
    if (what == "restore") return Restore();
    if (what == "leaf") return Leaf();
    Fail("what is " + what + "?");
  }

 private:
  std::string StorePath() const { return directory_ + "/engine"; }

  // Memory that was touched before.
  std::span<std::byte> Pool() {
    if (pool_ == nullptr)
      pool_ = std::make_unique<State>(state_.bytes().size());
    return pool_->bytes();
  }

  double Save(Store& store, std::int64_t step) {
    // Every chunk.
    state_.Touch(std::min<std::size_t>(leaf_bytes_, 1 << 20),
                 static_cast<std::uint64_t>(++saves_));
    return SaveLeaves(store, step, state_, leaf_bytes_, Ownership::kBorrow);
  }

  double SaveFresh() {
    const std::string path = directory_ + "/engine_fresh";
    double seconds = 0;
    {
      Store store = FreshStore(path);
      seconds = Save(store, 0);
    }
    std::filesystem::remove_all(path);
    return seconds;
  }

  double SaveAged() {
    if (!store_.has_value()) {
      store_ = FreshStore(StorePath());
      while (step_ < kAge) Save(*store_, step_++);
    }
    const double seconds = Save(*store_, step_++);
    Check(store_->Delete({AtStep(step_ - 1 - kAge)}));
    Check(store_->Collect({}).status());
    ForgetFiles(StorePath());
    return seconds;
  }

  double Restore() {
    if (!store_.has_value()) SaveAged();
    ForgetFiles(StorePath());
    const Stopwatch watch;
    FreshMemory memory(state_.bytes().size());
    auto store = Store::Open(StorePath(), {.read_only = true});
    Check(store.status());
    auto step = store->OpenStep(Latest());
    Check(step.status());
    auto leaves = step->Leaves();
    Check(leaves.status());
    std::vector<ReadRequest> requests(leaves->size());
    for (std::size_t i = 0; i < leaves->size(); ++i) {
      requests[i].path = (*leaves)[i].path;
      requests[i].destination =
          memory.bytes().subspan(i * leaf_bytes_, leaf_bytes_);
    }
    Check(step->ReadMany(requests));
    const double seconds = watch.Seconds();
    ForgetFiles(StorePath());
    return seconds;
  }

  double Leaf() {
    if (!store_.has_value()) SaveAged();
    auto step = store_->OpenStep(Latest());
    Check(step.status());
    auto leaves = step->Leaves();
    Check(leaves.status());
    std::mt19937_64 random(3);
    std::vector<std::byte> value(leaf_bytes_);
    std::vector<double> seconds;
    for (int i = 0; i < 1000; ++i) {
      const LeafInfo& leaf = (*leaves)[random() % leaves->size()];
      const Stopwatch watch;
      Check(step->Read(leaf.path, value));
      seconds.push_back(watch.Seconds());
    }
    return Median(seconds);
  }

  const std::string directory_;
  const std::size_t leaf_bytes_;
  State state_;
  std::unique_ptr<State> pool_;
  std::optional<Store> store_;
  std::int64_t step_ = 0;
  int saves_ = 0;
};

}  // namespace
}  // namespace ckptree::bench

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: ckptree_beside DIR LEAVES LEAF_BYTES\n");
    return 2;
  }
  ckptree::bench::Beside beside(argv[1], std::strtoull(argv[2], nullptr, 10),
                                std::strtoull(argv[3], nullptr, 10));
  std::string what;
  while (std::getline(std::cin, what)) {
    std::printf("%.9f\n", beside.Do(what));
    std::fflush(stdout);
  }
  return 0;
}
