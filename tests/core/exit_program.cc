// SPDX-License-Identifier: Apache-2.0

// A program that ends while a store or manager that main() does not own is
// open, with a save of step 2 in flight: exit_program WAY DIRECTORY.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"

namespace {

// Made before RocksDB's own statics, so destroyed after them.
std::vector<std::uint8_t> weights;
std::optional<ckptree::Store> global_store;
std::optional<ckptree::CheckpointManager> global_manager;

std::unique_ptr<ckptree::Store>& Singleton() {
  static std::unique_ptr<ckptree::Store> store;
  return store;
}

ckptree::Store Opened(const std::string& directory, bool read_only = false) {
  auto store = ckptree::Store::Open(
      directory,
      {.create_if_missing = !read_only,
       .read_only = read_only,
       .log = [](ckptree::LogSeverity, std::string_view,
                 std::string_view text) { std::cerr << text << "\n"; }});
  if (!store.ok()) {
    std::cerr << store.status() << "\n";
    std::_Exit(3);
  }
  return *std::move(store);
}

ckptree::Tensor Weights() {
  return {.dtype = ckptree::DType::kUint8,
          .shape = {static_cast<std::int64_t>(weights.size())},
          .data = weights.data()};
}

ckptree::SaveHandle Save(ckptree::Store& store, std::int64_t step) {
  ckptree::StepBuilder builder = store.Begin(step);
  builder.Put("w", Weights());
  return std::move(builder).Commit();
}

// Runs after all stores were closed, as it was given to atexit() before the
// first was opened. Ends the program with 0 where no store can be opened then.
std::string late_directory;

void OpenLate() {
  bool refused = true;
  for (const bool read_only : {false, true}) {
    const auto store =
        ckptree::Store::Open(late_directory, {.read_only = read_only});
    refused = refused && absl::IsFailedPrecondition(store.status());
    std::cerr << store.status() << "\n";
  }
  for (const absl::Status& status :
       {ckptree::RemoveStore(late_directory),
        ckptree::Repair(late_directory, {}).status(),
        ckptree::Recover(late_directory, late_directory + "-2", {}).status()}) {
    refused = refused && absl::IsFailedPrecondition(status);
    std::cerr << status << "\n";
  }
  std::_Exit(refused ? 0 : 4);
}

int End(std::string_view way, const std::string& directory) {
  if (way == "reader") {
    global_store = Opened(directory, /*read_only=*/true);
    return global_store->Steps().ok() ? 0 : 3;
  }
  if (way == "manager") {
    auto manager = ckptree::CheckpointManager::Open(directory, {});
    if (!manager.ok()) return 3;
    global_manager = *std::move(manager);
    const auto saved =
        global_manager->Save(2, [](ckptree::StepBuilder& builder) {
          builder.Put("w", Weights());
          return absl::OkStatus();
        });
    if (!saved.ok() || !*saved) return 3;
    return 0;
  }
  if (way == "closed") {
    global_store = Opened(directory);
    static_cast<void>(Save(*global_store, 2));
    return global_store->Close().ok() ? 0 : 3;
  }
  if (way == "late") {
    late_directory = directory;
    static_cast<void>(std::atexit(OpenLate));
  }
  ckptree::Store store = Opened(directory);
  const auto handle = Save(store, 2);
  if (way == "global") global_store = std::move(store);
  if (way == "singleton") {
    Singleton() = std::make_unique<ckptree::Store>(std::move(store));
  }
  if (way == "leaked") new ckptree::Store(std::move(store));
  if (way == "local") {
    static ckptree::Store local = std::move(store);
  }
  if (way == "late") {
    global_store = std::move(store);
    return 5;
  }
  if (way == "thread") {
    std::thread([] { std::exit(0); }).detach();
    while (true) pause();
  }
  if (way == "forked") {
    global_store = std::move(store);
    if (fork() == 0) std::exit(0);  // Nothing there is its own.
  }
  return 0;
}

}  // namespace

int main(int, char** arguments) {
  weights.resize(std::size_t{32} << 20);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<std::uint8_t>((i * 2654435761U) >> 11);
  }
  Singleton();
  return End(arguments[1], arguments[2]);
}
