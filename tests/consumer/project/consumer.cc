// SPDX-License-Identifier: Apache-2.0

// Saves a step, reads it back and lists it; prints the version and the step.

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"
#include "ckptree/history.h"

namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

int Run(const std::string& directory) {
  // The warning of -Wconversion here would be an error: it must not come with
  // ckptree, which has it on for itself.
  const double half = 0.5;
  const float rate = half;
  const std::vector<float> saved = {1, 2, rate, 4};

  auto store = ckptree::Store::Open(directory, {.create_if_missing = true});
  Check(store.status());
  ckptree::StepBuilder step = store->Begin(7);
  step.Put("params/w", {ckptree::DType::kFloat32, {2, 2}, saved.data()});
  ckptree::SaveHandle save = std::move(step).Commit();
  Check(save.WaitCommitted(absl::Minutes(1)));

  std::vector<float> read(saved.size());
  {
    const auto opened = store->OpenStep(ckptree::Latest());
    Check(opened.status());
    Check(opened->Read("params/w", std::as_writable_bytes(std::span(read))));
  }
  if (read != saved) return 2;

  const auto steps = store->Steps();
  Check(steps.status());
  std::printf("%s", std::string(ckptree::Version()).c_str());
  for (const auto& info : *steps) {
    std::printf(" %lld", static_cast<long long>(info.step));
  }
  const auto history =
      ckptree::History(*store, ckptree::Path::Parse("params/w").value(), {});
  Check(history.status());
  std::printf(" %zu\n", history->size());
  Check(store->Close());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? Run(argv[1]) : 3; }
