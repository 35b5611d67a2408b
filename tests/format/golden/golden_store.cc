// SPDX-License-Identifier: Apache-2.0

#include "tests/format/golden/golden_store.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/digest.h"

namespace ckptree::testing {
namespace {

constexpr std::size_t kLarge = 300'000;  // Floats: above what rides in a batch.

constexpr int kCoded = 6;  // The part of a save that is coded.

// Values that repeat, so that the store packs well.
std::vector<float> Floats(std::size_t count, int salt) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(static_cast<int>(i % 64) - 32) *
                static_cast<float>(salt);
  }
  return values;
}

std::string Bytes(std::size_t count, int salt) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>((i * 7 + static_cast<std::size_t>(salt)) & 63);
  }
  return bytes;
}

Path At(std::string_view text) { return Path::Parse(text).value(); }

Tensor Of(DType dtype, Shape shape, const void* data, Shape chunk = {}) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.data = data;
  tensor.chunk_shape = std::move(chunk);
  return tensor;
}

void PutScalars(StepBuilder& builder, std::int64_t step) {
  builder.PutBool("values/flag", step % 20 == 10).PutInt("values/int", -step);
  builder.PutFloat("values/lr", 0.1).PutComplex(At("values/c"), 1, -2);
  builder.PutString("values/text", "Fuß\n").PutJson("values/json", "[1]");
  builder.PutBytes("values/bytes", std::string("\0\1\2\377", 4));
  builder.PutProto(At("values/proto"), "a.B", "\x08\x01");
  builder.PutFile(At("values/file"), Bytes(3000, 1));
  builder.PutNode("nodes/none", EntryKind::kNone);
  builder.PutNode("nodes/tuple", EntryKind::kTuple);
  builder.PutNode("nodes/named", EntryKind::kNamedTuple, "P(a,b)");
  builder.Tie("values/again", "values/int");
  for (const char* path :
       {"keys/{3}", "keys/{-70000}", "keys/{null}", "keys/{true}", "keys/{2.5}",
        "keys/{b\"\\x00\"}", "keys/{(1,\"a\",())}", "list/[0]", "list/[300]",
        "object/.name", "flat/<2>", "odd/\"a/b \\u0001\""}) {
    builder.PutInt(path, step);
  }
  builder.SetMetric("loss", 1.0 / static_cast<double>(step));
  builder.SetMetric("nan", std::numeric_limits<double>::quiet_NaN());
  builder.SetCustomMetadata(absl::StrFormat(R"({"epoch":%d})", step));
  builder.SetNote(absl::StrFormat("golden step %d", step));
}

