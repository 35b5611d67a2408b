// SPDX-License-Identifier: Apache-2.0

// Fuzzes the text of policies. An input is a number of steps and the text.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/preservation.h"
#include "tests/fuzz/require.h"

namespace ckptree::fuzz {
namespace {

void FuzzPolicy(int count, std::string_view text) {
  const absl::StatusOr<Preservation> policy = ParsePreservation(text);
  if (!policy.ok()) return RequireInvalid(policy.status());
  // What is written is read as the same policy.
  const std::string written = Text(*policy);
  const absl::StatusOr<Preservation> again = ParsePreservation(written);
  Require(again.ok(), "what is written can be read");
  Require(Text(*again) == written, "and is written the same");

  std::vector<std::vector<std::pair<std::string, double>>> metrics;
  for (int i = 0; i < count; ++i) {
    metrics.push_back({{"loss", i % 5 == 3 ? std::nan("") : 1.0 / (i + 1)}});
  }
  std::vector<PolicyStep> steps;
  for (int i = 0; i < count; ++i) {
    steps.push_back({.step = i * i,
                     .time = absl::FromUnixSeconds(i * 1000),
                     .metrics = metrics[static_cast<std::size_t>(i)],
                     .healthy = i % 3 != 2});
  }
  PreservationContext context;
  context.oldest_beyond =
      [](std::uint64_t bytes) -> absl::StatusOr<std::size_t> {
    return static_cast<std::size_t>(bytes % 100);
  };
  const auto kept = Preserve(*policy, steps, context);
  const auto kept_again = Preserve(*again, steps, context);
  const auto why = Explain(*policy, steps, context);
  if (!MissingFunction(*policy).empty()) {
    Require(!kept.ok() && !why.ok(), "without its function nothing is decided");
    return;
  }
  Require(kept.ok() && kept_again.ok() && why.ok(), "a policy decides");
  Require(kept->size() == steps.size(), "one answer a step");
  Require(*kept == *kept_again, "the same decisions");
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Require((*kept)[i] == !(*why)[i].empty(), "what is kept has a reason");
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size == 0) return 0;
  ckptree::fuzz::FuzzPolicy(data[0] % 40,
                            ckptree::fuzz::TextOf(data + 1, size - 1));
  return 0;
}
