// SPDX-License-Identifier: Apache-2.0

// space: what coding saves of a trained state, and what it costs.

#include <ctime>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cases.h"
#include "bench/state.h"
#include "bench/trained_state.h"
#include "core/coding/block_coder.h"
#include "core/coding/block_decoder.h"
#include "core/engine/engine.h"
#include "core/engine/store_engine.h"
#include "kv/testing/slow_disk.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kChunk = std::size_t{4} << 20;
constexpr std::uint64_t kDiskBytesPerSecond = 500'000'000;

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

struct Array {
  std::string name;
  DType dtype;
  std::span<const std::byte> bytes;
};

std::vector<Array> ArraysOf(const TrainedState& state) {
  return {
      {"weights", DType::kBfloat16, std::as_bytes(std::span(state.weights))},
      {"master", DType::kFloat32, std::as_bytes(std::span(state.master))},
      {"m", DType::kFloat32, std::as_bytes(std::span(state.m))},
      {"v", DType::kFloat32, std::as_bytes(std::span(state.v))}};
}

// The arrays `copies` times, lent.
double SaveCopies(Store& store, std::int64_t step,
                  const std::vector<Array>& arrays, int copies) {
  const Stopwatch watch;
  StepBuilder builder = store.Begin(step);
  for (int i = 0; i < copies; ++i) {
    for (const Array& array : arrays) {
      Tensor tensor;
      tensor.dtype = array.dtype;
      tensor.size_bytes = array.bytes.size();
      tensor.shape = {static_cast<std::int64_t>(array.bytes.size()) /
                      (array.dtype == DType::kBfloat16 ? 2 : 4)};
      tensor.data = array.bytes.data();
      builder.Put(absl::StrFormat("%s/%d", array.name, i), tensor,
                  Ownership::kBorrow);
    }
  }
  Check(std::move(builder).Commit().WaitCommitted(absl::InfiniteDuration()));
  return watch.Seconds();
}

Store StoreOn(std::shared_ptr<void> file_system, const std::string& path,
              Coding coding) {
  std::filesystem::remove_all(path);
  StoreOptions options;
  options.coding = coding;
  auto engine = internal::Engine::Create(
      path, {.store = options, .file_system = std::move(file_system)});
  Check(engine.status());
  return internal::StoreEngine::StoreOf(*std::move(engine));
}

// Every save into a store of its own: nothing is shared. Seconds.
double SaveFresh(const Settings& settings, bool slow, Coding coding,
                 const std::vector<Array>& arrays, int copies,
                 UsageReport* usage = nullptr) {
  const std::string path = settings.directory + "/space";
  Store store = StoreOn(slow ? kv::MakeSlowDisk(kDiskBytesPerSecond) : nullptr,
                        path, coding);
  const double seconds = SaveCopies(store, 1, arrays, copies);
  if (usage != nullptr) {
    auto found = store.Usage();
    Check(found.status());
    *usage = *std::move(found);
  }
  Check(store.Close());
  std::filesystem::remove_all(path);
  return seconds;
}

}  // namespace

bool Space(const Settings& settings) {
  const TrainedState state =
      Train(TextOfThisMachine(4 << 20), settings.quick ? 100 : 300);
  Print("space", "loss of the training, first", {state.first_loss}, "");
  Print("space", "and last", {state.loss}, "");
  const std::vector<Array> arrays = ArraysOf(state);
  std::size_t state_bytes = 0;
  for (const Array& array : arrays) state_bytes += array.bytes.size();

  // The coder alone, on one core.
  internal::BlockCoder coder;
  internal::BlockDecoder decoder;
  double coding = 0, decoding = 0;
  std::vector<double> encode, decode;
  for (int round = 0; round < (settings.quick ? 3 : 7); ++round) {
    coding = decoding = 0;
    for (const Array& array : arrays) {
      std::size_t coded_to = 0;
      for (std::size_t at = 0; at < array.bytes.size(); at += kChunk) {
        const auto chunk =
            array.bytes.subspan(at, std::min(kChunk, array.bytes.size() - at));
        const base::Digest digest = base::DigestOf(chunk);
        double start = ThreadSeconds();
        const std::string_view coded = coder.Encode(chunk, digest);
        coding += ThreadSeconds() - start;
        coded_to += coded.empty() ? chunk.size() : coded.size();
        if (coded.empty()) continue;
        std::vector<std::byte> back(chunk.size(), std::byte{1});
        start = ThreadSeconds();
        Check(decoder.Decode(coded, back));
        decoding += ThreadSeconds() - start;
        if (!std::ranges::equal(back, chunk)) Fail("space: other bytes");
      }
      if (round == 0) {
        Print("space", "ratio of " + array.name,
              {static_cast<double>(array.bytes.size()) /
               static_cast<double>(coded_to)},
              "x");
      }
    }
    encode.push_back(static_cast<double>(state_bytes) / 1e9 / coding);
    decode.push_back(static_cast<double>(state_bytes) / 1e9 / decoding);
  }
  Print("space", "coding, one core", encode, "GB/s");

  const int copies = static_cast<int>(
      (settings.quick ? std::size_t{128} << 20 : std::size_t{512} << 20) /
      state_bytes);
  const double gigabytes =
      static_cast<double>(state_bytes) * static_cast<double>(copies) / 1e9;
  std::vector<double> faster, plain, coded, fast_plain, fast_coded, cost;
  UsageReport usage;
  for (int round = 0; round < 3; ++round) {
    const double p = SaveFresh(settings, true, Coding::kNone, arrays, copies);
    const double c =
        SaveFresh(settings, true, Coding::kPlanes, arrays, copies, &usage);
    plain.push_back(gigabytes / p);
    coded.push_back(gigabytes / c);
    faster.push_back(p / c);
    const double fp = SaveFresh(settings, false, Coding::kNone, arrays, copies);
    const double fc =
        SaveFresh(settings, false, Coding::kPlanes, arrays, copies);
    fast_plain.push_back(gigabytes / fp);
    fast_coded.push_back(gigabytes / fc);
    cost.push_back(fc / fp);
  }
  Print("space", "save to a disk of 0.5 GB/s, plain", plain, "GB/s");
  Print("space", "the same, coded", coded, "GB/s");
  Print("space", "save to this disk, plain", fast_plain, "GB/s");
  Print("space", "the same, coded", fast_coded, "GB/s");
  Print("space", "coded save / plain save, this disk", cost, "x");
  bool good = Judge(settings, "space", "ratio of the whole state",
                    {static_cast<double>(usage.living_bytes) /
                     static_cast<double>(usage.living_stored_bytes)},
                    1.38, /*at_least=*/true);
  good &= Judge(settings, "space", "decoding, one core, GB/s", decode, 4,
                /*at_least=*/true, /*absolute=*/true);
  return Judge(settings, "space", "plain save / coded save, 0.5 GB/s", faster,
               1.18, /*at_least=*/true) &&
         good;
}

}  // namespace ckptree::bench
