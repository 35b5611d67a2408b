// SPDX-License-Identifier: Apache-2.0

// `ckptree demo`: a store to try every command on.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "tools/line/command.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 20;
constexpr std::int64_t kStride = 100;
constexpr std::int64_t kNanStep = 1300;
constexpr std::int64_t kForkStep = 1200;

// The same numbers on every machine: nothing but whole numbers, sums and
// products.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  // In [-1, 1), a multiple of 2^-23.
  float Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(state_ >> 40) / 8388608.0f - 1.0f;
  }

 private:
  std::uint64_t state_;
};

struct Layer {
  const char* name;
  Shape shape;
  bool frozen;
};

const std::vector<Layer>& Layers() {
  static const std::vector<Layer> layers = {
      {"params/embed/table", {1024, 32}, true},
      {"params/block_0/attn/kernel", {32, 96}, false},
      {"params/block_0/mlp/kernel", {32, 64}, false},
      {"params/block_0/mlp/bias", {64}, false},
      {"params/block_1/attn/kernel", {32, 96}, false},
      {"params/block_1/mlp/kernel", {32, 64}, false},
      {"params/block_1/mlp/bias", {64}, false},
      {"params/out/kernel", {32, 96}, false},
      {"params/out/bias", {96}, false},
  };
  return layers;
}

std::vector<float> ValuesOf(std::size_t layer, std::int64_t step,
                            std::uint64_t variant) {
  const Layer& what = Layers()[layer];
  const auto count =
      static_cast<std::size_t>(ElementCount(what.shape).value_or(0));
  std::vector<float> values(count);
  Numbers start(1 + layer);
  for (float& value : values) value = start.Next() * 0.125f;
  // Biases start at zero.
  if (what.shape.size() == 1) std::fill(values.begin(), values.end(), 0.0f);
  if (what.frozen) return values;
  for (std::int64_t at = kStride; at <= step; at += kStride) {
    Numbers update((layer + 1) * 1000003u + static_cast<std::uint64_t>(at) +
                   (at > kForkStep ? variant * 7919u : 0));
    for (float& value : values) value += update.Next() * 0.015625f;
  }
  if (variant == 0 && step == kNanStep) {
    const std::string name = what.name;
    if (name == "params/block_1/attn/kernel" || name == "params/out/kernel") {
      values[5] = std::numeric_limits<float>::quiet_NaN();
      values[77] = std::numeric_limits<float>::quiet_NaN();
    }
    if (name == "params/out/bias") {
      values[3] = std::numeric_limits<float>::infinity();
    }
  }
  return values;
}

// What an optimizer keeps for each weight, two bytes an element.
std::vector<std::uint16_t> MomentsOf(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint16_t> moments(count);
  Numbers numbers(seed);
  for (std::uint16_t& moment : moments) {
    // The upper half of a float32 is a bfloat16.
    moment = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(numbers.Next()) >> 16);
  }
  return moments;
}

absl::Status SaveStep(Store* store, std::int64_t step,
                      const std::string& branch) {
  const std::uint64_t variant = branch.empty() ? 0 : 1;
  const bool bad = variant == 0 && step == kNanStep;
  SaveOptions options;
  options.branch = branch;
  // An hour apart; those of the fork half an hour later.
  options.time = absl::FromUnixSeconds(
      1767225600 + 36 * step + static_cast<std::int64_t>(variant) * 1800);
  StepBuilder builder = store->Begin(step, options);
  std::vector<std::vector<float>> values;
  std::vector<std::vector<std::uint16_t>> moments;
  for (std::size_t i = 0; i < Layers().size(); ++i) {
    const Layer& layer = Layers()[i];
    values.push_back(ValuesOf(i, step, variant));
    builder.Put(layer.name,
                {DType::kFloat32, layer.shape, values.back().data()});
    if (layer.frozen) continue;
    moments.push_back(
        MomentsOf(values.back().size(),
                  static_cast<std::uint64_t>(step) * 31 + i + variant));
    builder.Put(absl::StrFormat("opt/[0]/.mu/%s", layer.name),
                {DType::kBfloat16, layer.shape, moments.back().data()});
  }
  builder.Tie("params/head/kernel", "params/embed/table");
  builder.PutInt("opt/[0]/.count", step);
  builder.PutFloat("lr", variant == 0 ? 0.5 : 0.125);
  builder.PutJson("config", R"({"layers":2,"width":32,"vocabulary":1024})");
  builder.PutString("rng", absl::StrFormat("threefry:%d", step));
  const double at = static_cast<double>(step);
  const double loss =
      1.5 + 3.0 / (1.0 + at / 400.0) - 0.0625 * static_cast<double>(variant);
  builder.SetMetric("loss",
                    bad ? std::numeric_limits<double>::quiet_NaN() : loss);
  builder.SetMetric("accuracy", bad ? 0.0 : at / (at + 800.0));
  if (bad) builder.SetNote("the gradient overflowed");
  if (variant == 0 && step == kNanStep + kStride) {
    builder.SetNote("resumed from step 1200");
  }
  for (const auto& [name, text] : {std::pair("host", "demo"),
                                   {"pid", "1"},
                                   {"command", "train.py"},
                                   {"directory", "/runs/demo"},
                                   {"commit", "0123abc"}}) {
    builder.SetLineage(name, text);
  }
  return std::move(builder).Commit().WaitCommitted();
}

