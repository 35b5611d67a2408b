// SPDX-License-Identifier: Apache-2.0

#include "tests/examples/char_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace char_lm {
namespace {

// A tile of a kernel that stays in the first-level cache while all rows of the
// batch pass over it.
constexpr int kTileRows = 64;
constexpr int kTileColumns = 128;

// y[rows x n] = x[rows x k] * w[k x n] + bias[n]
void Affine(const float* x, const float* w, const float* bias, int rows, int k,
            int n, float* y) {
  for (int r = 0; r < rows; ++r) std::copy(bias, bias + n, y + r * n);
  for (int j0 = 0; j0 < n; j0 += kTileColumns) {
    const int columns = std::min(kTileColumns, n - j0);
    for (int i0 = 0; i0 < k; i0 += kTileRows) {
      const int i1 = std::min(i0 + kTileRows, k);
      for (int r = 0; r < rows; ++r) {
        float* __restrict out = y + r * n + j0;
        const float* in = x + r * k;
        int i = i0;
        for (; i + 4 <= i1; i += 4) {
          const float* __restrict w0 = w + i * n + j0;
          const float* __restrict w1 = w0 + n;
          const float* __restrict w2 = w1 + n;
          const float* __restrict w3 = w2 + n;
          for (int j = 0; j < columns; ++j) {
            out[j] += (in[i] * w0[j] + in[i + 1] * w1[j]) +
                      (in[i + 2] * w2[j] + in[i + 3] * w3[j]);
          }
        }
        for (; i < i1; ++i) {
          const float* __restrict w0 = w + i * n + j0;
          for (int j = 0; j < columns; ++j) out[j] += in[i] * w0[j];
        }
      }
    }
  }
}

// dw[k x n] = transposed x[rows x k] * dy[rows x n]; db[n] = column sums of dy
void AffineKernelSlope(const float* x, const float* dy, int rows, int k, int n,
                       float* dw, float* db) {
  std::fill(db, db + n, 0.0f);
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < n; ++j) db[j] += dy[r * n + j];
  }
  for (int i = 0; i < k; ++i) {
    float* __restrict out = dw + i * n;
    std::fill(out, out + n, 0.0f);
    int r = 0;
    for (; r + 4 <= rows; r += 4) {
      const float* __restrict d0 = dy + r * n;
      const float* __restrict d1 = d0 + n;
      const float* __restrict d2 = d1 + n;
      const float* __restrict d3 = d2 + n;
      const float x0 = x[r * k + i], x1 = x[(r + 1) * k + i];
      const float x2 = x[(r + 2) * k + i], x3 = x[(r + 3) * k + i];
      for (int j = 0; j < n; ++j) {
        out[j] += (x0 * d0[j] + x1 * d1[j]) + (x2 * d2[j] + x3 * d3[j]);
      }
    }
    for (; r < rows; ++r) {
      const float* __restrict d0 = dy + r * n;
      const float x0 = x[r * k + i];
      for (int j = 0; j < n; ++j) out[j] += x0 * d0[j];
    }
  }
}

// dx[rows x k] = dy[rows x n] * transposed w[k x n]
void AffineInputSlope(const float* dy, const float* w, int rows, int k, int n,
                      float* dx) {
  // Partial sums in lanes: the order of the additions is written here, not
  // chosen by a compiler that would have to be told to reorder them.
  constexpr int kLanes = 16;
  for (int i = 0; i < k; ++i) {
    const float* __restrict row = w + i * n;
    for (int r = 0; r < rows; ++r) {
      const float* __restrict d = dy + r * n;
      float lanes[kLanes] = {};
      int j = 0;
      for (; j + kLanes <= n; j += kLanes) {
        for (int l = 0; l < kLanes; ++l) lanes[l] += row[j + l] * d[j + l];
      }
      float sum = 0.0f;
      for (float lane : lanes) sum += lane;
      for (; j < n; ++j) sum += row[j] * d[j];
      dx[r * k + i] = sum;
    }
  }
}

void Tanh(std::vector<float>& values) {
  for (float& value : values) value = std::tanh(value);
}

// From the slope by tanh(x) to the slope by x.
void TanhSlope(const std::vector<float>& output, std::vector<float>& slope) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    slope[i] *= 1.0f - output[i] * output[i];
  }
}

}  // namespace

