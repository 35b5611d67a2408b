// SPDX-License-Identifier: Apache-2.0

#include "tests/model/step.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"

namespace ckptree::testing {
namespace {

using Kind = ModelLeaf::Kind;

std::int64_t Elements(const Shape& shape) {
  std::int64_t n = 1;
  for (std::int64_t dim : shape) n *= dim;
  return n;
}

std::string RandomBytes(FaultRandom& random, std::int64_t n) {
  std::string bytes(static_cast<std::size_t>(n), '\0');
  random.Fill(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string RandomText(FaultRandom& random, int most) {
  std::string text;
  for (int n = random.Int(most + 1); n > 0; --n) {
    text += static_cast<char>('a' + random.Int(26));
  }
  return text;
}

template <typename T>
std::string AsBytes(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
T FromBytes(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

ModelLeaf RandomArray(FaultRandom& random) {
  static const std::vector<DType> kTypes = {
      DType::kUint8,    DType::kInt32,   DType::kFloat32, DType::kFloat64,
      DType::kBfloat16, DType::kFloat16, DType::kInt64,   DType::kComplex64};
  ModelLeaf leaf;
  leaf.dtype = random.Pick(kTypes);
  const int dims = random.Int(4);
  for (int i = 0; i < dims; ++i) {
    leaf.shape.push_back(random.OneIn(25) ? 0 : 1 + random.Int(9));
  }
  if (dims > 0 && random.OneIn(6)) leaf.shape[0] = 100 + random.Int(900);
  leaf.bytes =
      RandomBytes(random, Elements(leaf.shape) * (BitWidth(leaf.dtype) / 8));
  if (dims > 0 && leaf.shape[0] > 2 && random.OneIn(4)) leaf.boxes = 2;
  return leaf;
}

// As of floats: few exponents, which coding makes shorter.
void MakeFewExponents(ModelLeaf* leaf) {
  for (std::size_t i = 3; i < leaf->bytes.size(); i += 4) {
    leaf->bytes[i] = static_cast<char>(0x3c + leaf->bytes[i] % 3);
  }
}

ModelLeaf LargeArray(FaultRandom& random) {
  ModelLeaf leaf;
  leaf.dtype = DType::kFloat32;
  leaf.shape = {260 + random.Int(60), 1024};
  leaf.bytes = RandomBytes(random, Elements(leaf.shape) * 4);
  if (random.OneIn(2)) MakeFewExponents(&leaf);
  if (random.OneIn(2)) leaf.boxes = 2;
  return leaf;
}

ModelLeaf RandomLeaf(FaultRandom& random) {
  ModelLeaf leaf;
  switch (random.Int(10)) {
    case 0:
      leaf.kind = Kind::kBool;
      leaf.bytes = AsBytes(random.OneIn(2));
      return leaf;
    case 1:
      leaf.kind = Kind::kInt;
      leaf.bytes = AsBytes(static_cast<std::int64_t>(random.Next()));
      return leaf;
    case 2:
      leaf.kind = Kind::kFloat;
      leaf.bytes = AsBytes(static_cast<double>(random.Int(1000)) / 7);
      return leaf;
    case 3:
      leaf.kind = Kind::kStr;
      leaf.bytes = RandomText(random, random.OneIn(5) ? 600 : 20);
      return leaf;
    case 4:
      leaf.kind = Kind::kBytes;
      leaf.bytes = RandomBytes(random, random.Int(random.OneIn(5) ? 5000 : 40));
      return leaf;
    case 5:
      leaf.kind = Kind::kJson;
      leaf.bytes =
          absl::StrFormat("{\"%s\":%d}", RandomText(random, 9), random.Int(99));
      return leaf;
    default:
      return RandomArray(random);
  }
}

std::string RandomName(FaultRandom& random) {
  static const std::vector<std::string> kItems = {"params", "opt", "state"};
  return absl::StrFormat("%s/l%d", random.Pick(kItems), random.Int(9));
}

void DropHangingTies(ModelStep* model) {
  std::erase_if(model->leaves, [model](const auto& entry) {
    if (entry.second.kind != Kind::kTie) return false;
    auto target = model->leaves.find(entry.second.target);
    return target == model->leaves.end() || target->second.kind == Kind::kTie;
  });
}

// Where the leaf's bytes are, following a tie.
const ModelLeaf& Behind(const ModelStep& model, const ModelLeaf& leaf) {
  return leaf.kind == Kind::kTie ? model.leaves.at(leaf.target) : leaf;
}

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kArray:
      return "array";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kStr:
      return "str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kJson:
      return "json";
    case Kind::kTie:
      return "tie";
  }
  return "?";
}

// The bytes of box [start, start + shape) of a row-major array.
std::string Cut(const ModelLeaf& leaf, const BoxSpec& box) {
  const std::size_t width = static_cast<std::size_t>(BitWidth(leaf.dtype) / 8);
  std::string out;
  if (Elements(box.shape) == 0) return out;
  Shape at = box.start;
  for (;;) {
    std::int64_t index = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      index = index * leaf.shape[d] + at[d];
    }
    out.append(leaf.bytes, static_cast<std::size_t>(index) * width, width);
    std::size_t d = at.size();
    for (; d > 0; --d) {
      if (++at[d - 1] < box.start[d - 1] + box.shape[d - 1]) break;
      at[d - 1] = box.start[d - 1];
    }
    if (d == 0) return out;
  }
}

void PutArray(const std::string& name, const ModelLeaf& leaf,
              StepBuilder& builder) {
  Tensor tensor;
  tensor.dtype = leaf.dtype;
  tensor.shape = leaf.shape;
  tensor.data = leaf.bytes.data();
  tensor.size_bytes = leaf.bytes.size();
  tensor.chunk_shape = leaf.chunk_shape;
  if (leaf.boxes < 2 || leaf.bytes.empty()) {
    builder.Put(name, std::move(tensor), Ownership::kCopy);
    return;
  }
  const std::int64_t rows = leaf.shape[0] / 2;
  const std::size_t row =
      leaf.bytes.size() / static_cast<std::size_t>(leaf.shape[0]);
  const std::size_t half = static_cast<std::size_t>(rows) * row;
  Tensor second = tensor;
  tensor.global_shape = second.global_shape = leaf.shape;
  tensor.start = second.start = Shape(leaf.shape.size(), 0);
  tensor.shape[0] = rows;
  tensor.size_bytes = half;
  second.start[0] = rows;
  second.shape[0] = leaf.shape[0] - rows;
  second.data = leaf.bytes.data() + half;
  second.size_bytes = leaf.bytes.size() - half;
  builder.Put(name, std::move(tensor), Ownership::kBorrow);
  builder.Put(name, std::move(second), Ownership::kBorrow);
}

std::string Said(const absl::Status& status) {
  return std::string(status.ToString());
}

// The stored value in the model's form, or why it cannot be had.
absl::StatusOr<std::string> ValueBytes(const Step& step,
                                       const std::string& name, Kind kind) {
  absl::StatusOr<LeafValue> value = step.Value(name);
  if (!value.ok()) return value.status();
  switch (kind) {
    case Kind::kBool: {
      absl::StatusOr<bool> v = value->Bool();
      if (!v.ok()) return v.status();
      return AsBytes(*v);
    }
    case Kind::kInt: {
      absl::StatusOr<std::int64_t> v = value->Int();
      if (!v.ok()) return v.status();
      return AsBytes(*v);
    }
    case Kind::kFloat: {
      absl::StatusOr<double> v = value->Float();
      if (!v.ok()) return v.status();
      return AsBytes(*v);
    }
    default:
      return value->String();
  }
}

}  // namespace

ModelStep TinyStep(FaultRandom& random) {
  ModelStep model;
  for (int i = 0; i < 6; ++i) {
    model.leaves[RandomName(random)] = RandomLeaf(random);
  }
  model.leaves["params/l0"] = RandomArray(random);
  model.metrics["loss"] = random.Int(1000);
  return model;
}

ModelStep ArrayStep(FaultRandom& random, int leaves, std::int64_t bytes) {
  ModelStep model;
  for (int i = 0; i < leaves; ++i) {
    ModelLeaf leaf;
    leaf.dtype = DType::kUint8;
    leaf.shape = {bytes};
    leaf.bytes = RandomBytes(random, bytes);
    model.leaves[absl::StrFormat("params/l%d", i)] = std::move(leaf);
  }
  return model;
}

ModelStep PairStep(FaultRandom& random) {
  ModelStep model;
  ModelLeaf leaf;
  leaf.dtype = DType::kFloat32;
  leaf.shape = {520, 1024};
  leaf.bytes = RandomBytes(random, Elements(leaf.shape) * 4);
  MakeFewExponents(&leaf);
  model.leaves["params/copy"] = RoundedCopyOf(leaf);
  model.leaves["params/master"] = std::move(leaf);
  return model;
}

ModelLeaf RoundedCopyOf(const ModelLeaf& master) {
  ModelLeaf copy = master;
  copy.dtype = DType::kBfloat16;
  copy.bytes.clear();
  for (std::size_t at = 0; at < master.bytes.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, master.bytes.data() + at, sizeof(word));
    const std::uint32_t top = word >> 16;
    const std::uint32_t low = word & 0xffff;
    const bool up = low > 0x8000 || (low == 0x8000 && top % 2 == 1);
    const bool nan = (word << 1) > 0xff000000u;
    const std::uint32_t rounded = nan ? top | 0x40 : top + (up ? 1 : 0);
    copy.bytes += static_cast<char>(rounded & 0xff);
    copy.bytes += static_cast<char>(rounded >> 8);
  }
  return copy;
}

ModelStep Changed(const ModelStep& base, FaultRandom& random, bool large) {
  ModelStep model = base;
  model.metrics.clear();
  if (random.OneIn(2)) model.metrics["loss"] = random.Int(1000);
  if (random.OneIn(4)) model.metrics["acc"] = random.Int(1000) / 8.0;
  model.note = random.OneIn(4) ? RandomText(random, 30) : "";
  model.custom =
      random.OneIn(5) ? absl::StrFormat("{\"at\":%d}", random.Int(99)) : "";
  if (!large && random.OneIn(10)) return model;  // The same content.

  std::vector<std::string> names;
  for (const auto& [name, leaf] : model.leaves) names.push_back(name);
  for (const std::string& name : names) {
    ModelLeaf& leaf = model.leaves[name];
    const int what = random.Int(12);
    if (what == 0) {
      model.leaves.erase(name);
    } else if (what < 4 && leaf.kind != Kind::kTie && !leaf.bytes.empty() &&
               (leaf.kind == Kind::kArray || leaf.kind == Kind::kBytes)) {
      leaf.bytes[random.Below(leaf.bytes.size())] ^=
          static_cast<char>(1 + random.Int(255));
    } else if (what == 4 && leaf.kind == Kind::kArray) {
      leaf.shape = {Elements(leaf.shape)};  // The same bytes, reshaped.
      leaf.boxes = 1;
    } else if (what == 5) {
      leaf = RandomLeaf(random);
    }
  }
  for (int n = random.Int(3); n > 0 || model.leaves.empty(); --n) {
    model.leaves[RandomName(random)] = RandomLeaf(random);
  }
  // A large array comes, stays a while with changes, and goes.
  if (large) {
    const ModelLeaf& leaf = model.leaves["large/l0"] = LargeArray(random);
    model.leaves.erase("large/copy");
    if (leaf.bytes[0] % 2 == 0)
      model.leaves["large/copy"] = RoundedCopyOf(leaf);
  } else if (random.OneIn(3)) {
    model.leaves.erase("large/l0");
    model.leaves.erase("large/copy");
  }
  if (random.OneIn(4) && !names.empty()) {
    ModelLeaf tie;
    tie.kind = Kind::kTie;
    tie.target = random.Pick(names);
    model.leaves[absl::StrFormat("ties/t%d", random.Int(3))] = tie;
  }
  DropHangingTies(&model);
  return model;
}

void PutAll(const ModelStep& model, StepBuilder& builder) {
  for (const auto& [name, leaf] : model.leaves) {
    switch (leaf.kind) {
      case Kind::kArray:
        PutArray(name, leaf, builder);
        break;
      case Kind::kBool:
        builder.PutBool(name, FromBytes<bool>(leaf.bytes));
        break;
      case Kind::kInt:
        builder.PutInt(name, FromBytes<std::int64_t>(leaf.bytes));
        break;
      case Kind::kFloat:
        builder.PutFloat(name, FromBytes<double>(leaf.bytes));
        break;
      case Kind::kStr:
        builder.PutString(name, leaf.bytes);
        break;
      case Kind::kBytes:
        builder.PutBytes(name, leaf.bytes);
        break;
      case Kind::kJson:
        builder.PutJson(name, leaf.bytes);
        break;
      case Kind::kTie:
        builder.Tie(name, leaf.target);
        break;
    }
  }
  for (const auto& [name, value] : model.metrics) {
    builder.SetMetric(name, value);
  }
  if (!model.custom.empty()) builder.SetCustomMetadata(model.custom);
  if (!model.note.empty()) builder.SetNote(model.note);
}

std::optional<std::string> Difference(const Step& step,
                                      const ModelStep& model) {
  absl::StatusOr<std::vector<LeafInfo>> leaves = step.Leaves();
  if (!leaves.ok()) return "Leaves: " + Said(leaves.status());
  std::set<std::string> left;
  for (const auto& [name, leaf] : model.leaves) left.insert(name);
  std::vector<ReadRequest> requests;
  std::vector<std::string> read;
  read.reserve(leaves->size());
  for (const LeafInfo& info : *leaves) {
    auto found = model.leaves.find(info.name);
    if (found == model.leaves.end()) return info.name + ": not in the model";
    left.erase(info.name);
    const ModelLeaf& leaf = found->second;
    if (Name(info.kind) != KindName(leaf.kind)) {
      return absl::StrFormat("%s: kind %s, not %s", info.name, Name(info.kind),
                             std::string(KindName(leaf.kind)));
    }
    if (leaf.kind == Kind::kTie) {
      if (!info.tie_to || info.tie_to->Text() != leaf.target) {
        return info.name + ": tied to another leaf";
      }
      continue;
    }
    if (leaf.kind != Kind::kArray) {
      absl::StatusOr<std::string> bytes =
          ValueBytes(step, info.name, leaf.kind);
      if (!bytes.ok()) return info.name + ": " + Said(bytes.status());
      if (*bytes != leaf.bytes) return info.name + ": another value";
      continue;
    }
    if (info.dtype != leaf.dtype || info.shape != leaf.shape) {
      return info.name + ": another dtype or shape";
    }
    read.emplace_back(leaf.bytes.size(), '\x5a');
    requests.push_back(
        {.path = info.path,
         .box = std::nullopt,
         .destination = std::as_writable_bytes(std::span(read.back()))});
  }
  if (!left.empty()) return *left.begin() + ": not in the store";
  if (absl::Status status = step.ReadMany(requests); !status.ok()) {
    return "ReadMany: " + Said(status);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::string name = requests[i].path.Text();
    if (read[i] != model.leaves.at(name).bytes) return name + ": WRONG BYTES";
  }

  const StepInfo& info = step.info();
  const std::map<std::string, double> metrics(info.metrics.begin(),
                                              info.metrics.end());
  if (metrics != model.metrics) return "other metrics";
  if (info.note != model.note) return "another note";
  absl::StatusOr<StepMetadata> metadata = step.Metadata();
  if (!metadata.ok()) return "Metadata: " + Said(metadata.status());
  if (metadata->custom != model.custom) return "other custom metadata";
  return std::nullopt;
}

std::optional<std::string> BoxDifference(const Step& step,
                                         const ModelStep& model,
                                         FaultRandom& random) {
  std::vector<std::string> arrays;
  for (const auto& [name, leaf] : model.leaves) {
    if (Behind(model, leaf).kind == Kind::kArray) arrays.push_back(name);
  }
  if (arrays.empty()) return std::nullopt;
  const std::string name = random.Pick(arrays);
  const ModelLeaf& leaf = Behind(model, model.leaves.at(name));
  BoxSpec box;
  for (std::int64_t dim : leaf.shape) {
    const std::uint64_t size = static_cast<std::uint64_t>(dim);
    const std::uint64_t start = size == 0 ? 0 : random.Below(size);
    box.start.push_back(static_cast<std::int64_t>(start));
    box.shape.push_back(
        size == 0 ? 0
                  : static_cast<std::int64_t>(1 + random.Below(size - start)));
  }
  const std::string expected = Cut(leaf, box);
  std::string read(expected.size(), '\x5a');
  absl::StatusOr<Path> path = Path::Parse(name);
  if (!path.ok()) return name + ": " + Said(path.status());
  absl::Status status =
      step.ReadBox(*path, box, std::as_writable_bytes(std::span(read)));
  if (!status.ok()) return name + ", a box: " + Said(status);
  if (read != expected) return name + ": WRONG BYTES in a box";
  return std::nullopt;
}

}  // namespace ckptree::testing