absl::Status Fill(Store* store) {
  for (std::int64_t i = 1; i <= kSteps; ++i) {
    if (Interrupted()) return absl::CancelledError("interrupted");
    absl::Status status = SaveStep(store, i * kStride, "");
    if (!status.ok()) return status;
  }
  absl::Status status = store->Fork(kForkStep, "small-lr");
  for (std::int64_t step = kForkStep + kStride;
       status.ok() && step <= kForkStep + 4 * kStride; step += kStride) {
    status = SaveStep(store, step, "small-lr");
  }
  if (status.ok()) status = store->Tag("warmup", 300);
  if (status.ok()) status = store->Tag("released", 1900);
  if (status.ok()) status = store->Pin(100);
  return status;
}

absl::Status Make(const std::string& directory) {
  StoreOptions options;
  options.collect = false;
  // What goes wrong is in the status.
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  absl::StatusOr<Store> store = Store::Create(directory, std::move(options));
  if (!store.ok()) return store.status();
  CKPTREE_RETURN_IF_ERROR(Fill(&*store));
  return store->Close();
}

// Whether nothing is in `directory`, be it there or not.
bool IsFree(const std::string& directory) {
  std::error_code error;
  return !fs::exists(directory, error)
             ? !error
             : fs::is_empty(directory, error) && !error;
}

// What is in a folder that was free, and the folder where `made`.
void Remove(const std::string& directory, bool made) {
  std::error_code error;
  std::vector<fs::path> inside;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    inside.push_back(it->path());
  }
  for (const fs::path& path : inside) fs::remove_all(path, error);
  if (made) fs::remove(directory, error);
}

}  // namespace

absl::StatusOr<int> RunDemo(Session& session) {
  const std::string& directory = session.words()[0];
  const bool free = IsFree(directory);
  std::error_code unknown;
  const bool made = !fs::exists(directory, unknown);
  {
    const Interruptible interruptible;
    const absl::Status status = Make(directory);
    if (!status.ok() && !free) {
      return WithHint(status,
                      "name a folder that is not there yet, or is empty");
    }
    if (!status.ok()) {
      // Unless it is of another process, which was faster.
      const bool others =
          absl::IsAlreadyExists(status) || absl::IsUnavailable(status);
      if (!others) Remove(directory, made);
      return status;
    }
  }
  const std::string shown = Escape(directory);
  session.out().Write(
      absl::StrFormat("%d steps, and 4 of the branch small-lr, in %s. Try:\n\n"
                      "  export CKPTREE_STORE=%s\n"
                      "  ckptree log --graph\n"
                      "  ckptree find 'nan>0'\n"
                      "  ckptree history params/out/kernel 1000..\n"
                      "  ckptree blame --where 'since<2000'\n"
                      "  ckptree diff 1200 small-lr/1600\n"
                      "  ckptree hist params/out/bias 100 2000\n",
                      kSteps, shown, ShellWord(directory)));
  return kExitOk;
}

}  // namespace ckptree::tools