Random::Random(std::uint64_t seed) {
  // splitmix64 spreads the seed over the state, which must not be all zero.
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    std::uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

std::uint64_t Random::Next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::Below(std::uint64_t bound) { return Next() % bound; }

float Random::Symmetric() {
  return static_cast<float>(Next() >> 40) * (1.0f / (1 << 23)) - 1.0f;
}

CharModel::CharModel(ModelSize size, Random& random) : size_(size) {
  const int inputs = size.context * size.embedding;
  AddParameter("embed/table", {kCharacters, size.embedding});
  AddParameter("hidden_0/kernel", {inputs, size.hidden});
  AddParameter("hidden_0/bias", {size.hidden});
  AddParameter("hidden_1/kernel", {size.hidden, size.hidden});
  AddParameter("hidden_1/bias", {size.hidden});
  AddParameter("out/kernel", {size.hidden, kCharacters});
  AddParameter("out/bias", {kCharacters});
  first_moments_.resize(values_.size());
  second_moments_.resize(values_.size());
  gradient_.resize(values_.size());
  for (const ParameterInfo& parameter : parameters_) {
    if (parameter.shape.size() != 2) continue;  // Biases start at zero.
    const float scale =
        parameter.offset == 0
            ? 1.0f
            : std::sqrt(1.5f / static_cast<float>(parameter.shape[0]));
    for (std::size_t i = 0; i < parameter.size; ++i) {
      values_[parameter.offset + i] = scale * random.Symmetric();
    }
  }
}

void CharModel::AddParameter(std::string name,
                             std::vector<std::int64_t> shape) {
  std::size_t size = 1;
  for (std::int64_t dimension : shape) {
    size *= static_cast<std::size_t>(dimension);
  }
  parameters_.push_back(
      {std::move(name), std::move(shape), values_.size(), size});
  values_.resize(values_.size() + size);
}

float CharModel::ComputeGradient(std::span<const std::uint8_t> windows) {
  const int context = size_.context;
  const int width = size_.embedding;
  const int hidden = size_.hidden;
  const int inputs = context * width;
  const int rows = static_cast<int>(windows.size()) / (context + 1);
  const auto resize = [rows](std::vector<float>& values, int columns) {
    values.resize(static_cast<std::size_t>(rows) *
                  static_cast<std::size_t>(columns));
  };
  resize(input_, inputs);
  resize(input_slope_, inputs);
  resize(layer0_, hidden);
  resize(layer0_slope_, hidden);
  resize(layer1_, hidden);
  resize(layer1_slope_, hidden);
  resize(logits_, kCharacters);

  const auto window_of = [&windows, context](int row) {
    return windows.data() + std::ptrdiff_t{row} * (context + 1);
  };

  // Forward.
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < context; ++c) {
      const int character = window_of(r)[c];
      const float* from = Value(kEmbed) + character * width;
      std::copy(from, from + width, input_.data() + r * inputs + c * width);
    }
  }
  Affine(input_.data(), Value(kKernel0), Value(kBias0), rows, inputs, hidden,
         layer0_.data());
  Tanh(layer0_);
  Affine(layer0_.data(), Value(kKernel1), Value(kBias1), rows, hidden, hidden,
         layer1_.data());
  Tanh(layer1_);
  Affine(layer1_.data(), Value(kKernel2), Value(kBias2), rows, hidden,
         kCharacters, logits_.data());

  // Softmax and loss; logits_ turn into the loss's slope by them.
  float loss = 0.0f;
  const float share = 1.0f / static_cast<float>(rows);
  for (int r = 0; r < rows; ++r) {
    float* logits = logits_.data() + r * kCharacters;
    const int target = window_of(r)[context];
    const float top = *std::max_element(logits, logits + kCharacters);
    const float target_logit = logits[target] - top;
    float sum = 0.0f;
    for (int j = 0; j < kCharacters; ++j) {
      logits[j] = std::exp(logits[j] - top);
      sum += logits[j];
    }
    for (int j = 0; j < kCharacters; ++j) logits[j] *= share / sum;
    logits[target] -= share;
    loss += share * (std::log(sum) - target_logit);
  }

  // Backward.
  AffineKernelSlope(layer1_.data(), logits_.data(), rows, hidden, kCharacters,
                    Gradient(kKernel2), Gradient(kBias2));
  AffineInputSlope(logits_.data(), Value(kKernel2), rows, hidden, kCharacters,
                   layer1_slope_.data());
  TanhSlope(layer1_, layer1_slope_);
  AffineKernelSlope(layer0_.data(), layer1_slope_.data(), rows, hidden, hidden,
                    Gradient(kKernel1), Gradient(kBias1));
  AffineInputSlope(layer1_slope_.data(), Value(kKernel1), rows, hidden, hidden,
                   layer0_slope_.data());
  TanhSlope(layer0_, layer0_slope_);
  AffineKernelSlope(input_.data(), layer0_slope_.data(), rows, inputs, hidden,
                    Gradient(kKernel0), Gradient(kBias0));
  AffineInputSlope(layer0_slope_.data(), Value(kKernel0), rows, inputs, hidden,
                   input_slope_.data());
  float* table = Gradient(kEmbed);
  std::fill(table, table + kCharacters * width, 0.0f);
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < context; ++c) {
      const int character = window_of(r)[c];
      const float* slope = input_slope_.data() + r * inputs + c * width;
      for (int i = 0; i < width; ++i) table[character * width + i] += slope[i];
    }
  }
  return loss;
}

void CharModel::Update(float learning_rate, std::int64_t iteration) {
  constexpr float kDecay1 = 0.9f;
  constexpr float kDecay2 = 0.999f;
  constexpr float kEpsilon = 1e-8f;
  const double t = static_cast<double>(iteration);
  const float correction1 =
      static_cast<float>(1.0 / (1.0 - std::pow(double{kDecay1}, t)));
  const float correction2 =
      static_cast<float>(1.0 / (1.0 - std::pow(double{kDecay2}, t)));
  float* __restrict value = values_.data();
  float* __restrict first = first_moments_.data();
  float* __restrict second = second_moments_.data();
  const float* __restrict slope = gradient_.data();
  const std::size_t size = values_.size();
  for (std::size_t i = 0; i < size; ++i) {
    first[i] = kDecay1 * first[i] + (1.0f - kDecay1) * slope[i];
    second[i] = kDecay2 * second[i] + (1.0f - kDecay2) * slope[i] * slope[i];
    value[i] -= learning_rate * (first[i] * correction1) /
                (std::sqrt(second[i] * correction2) + kEpsilon);
  }
}

}  // namespace char_lm
