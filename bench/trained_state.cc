// SPDX-License-Identifier: Apache-2.0

#include "bench/trained_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>

#include "bench/measure.h"

namespace ckptree::bench {
namespace {

constexpr std::size_t kBytes = 256;  // Values of a byte.
constexpr std::size_t kContext = 16;
constexpr std::size_t kEmbed = 32;
constexpr std::size_t kInput = kContext * kEmbed;
constexpr std::size_t kHidden = 768;
constexpr std::size_t kBatch = 32;

// Where the matrices stand among the parameters.
constexpr std::size_t kEmbedding = 0;
constexpr std::size_t kFirst = kEmbedding + kBytes * kEmbed;
constexpr std::size_t kSecond = kFirst + kInput * kHidden;
constexpr std::size_t kOut = kSecond + kHidden * kHidden;
constexpr std::size_t kParameters = kOut + kHidden * kBytes;

std::uint16_t Rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float Widened(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// out (n x cols) += a (n x rows) * w (rows x cols).
void Multiply(const float* a, const float* w, std::size_t rows,
              std::size_t cols, float* out) {
  for (std::size_t n = 0; n < kBatch; ++n) {
    for (std::size_t r = 0; r < rows; ++r) {
      const float x = a[n * rows + r];
      if (x == 0) continue;
      for (std::size_t c = 0; c < cols; ++c) {
        out[n * cols + c] += x * w[r * cols + c];
      }
    }
  }
}

// What `up` (n x cols) says of w and of a.
void Back(const float* a, const float* w, const float* up, std::size_t rows,
          std::size_t cols, float* of_w, float* of_a) {
  for (std::size_t n = 0; n < kBatch; ++n) {
    const float* const u = up + n * cols;
    for (std::size_t r = 0; r < rows; ++r) {
      const float x = a[n * rows + r];
      float sum = 0;
      for (std::size_t c = 0; c < cols; ++c) {
        of_w[r * cols + c] += x * u[c];
        sum += u[c] * w[r * cols + c];
      }
      of_a[n * rows + r] = sum;
    }
  }
}

void Relu(std::vector<float>* values) {
  for (float& value : *values) value = std::max(value, 0.0f);
}

void BackRelu(const std::vector<float>& values, std::vector<float>* up) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] <= 0) (*up)[i] = 0;
  }
}

}  // namespace

