// SPDX-License-Identifier: Apache-2.0

// A small character-level language model: embedding, tanh layers, softmax, and
// its optimizer.

#ifndef CKPTREE_TESTS_EXAMPLES_CHAR_MODEL_H_
#define CKPTREE_TESTS_EXAMPLES_CHAR_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace char_lm {

// xoshiro256**: its whole state is four integers that a checkpoint holds.
class Random {
 public:
  using State = std::array<std::uint64_t, 4>;

  explicit Random(std::uint64_t seed);

  std::uint64_t Next();
  // In [0, bound). REQUIRES: bound > 0.
  std::uint64_t Below(std::uint64_t bound);
  // In [-1, 1).
  float Symmetric();

  State& state() { return state_; }

 private:
  State state_;
};

struct ModelSize {
  int context = 32;    // Characters the model sees.
  int embedding = 64;  // Numbers for each of them.
  int hidden = 1024;   // Width of both hidden layers.
};

// Where an array stands in the vectors below.
struct ParameterInfo {
  std::string name;  // "embed/table", "hidden_0/kernel", ...
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;
  std::size_t size = 0;
};

// Each sum is taken in one fixed order by one thread: the same inputs give the
// same bits, so that a resumed run can be compared with one never stopped.
//
// Confined to one thread.
class CharModel {
 public:
  static constexpr int kCharacters = 128;  // ASCII.

  CharModel(ModelSize size, Random& random);

  // `windows` holds rows of context + 1 characters below kCharacters; the last
  // is to be predicted. Returns the mean loss and keeps the gradient.
  float ComputeGradient(std::span<const std::uint8_t> windows);

  // One update by Adam with the gradient kept; `iteration` counts from 1.
  void Update(float learning_rate, std::int64_t iteration);

  const std::vector<ParameterInfo>& parameters() const { return parameters_; }
  // The state of training: values and both moments, laid out alike.
  std::vector<float>& values() { return values_; }
  std::vector<float>& first_moments() { return first_moments_; }
  std::vector<float>& second_moments() { return second_moments_; }

 private:
  enum Index { kEmbed, kKernel0, kBias0, kKernel1, kBias1, kKernel2, kBias2 };

  void AddParameter(std::string name, std::vector<std::int64_t> shape);
  float* Value(Index i) { return values_.data() + parameters_[i].offset; }
  float* Gradient(Index i) { return gradient_.data() + parameters_[i].offset; }

  ModelSize size_;
  std::vector<ParameterInfo> parameters_;
  std::vector<float> values_;
  std::vector<float> first_moments_;
  std::vector<float> second_moments_;
  std::vector<float> gradient_;

  // Activations of a batch, and the loss's derivatives by them, row by row.
  std::vector<float> input_, layer0_, layer1_, logits_;
  std::vector<float> input_slope_, layer0_slope_, layer1_slope_;
};

}  // namespace char_lm

#endif  // CKPTREE_TESTS_EXAMPLES_CHAR_MODEL_H_
