// SPDX-License-Identifier: Apache-2.0

// The training run of char_lm: all of its state, and how that becomes a step
// and back.

#ifndef CKPTREE_TESTS_EXAMPLES_CHAR_TRAINER_H_
#define CKPTREE_TESTS_EXAMPLES_CHAR_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/ckptree.h"
#include "tests/examples/char_model.h"

namespace char_lm {

struct TrainerOptions {
  bool tiny = false;
  std::int64_t batch = 8;  // Windows of text a step.
  std::int64_t seed = 1;   // Of the first values and the batches.
};

// Confined to one thread.
class Trainer {
 public:
  // `text` is ASCII and longer than a window.
  Trainer(const TrainerOptions& options, std::string text);

  // The half of a step that only reads the parameters.
  void ComputeGradient();
  // The half that changes them.
  void Update();

  // Puts the state into a step. Update() must wait until it is staged.
  void Fill(ckptree::StepBuilder& builder);

  // Takes the state from a step; nothing changes where that is of another model
  // (kInvalidArgument with every difference) or run (kFailedPrecondition).
  absl::Status Restore(const ckptree::Step& step);

  std::int64_t step() const { return step_; }
  double average_loss() const { return average_loss_; }
  std::size_t parameter_count() { return model_.values().size(); }
  // Of all that is saved.
  std::size_t state_bytes() { return 3 * parameter_count() * sizeof(float); }

 private:
  // Arrays laid out like the model's parameters.
  struct Group {
    std::string name;
    std::vector<float>* values;
  };

  std::vector<Group> Groups();
  std::size_t Window() const;
  std::vector<ckptree::LeafInfo> Expected();

  std::string text_;
  ModelSize size_;
  float learning_rate_;
  std::string config_;
  std::vector<std::uint8_t> windows_;

  // The state; a checkpoint holds it and the model's.
  std::int64_t step_ = 0;
  std::size_t position_ = 0;
  double average_loss_ = 0.0;
  Random random_;
  CharModel model_;
};

}  // namespace char_lm

#endif  // CKPTREE_TESTS_EXAMPLES_CHAR_TRAINER_H_
