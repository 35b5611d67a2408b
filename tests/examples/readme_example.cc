// SPDX-License-Identifier: Apache-2.0

// The C++ of the README, compiled and run; tests/house/readme_test.py compares
// the two.

#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptree/ckptree.h"

namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void SaveAndRestore(const char* directory) {
  std::vector<float> wte(512 * 64, 0.5f);
  // README: begin
  auto store = ckptree::Store::Open(directory, {.create_if_missing = true});
  ckptree::StepBuilder step = store->Begin(1200);
  step.Put("params/wte", {ckptree::DType::kFloat32, {512, 64}, wte.data()});
  step.PutFloat("lr", 3e-4).SetMetric("loss", 2.71);
  ckptree::SaveHandle save = step.Commit();
  // wte is copied and may be changed; the save goes on.
  Check(save.WaitCommitted(absl::Minutes(5)));  // The step is on the disk.
  Check(store->OpenStep(ckptree::Latest())
            ->Read("params/wte", std::as_writable_bytes(std::span(wte))));
  // README: end
  Check(wte[0] == 0.5f ? absl::OkStatus()
                       : absl::DataLossError("not what was saved"));
  Check(store->Close());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  SaveAndRestore(argv[1]);
  return 0;
}