// `part` changes a part of it.
absl::Status SaveLarge(Store& store, std::int64_t step, int part,
                       SaveOptions save = {}, bool with_copy = false) {
  StepBuilder builder = store.Begin(step, save);
  const auto same = Floats(kLarge, 1);
  std::vector<float> other = Floats(kLarge, part < 3 ? 1 : part);
  if (part == 2) other[12'345] = -7;
  builder.Put("params/rows", Of(DType::kFloat32, {300, 1000}, same.data()));
  builder.Put("params/grid",
              Of(DType::kFloat32, {60, 50, 100}, other.data(), {32, 50, 33}));
  std::vector<float> odd = Floats(500, part);
  odd[3] = std::numeric_limits<float>::quiet_NaN();
  odd[5] = std::numeric_limits<float>::infinity();
  odd[6] = -0.0f;
  builder.Put("params/nan", Of(DType::kFloat32, {20, 25}, odd.data()));
  const std::string bytes = Bytes(6000, part);
  for (int type = 1; type <= 34; ++type) {
    const auto dtype = static_cast<DType>(type);
    const std::string name(Name(dtype));
    builder.Put("types/" + name, Of(dtype, {5, 7}, bytes.data()));
    if (!IsSubByte(dtype)) continue;
    Tensor packed = Of(dtype, {5, 77}, bytes.data());
    packed.packed = true;
    builder.Put("packed/" + name, std::move(packed));
  }
  builder.Put("forms/scalar", Of(DType::kFloat32, {}, bytes.data()));
  builder.Put("forms/empty", Of(DType::kFloat32, {3, 0, 2}, bytes.data()));
  Tensor marked = Of(DType::kUint32, {2}, bytes.data());
  marked.tag = "prng:threefry2x32";
  builder.Put("forms/tagged", std::move(marked));
  // One array in two boxes.
  for (const auto& [from, to] : {std::pair(0, 8), std::pair(8, 20)}) {
    Tensor box = Of(DType::kFloat32, {10, to - from}, bytes.data() + from);
    box.start = {0, from};
    box.global_shape = {10, 20};
    builder.Put("forms/boxes", std::move(box));
  }
  // Noise under few exponents, as trained weights are.
  std::vector<std::uint32_t> noise(part == kCoded ? 40'000 : 0);
  std::mt19937 random(1);
  for (std::uint32_t& word : noise) {
    const auto bits = static_cast<std::uint32_t>(random());
    word = (bits & 0x807fffff) | ((bits >> 24 & 3) + 0x3c) << 24;
  }
  if (part == kCoded) {
    builder.Put("params/noise", Of(DType::kFloat32, {40, 1000}, noise.data()));
  }
  // Of bfloat16, to the nearest, of two as near to the even one.
  std::vector<std::uint16_t> rounded;
  for (const std::uint32_t word : noise) {
    const std::uint32_t last = word >> 16 & 1;
    rounded.push_back(static_cast<std::uint16_t>((word + 0x7fff + last) >> 16));
  }
  if (with_copy) {
    builder.Put("params/rounded",
                Of(DType::kBfloat16, {40, 1000}, rounded.data()));
  }
  PutScalars(builder, step);
  return std::move(builder).Commit().WaitCommitted(absl::Minutes(2));
}

absl::Status SaveSmall(Store& store, std::int64_t step) {
  StepBuilder builder = store.Begin(step);
  const auto w = Floats(2000, 2);
  builder.Put("params/w", Of(DType::kFloat32, {40, 50}, w.data()));
  PutScalars(builder, step);
  return std::move(builder).Commit().WaitCommitted(absl::Minutes(2));
}

std::string LeafLine(std::int64_t step, const std::string& path,
                     const std::string& kind, std::optional<DType> dtype,
                     bool packed, const Shape& shape, const std::string& tag,
                     const std::string& value) {
  return absl::StrJoin(
      std::make_tuple(
          "leaf", step, path, kind,
          dtype ? std::string(Name(*dtype)) : std::string("-"),
          packed ? "packed" : "-",
          dtype ? "[" + absl::StrJoin(shape, ",") + "]" : std::string("-"),
          tag.empty() ? std::string("-") : absl::CEscape(tag), value),
      "\t");
}

std::string StepLine(const StepInfo& info) {
  std::string metrics;
  for (const auto& [name, value] : info.metrics) {
    absl::StrAppendFormat(&metrics, "%s=%.17g ", name, value);
  }
  return absl::StrFormat(
      "step\t%d\tversion %d\tbase %d\t%d leaves, %d changed\t%d bytes, %d "
      "new\t%d nan, %d inf\t%s\t%s\t%s\t%s\t%s\n",
      info.step, info.version, info.base, info.leaf_count, info.changed_leaves,
      info.logical_bytes, info.new_bytes, info.nan_count, info.inf_count,
      info.digest, metrics,
      info.tags.empty() ? "-" : absl::StrJoin(info.tags, ","),
      info.pinned ? "pinned" : "-", info.note);
}

}  // namespace

absl::Status MakeGoldenStore(const std::string& directory, int format) {
  StoreOptions options;
  options.create_if_missing = true;
  options.threads = 1;
  options.chunk_bytes = std::size_t{256} << 10;
  options.collect = false;
  absl::StatusOr<Store> store = Store::Open(directory, options);
  if (!store.ok()) return store.status();
  absl::Status status;
  const auto then = [&status](const absl::Status& next) {
    status.Update(next);
  };
  then(SaveSmall(*store, 1));
  then(SaveLarge(*store, 10, 1));
  then(SaveLarge(*store, 20, 2));
  then(SaveLarge(*store, 30, 3));
  then(SaveSmall(*store, 40));
  then(store->Tag("first", 1));
  then(store->Tag("good", 10));
  then(store->Delete(40));
  then(SaveLarge(*store, 20, 1, {.overwrite = true}));
  then(SaveLarge(*store, 25, 4));
  then(SaveLarge(*store, 26, 1));
  then(store->Delete(25));
  then(store->Collect({.min_dead_fraction = 0}).status());
  then(store->Fork(AtStep(10), "fork"));
  then(SaveLarge(*store, 11, 5, {.branch = "fork"}));
  then(store->Delete(26));
  then(store->Pin(30));
  then(store->Close());
  if (!status.ok()) return status;
  store = Store::Open(directory, options);
  if (!store.ok()) return store.status();
  then(store->Tag("good", 30, {.move = true}));
  then(SaveLarge(*store, 50, 3));
  then(store->Close());
  if (!status.ok()) return status;
  options.coding = Coding::kPlanes;
  store = Store::Open(directory, options);
  if (!store.ok()) return store.status();
  then(SaveLarge(*store, 60, kCoded, {}, /*with_copy=*/format > 0));
  then(store->SetPolicy(LatestN{9} | Preservation(EveryNSteps{10})));
  then(store->SetPolicy(BestN{.metric = "loss", .mode = BestMode::kMin, .n = 5},
                        "fork"));
  then(store->SetMetadata(R"({"run":"golden"})"));
  then(store->Close());
  return status;
}

absl::StatusOr<std::string> ListingOf(const Store& store) {
  std::string text;
  const auto branches = store.Branches();
  if (!branches.ok()) return branches.status();
  std::vector<StepInfo> steps;
  for (const BranchInfo& branch : *branches) {
    const auto some = store.Steps(branch.name);
    if (!some.ok()) return some.status();
    steps.insert(steps.end(), some->begin(), some->end());
    absl::StrAppendFormat(&text, "branch\t%s\t%s/%d\n", branch.name,
                          branch.origin_branch, branch.origin_step);
    const auto policy = store.Policy(branch.name);
    const auto metadata = store.Metadata(branch.name);
    if (!policy.ok()) return policy.status();
    if (!metadata.ok()) return metadata.status();
    absl::StrAppend(&text, "settings\t", branch.name, "\t", policy->text, "\t",
                    *metadata, "\n");
  }
  for (const StepInfo& info : steps) {
    text += StepLine(info);
    const StepSelector selector = AtStep(info.step, info.branch);
    const auto step = store.OpenStep(selector);
    if (!step.ok()) return step.status();
    const auto metadata = step->Metadata();
    if (!metadata.ok()) return metadata.status();
    absl::StrAppend(&text, "custom\t", info.step, "\t", metadata->custom, "\n");
    const auto leaves = step->Leaves();
    if (!leaves.ok()) return leaves.status();
    for (const LeafInfo& leaf : *leaves) {
      std::string value = "-";
      if (leaf.tie_to) {
        value = absl::BytesToHexString(leaf.tie_to->Encode());
      } else if (leaf.is_leaf()) {
        const auto read = step->Value(leaf.path);
        if (!read.ok()) return read.status();
        value = base::DigestOf(std::span(read->bytes)).Hex();
      }
      const bool array = leaf.kind == EntryKind::kArray;
      absl::StrAppend(
          &text,
          LeafLine(info.step, absl::BytesToHexString(leaf.path.Encode()),
                   std::string(Name(leaf.kind)),
                   array ? std::optional(leaf.dtype) : std::nullopt,
                   leaf.packed, leaf.shape, leaf.tag, value),
          "\n");
      if (!array) continue;
      const auto detail = step->Detail(leaf.path);
      if (!detail.ok()) return detail.status();
      if (!detail->statistics) continue;
      const Statistics& s = *detail->statistics;
      absl::StrAppendFormat(
          &text,
          "statistics\t%d\t%s\tcount %d nan %d inf %d zero %d min %.17g max "
          "%.17g sum %.17g squares %.17g\n",
          info.step, leaf.name, s.count, s.nan, s.inf, s.zero, s.min, s.max,
          s.sum, s.sum_of_squares);
    }
  }
  const auto tags = store.Tags();
  if (!tags.ok()) return tags.status();
  for (const TagInfo& tag : *tags) {
    absl::StrAppendFormat(&text, "tag\t%s\t%d\tversion %d\n", tag.name,
                          tag.step, tag.version);
  }
  return text;
}

std::vector<std::string> LeafLines(const std::string& listing,
                                   std::int64_t step) {
  std::vector<std::string> lines;
  const std::string start = absl::StrCat("leaf\t", step, "\t");
  for (const auto line : absl::StrSplit(listing, '\n')) {
    if (line.substr(0, start.size()) == start) lines.emplace_back(line);
  }
  return lines;
}

std::string LeafLine(std::int64_t step, const nlohmann::json& entry,
                     const std::string& value) {
  const bool array = entry["kind"] == "array";
  std::string what = "-";
  if (entry.contains("tie_to")) {
    what = entry["tie_to"].get<std::string>();
  } else if (entry["leaf"].get<bool>()) {
    what = base::DigestOf(value).Hex();
  }
  return LeafLine(
      step, entry["path"], entry["kind"],
      array ? std::optional(static_cast<DType>(entry["dtype"].get<int>()))
            : std::nullopt,
      array && entry["packed"].get<bool>(),
      array ? entry["shape"].get<Shape>() : Shape(), entry["tag"], what);
}

}  // namespace ckptree::testing
