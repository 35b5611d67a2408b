// SPDX-License-Identifier: Apache-2.0

// Saves a step, reads it back and lists it; prints the version and the step. Of
// an address, like s3://bucket/run, prints why it cannot be opened.

#include <cstddef>
#include <cstdint>
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

// Each of them is in the library, and nothing of it is in the header.
template <typename... T>
bool ReadsAs(const ckptree::Step& step) {
  int read = 0;
  ((read += step.Read<T>("params/w").ok() ? 1 : 0), ...);
  return read == 1;  // As std::vector<float>.
}

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
    const bool as_floats =
        ReadsAs<bool, std::int64_t, double, std::string, std::vector<float>,
                std::vector<double>, std::vector<std::int8_t>,
                std::vector<std::int16_t>, std::vector<std::int32_t>,
                std::vector<std::int64_t>, std::vector<std::uint8_t>,
                std::vector<std::uint16_t>, std::vector<std::uint32_t>,
                std::vector<std::uint64_t>>(*opened);
    if (!as_floats) return 3;
    if (opened->Read<std::vector<float>>("params/w").value() != saved) return 4;
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

int Refused(const std::string& address) {
  const auto store = ckptree::Store::Open(address, {.read_only = true});
  std::printf("%s\n", store.status().ToString().c_str());
  return store.ok() ? 5 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 3;
  const std::string store = argv[1];
  return store.find("://") == store.npos ? Run(store) : Refused(store);
}
