// SPDX-License-Identifier: Apache-2.0

// The state of a small training in mixed precision: what coding is measured on.
// Random numbers alone say nothing of moments, nor of weights that moved.

#ifndef CKPTREE_BENCH_TRAINED_STATE_H_
#define CKPTREE_BENCH_TRAINED_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ckptree::bench {

// 14 bytes a parameter.
struct TrainedState {
  std::vector<std::uint16_t> weights;  // bfloat16, rounded from `master`.
  std::vector<float> master, m, v;
  double first_loss = 0;
  double loss = 0;  // Of the last steps.
};

// Trains a model of the next byte on `text`: 16 bytes of context, two hidden
// layers, AdamW, the forward pass in bfloat16. Fixed seed. REQUIRES: text of a
// few KiB.
TrainedState Train(const std::string& text, int steps);

// The text of this source tree, or of the machine's documentation.
std::string TextOfThisMachine(std::size_t at_most);

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_TRAINED_STATE_H_
