// SPDX-License-Identifier: Apache-2.0

// memory: what an operation takes beyond the caller's arrays, and what a store
// keeps of a step to compare the next one with. Each is done by a process of
// its own.

#include <malloc.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/cases.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kArrayBytes = 16 << 20;
constexpr std::size_t kLargeBytes = std::size_t{512} << 20;
constexpr std::size_t kQuickBytes = std::size_t{128} << 20;
constexpr std::size_t kSmallLeafBytes = 512;

// A line of /proc/self/status, in bytes.
double StatusBytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) {
      return 1024 * std::atof(line.c_str() + name.size() + 1);
    }
  }
  Fail(name + " is not in /proc/self/status");
}

// How much more than before was resident at any time of `work`.
template <typename Work>
double Growth(Work work) {
  // Resets VmHWM to what is resident now.
  std::ofstream("/proc/self/clear_refs") << "5";
  const double before = StatusBytes("VmRSS");
  work();
  return StatusBytes("VmHWM") - before;
}

// What malloc says is in use, in bytes.
double InUse() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

// What stays for each leaf once `leaves` of them are saved, which all have the
// same bytes of the caller: resident, or in use as malloc says. The one minus
// the other are pages that malloc keeps.
double KeptPerLeaf(const std::string& path, std::size_t leaves, bool in_use) {
  State shared(kSmallLeafBytes);
  Store store = FreshStore(path);
  const auto save = [&](std::int64_t step, std::size_t count) {
    StepBuilder builder = store.Begin(step);
    for (std::size_t i = 0; i < count; ++i) {
      builder.Put(LeafName(i), Floats(shared.bytes()), Ownership::kBorrow);
    }
    Check(std::move(builder).Commit().WaitCommitted(absl::InfiniteDuration()));
    Check(store.Flush(absl::InfiniteDuration()));
  };
  save(0, 1);
  const auto kept = [in_use] {
    malloc_trim(0);
    return in_use ? InUse() : StatusBytes("VmRSS");
  };
  const double before = kept();
  save(1, leaves);
  return (kept() - before) / static_cast<double>(leaves);
}

double Measure(const std::string& what, const std::string& path,
               std::size_t size) {
  if (what == "kept" || what == "in_use") {
    return KeptPerLeaf(path, size, what == "in_use");
  }
  State state(size);
  if (what == "save") {
    Store store = FreshStore(path);
    return Growth(
        [&] { SaveLeaves(store, 0, state, kArrayBytes, Ownership::kBorrow); });
  }
  auto store = Store::Open(path);
  Check(store.status());
  if (what == "restore") {
    const auto step = store->OpenStep(Latest());
    Check(step.status());
    const auto leaves = step->Leaves();
    Check(leaves.status());
    std::vector<ReadRequest> requests(leaves->size());
    for (std::size_t i = 0; i < leaves->size(); ++i) {
      requests[i].path = (*leaves)[i].path;
      requests[i].destination =
          state.bytes().subspan(i * kArrayBytes, kArrayBytes);
    }
    return Growth([&] { Check(step->ReadMany(requests)); });
  }
  if (what == "verify") {
    return Growth([&] {
      VerifyOptions options;
      options.level = VerifyOptions::Level::kDeep;
      const auto report = store->Verify(options);
      Check(report.status());
      if (!report->findings.empty()) Fail(report->findings[0].what);
    });
  }
  Check(store->Delete(0));
  return Growth([&] { Check(store->Collect({}).status()); });
}

// The figure of a process of its own.
double OfAProcess(const Settings& settings, const std::string& what,
                  std::size_t size) {
  const std::string path = settings.directory + "/memory";
  const std::string answer = settings.directory + "/memory_answer";
  const std::string number = std::to_string(size);
  std::vector<const char*> arguments = {
      "/proc/self/exe", "--memory",     what.c_str(), path.c_str(),
      number.c_str(),   answer.c_str(), nullptr};
  pid_t pid = 0;
  int status = 0;
  if (posix_spawn(&pid, arguments.front(), nullptr, nullptr,
                  const_cast<char* const*>(arguments.data()), environ) != 0 ||
      waitpid(pid, &status, 0) != pid || status != 0) {
    Fail("a process that measures its memory failed");
  }
  double figure = 0;
  if (!(std::ifstream(answer) >> figure)) Fail("it gave no figure");
  return figure;
}

}  // namespace

int MemoryAlone(const char* what, const char* path, const char* size,
                const char* answer) {
  const double figure =
      Measure(what, path, static_cast<std::size_t>(std::atoll(size)));
  std::ofstream(answer) << figure << "\n";
  return 0;
}

bool Memory(const Settings& settings) {
  bool good = true;
  const std::size_t bytes = settings.quick ? kQuickBytes : kLargeBytes;
  for (const char* what : {"save", "restore", "verify", "collect"}) {
    const double grown = OfAProcess(settings, what, bytes) / (1 << 20);
    good = Judge(settings, "memory", absl::StrCat(what, ", MiB beside arrays"),
                 {grown}, 96, /*at_least=*/false, /*absolute=*/true) &&
           good;
  }
  std::filesystem::remove_all(settings.directory + "/memory");
  std::vector<std::size_t> counts = {100000};
  if (!settings.quick) counts.push_back(1000000);
  for (const std::size_t leaves : counts) {
    good = Judge(settings, "memory",
                 absl::StrCat("kept of ", leaves, " leaves, bytes each"),
                 {OfAProcess(settings, "kept", leaves)}, 150,
                 /*at_least=*/false, /*absolute=*/true) &&
           good;
    std::filesystem::remove_all(settings.directory + "/memory");
    Print("memory",
          absl::StrCat("the same, in use as malloc says, of ", leaves),
          {OfAProcess(settings, "in_use", leaves)}, "B");
    std::filesystem::remove_all(settings.directory + "/memory");
  }
  return good;
}

}  // namespace ckptree::bench