TrainedState Train(const std::string& text, int steps) {
  std::mt19937 random(7);
  TrainedState state;
  state.master.resize(kParameters);
  state.m.resize(kParameters);
  state.v.resize(kParameters);
  state.weights.resize(kParameters);
  for (std::size_t i = 0; i < kParameters; ++i) {
    const auto inputs = static_cast<float>(i < kFirst    ? kEmbed
                                           : i < kSecond ? kInput
                                                         : kHidden);
    state.master[i] =
        std::normal_distribution<float>(0, std::sqrt(2 / inputs))(random);
  }
  std::vector<float> w(kParameters), gradient(kParameters);
  std::vector<std::size_t> at(kBatch);
  for (int step = 1; step <= steps; ++step) {
    for (std::size_t i = 0; i < kParameters; ++i) {
      state.weights[i] = Rounded(state.master[i]);
      w[i] = Widened(state.weights[i]);
      gradient[i] = 0;
    }
    std::vector<float> x(kBatch * kInput), h1(kBatch * kHidden),
        h2(kBatch * kHidden), out(kBatch * kBytes);
    const auto token = [&](std::size_t n, std::size_t c) {
      return static_cast<std::size_t>(
          static_cast<unsigned char>(text[at[n] + c]));
    };
    for (std::size_t n = 0; n < kBatch; ++n) {
      at[n] = random() % (text.size() - kContext - 1);
      for (std::size_t c = 0; c < kContext; ++c) {
        std::copy_n(w.data() + kEmbedding + token(n, c) * kEmbed, kEmbed,
                    x.data() + n * kInput + c * kEmbed);
      }
    }
    Multiply(x.data(), w.data() + kFirst, kInput, kHidden, h1.data());
    Relu(&h1);
    Multiply(h1.data(), w.data() + kSecond, kHidden, kHidden, h2.data());
    Relu(&h2);
    Multiply(h2.data(), w.data() + kOut, kHidden, kBytes, out.data());
    double loss = 0;
    for (std::size_t n = 0; n < kBatch; ++n) {
      float* const o = out.data() + n * kBytes;
      const float most = *std::max_element(o, o + kBytes);
      float sum = 0;
      for (std::size_t c = 0; c < kBytes; ++c) {
        o[c] = std::exp(o[c] - most);
        sum += o[c];
      }
      const std::size_t next = token(n, kContext);
      loss -= std::log(static_cast<double>(o[next] / sum) + 1e-30);
      for (std::size_t c = 0; c < kBytes; ++c) {
        o[c] = (o[c] / sum - (c == next ? 1.0f : 0.0f)) /
               static_cast<float>(kBatch);
      }
    }
    loss /= static_cast<double>(kBatch);
    if (step == 1) state.first_loss = state.loss = loss;
    state.loss = 0.95 * state.loss + 0.05 * loss;
    std::vector<float> up1(h1.size()), up2(h2.size()), upx(x.size());
    Back(h2.data(), w.data() + kOut, out.data(), kHidden, kBytes,
         gradient.data() + kOut, up2.data());
    BackRelu(h2, &up2);
    Back(h1.data(), w.data() + kSecond, up2.data(), kHidden, kHidden,
         gradient.data() + kSecond, up1.data());
    BackRelu(h1, &up1);
    Back(x.data(), w.data() + kFirst, up1.data(), kInput, kHidden,
         gradient.data() + kFirst, upx.data());
    for (std::size_t n = 0; n < kBatch; ++n) {
      for (std::size_t c = 0; c < kContext; ++c) {
        for (std::size_t e = 0; e < kEmbed; ++e) {
          gradient[kEmbedding + token(n, c) * kEmbed + e] +=
              upx[n * kInput + c * kEmbed + e];
        }
      }
    }
    // Gradients, too, are of the lower precision.
    const auto t = static_cast<float>(step);
    const float unbias1 = 1 - std::pow(0.9f, t);
    const float unbias2 = 1 - std::pow(0.95f, t);
    for (std::size_t i = 0; i < kParameters; ++i) {
      const float g = Widened(Rounded(gradient[i]));
      state.m[i] = 0.9f * state.m[i] + 0.1f * g;
      state.v[i] = 0.95f * state.v[i] + 0.05f * g * g;
      const float update =
          state.m[i] / unbias1 / (std::sqrt(state.v[i] / unbias2) + 1e-8f);
      state.master[i] -= 1e-3f * (update + 0.1f * state.master[i]);
    }
  }
  for (std::size_t i = 0; i < kParameters; ++i) {
    state.weights[i] = Rounded(state.master[i]);
  }
  return state;
}

std::string TextOfThisMachine(std::size_t at_most) {
  namespace fs = std::filesystem;
  std::string text;
  for (const char* folder : {"core", "kv", "schema", "/usr/share/doc"}) {
    std::error_code error;
    std::vector<std::string> paths;
    for (fs::recursive_directory_iterator it(folder, error), end;
         !error && it != end; it.increment(error)) {
      const std::string kind = it->path().extension().string();
      const bool ours = kind == ".cc" || kind == ".h" || kind == ".md";
      if ((ours || it->path().filename() == "copyright") &&
          it->is_regular_file(error)) {
        paths.push_back(it->path());
      }
    }
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      std::ifstream file(path, std::ios::binary);
      text.append(std::istreambuf_iterator<char>(file), {});
      if (text.size() >= at_most) return text.substr(0, at_most);
    }
  }
  if (text.size() < 64 << 10) Fail("there is no text to train on");
  return text;
}

}  // namespace ckptree::bench
