// SPDX-License-Identifier: Apache-2.0

#include "tests/examples/char_trainer.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace char_lm {
namespace {

std::uint64_t Fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return hash;
}

absl::StatusOr<std::int64_t> Int(const ckptree::Step& step,
                                 std::string_view path) {
  absl::StatusOr<ckptree::LeafValue> value = step.Value(path);
  if (!value.ok()) return value.status();
  return value->Int();
}

absl::StatusOr<std::string> String(const ckptree::Step& step,
                                   std::string_view path) {
  absl::StatusOr<ckptree::LeafValue> value = step.Value(path);
  if (!value.ok()) return value.status();
  return value->String();
}

}  // namespace

Trainer::Trainer(const TrainerOptions& options, std::string text)
    : text_(std::move(text)),
      size_(options.tiny ? ModelSize{8, 8, 64} : ModelSize{}),
      learning_rate_(options.tiny ? 2e-3f : 3e-4f),
      random_(static_cast<std::uint64_t>(options.seed)),
      model_(size_, random_) {
  windows_.resize(static_cast<std::size_t>(options.batch) * Window());
  // What a resumed run must share with the one that made the store.
  config_ = absl::StrFormat(
      R"({"batch":%d,"context":%d,"embedding":%d,"hidden":%d,"seed":%d,)"
      R"("text_hash":"%016x"})",
      options.batch, size_.context, size_.embedding, size_.hidden, options.seed,
      Fnv1a(text_));
}

void Trainer::ComputeGradient() {
  // Each window starts a random way on from the one before.
  const std::size_t last = text_.size() - Window();
  for (std::size_t at = 0; at < windows_.size(); at += Window()) {
    position_ = (position_ + random_.Below(last)) % last;
    std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(position_),
                Window(), windows_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  const double loss = model_.ComputeGradient(windows_);
  average_loss_ = step_ == 0 ? loss : 0.95 * average_loss_ + 0.05 * loss;
}

void Trainer::Update() { model_.Update(learning_rate_, ++step_); }

void Trainer::Fill(ckptree::StepBuilder& builder) {
  for (const Group& group : Groups()) {
    for (const ParameterInfo& parameter : model_.parameters()) {
      ckptree::Tensor tensor;
      tensor.dtype = ckptree::DType::kFloat32;
      tensor.shape = parameter.shape;
      tensor.data = group.values->data() + parameter.offset;
      tensor.size_bytes = parameter.size * sizeof(float);
      builder.Put(absl::StrCat(group.name, "/", parameter.name),
                  std::move(tensor));
    }
  }
  // By value: the next gradient draws from it before this save is staged.
  builder
      .PutBytes(
          "state/random",
          std::string(reinterpret_cast<const char*>(random_.state().data()),
                      sizeof(Random::State)))
      .PutInt("state/step", step_)
      .PutInt("state/position", static_cast<std::int64_t>(position_))
      .PutFloat("state/average_loss", average_loss_)
      .PutJson("config", config_)
      .SetItemType("config", ckptree::ItemType::kJson)
      .SetCustomMetadata(absl::StrFormat(
          R"({"program":"char_lm","parameters":%d,"learning_rate":%g})",
          model_.values().size(), learning_rate_));
}

absl::Status Trainer::Restore(const ckptree::Step& step) {
  // A store of another model is refused with every difference, before
  // anything here is changed.
  if (absl::Status status = step.Expect(Expected()); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::string> config = String(step, "config");
  if (!config.ok()) return config.status();
  if (*config != config_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the store holds another run: ", *config, " there, ",
                     config_, " here"));
  }
  Random::State random;
  std::vector<ckptree::ReadRequest> reads;
  const auto read = [&reads](std::string_view name, auto destination) {
    ckptree::ReadRequest request;
    request.path = ckptree::Path::Parse(name).value();
    request.destination = std::as_writable_bytes(destination);
    reads.push_back(std::move(request));
  };
  for (const Group& group : Groups()) {
    for (const ParameterInfo& parameter : model_.parameters()) {
      read(absl::StrCat(group.name, "/", parameter.name),
           std::span(*group.values).subspan(parameter.offset, parameter.size));
    }
  }
  read("state/random", std::span(random));
  if (absl::Status status = step.ReadMany(reads); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::int64_t> saved_step = Int(step, "state/step");
  if (!saved_step.ok()) return saved_step.status();
  absl::StatusOr<std::int64_t> position = Int(step, "state/position");
  if (!position.ok()) return position.status();
  absl::StatusOr<ckptree::LeafValue> loss = step.Value("state/average_loss");
  if (!loss.ok()) return loss.status();
  absl::StatusOr<double> average_loss = loss->Float();
  if (!average_loss.ok()) return average_loss.status();
  random_.state() = random;
  step_ = *saved_step;
  position_ = static_cast<std::size_t>(*position);
  average_loss_ = *average_loss;
  return absl::OkStatus();
}

std::vector<Trainer::Group> Trainer::Groups() {
  return {{"params", &model_.values()},
          {"adam/first", &model_.first_moments()},
          {"adam/second", &model_.second_moments()}};
}

std::size_t Trainer::Window() const {
  return static_cast<std::size_t>(size_.context) + 1;
}

std::vector<ckptree::LeafInfo> Trainer::Expected() {
  std::vector<ckptree::LeafInfo> leaves;
  const auto add = [&leaves](std::string name, ckptree::EntryKind kind,
                             ckptree::DType dtype, ckptree::Shape shape) {
    ckptree::LeafInfo& leaf = leaves.emplace_back();
    leaf.path = ckptree::Path::Parse(name).value();
    leaf.name = std::move(name);
    leaf.kind = kind;
    leaf.dtype = dtype;
    leaf.shape = std::move(shape);
  };
  for (const Group& group : Groups()) {
    for (const ParameterInfo& parameter : model_.parameters()) {
      add(absl::StrCat(group.name, "/", parameter.name),
          ckptree::EntryKind::kArray, ckptree::DType::kFloat32,
          parameter.shape);
    }
  }
  add("state/random", ckptree::EntryKind::kBytes, ckptree::DType::kNone, {});
  add("state/step", ckptree::EntryKind::kInt, ckptree::DType::kNone, {});
  add("state/position", ckptree::EntryKind::kInt, ckptree::DType::kNone, {});
  add("state/average_loss", ckptree::EntryKind::kFloat, ckptree::DType::kNone,
      {});
  add("config", ckptree::EntryKind::kJson, ckptree::DType::kNone, {});
  return leaves;
}

}  // namespace char_lm
