// SPDX-License-Identifier: Apache-2.0

#include "core/save/rounded_pairs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckptree/dtype.h"
#include "core/array/chunk_grid.h"
#include "core/coding/rounded_copy.h"
#include "schema/limits.h"

namespace ckptree::internal {
namespace {

// Of each box.
constexpr std::size_t kSampledWords = 64;

template <typename Int>
void AppendInt(Int value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// What a copy and its master have alike: boxes, and the rounded values of a few
// elements. Nothing where they cannot be looked at.
std::optional<std::string> SampleOf(const SourceLeaf& leaf) {
  std::string sample;
  for (const SourceBox& box : leaf.boxes()) {
    const std::int64_t elements = ElementCount(box.box->shape).value_or(0);
    if (!box.dense() || box.data == nullptr || elements == 0) {
      return std::nullopt;
    }
    for (const std::int64_t start : box.box->start) AppendInt(start, &sample);
    for (const std::int64_t size : box.box->shape) AppendInt(size, &sample);
    const auto count = static_cast<std::size_t>(elements);
    for (std::size_t i = 0; i < kSampledWords; ++i) {
      const std::size_t at = i * (count - 1) / (kSampledWords - 1);
      std::uint16_t rounded = 0;
      if (leaf.entry().dtype == DType::kBfloat16) {
        std::memcpy(&rounded, box.data + at * sizeof(rounded), sizeof(rounded));
      } else {
        std::uint32_t word = 0;
        std::memcpy(&word, box.data + at * sizeof(word), sizeof(word));
        rounded = RoundedWord(word);
      }
      AppendInt(rounded, &sample);
    }
  }
  return sample;
}

bool MayBe(const SourceLeaf& leaf, DType dtype) {
  return leaf.form == LeafForm::kChunked && leaf.box_count != 0 &&
         leaf.entry().dtype == dtype && !leaf.entry().packed;
}

// Whether all boxes are cut by the rule, and not as the caller said.
bool IsCutByRule(const SourceLeaf& leaf, std::size_t chunk_bytes) {
  return std::all_of(
      leaf.boxes().begin(), leaf.boxes().end(), [&](const SourceBox& box) {
        return box.box->chunk_shape ==
               DefaultChunkShape(leaf.entry().dtype, false, box.box->shape,
                                 static_cast<std::int64_t>(chunk_bytes));
      });
}

// REQUIRES: the same boxes.
bool AreCutAlike(const SourceLeaf& a, const SourceLeaf& b) {
  return std::equal(a.boxes().begin(), a.boxes().end(), b.boxes().begin(),
                    [](const SourceBox& x, const SourceBox& y) {
                      return x.box->chunk_shape == y.box->chunk_shape;
                    });
}

// Whether a chunk of each has room in one block.
bool FitTogether(const SourceLeaf& master) {
  return std::all_of(
      master.boxes().begin(), master.boxes().end(), [](const SourceBox& box) {
        return ElementCount(box.box->chunk_shape).value_or(0) * 6 <=
               schema::kMaxChunkBytes;
      });
}

}  // namespace

void PairRoundedCopies(std::size_t chunk_bytes, StepContent* content) {
  base::MappedVector<SourceLeaf>& leaves = content->leaves;
  const bool any = std::any_of(
      leaves.begin(), leaves.end(),
      [](const SourceLeaf& leaf) { return MayBe(leaf, DType::kBfloat16); });
  if (!any) return;
  std::map<std::string, std::deque<std::uint32_t>> masters;
  for (std::uint32_t i = 0; i < leaves.size(); ++i) {
    if (!MayBe(leaves[i], DType::kFloat32) || !FitTogether(leaves[i])) continue;
    if (auto sample = SampleOf(leaves[i])) {
      masters[*std::move(sample)].push_back(i);
    }
  }
  for (std::uint32_t i = 0; !masters.empty() && i < leaves.size(); ++i) {
    SourceLeaf& copy = leaves[i];
    if (!MayBe(copy, DType::kBfloat16)) continue;
    const auto sample = SampleOf(copy);
    const auto found =
        sample.has_value() ? masters.find(*sample) : masters.end();
    if (found == masters.end() || found->second.empty()) continue;
    SourceLeaf& master = leaves[found->second.front()];
    if (!AreCutAlike(copy, master) &&
        !(IsCutByRule(copy, chunk_bytes) && IsCutByRule(master, chunk_bytes))) {
      continue;
    }
    found->second.pop_front();
    master.copy = i;
    copy.is_copy = true;
    // They are cut alike, and lie alike in arrays of one shape.
    copy.only.box = master.only.box;
    if (copy.many == nullptr) continue;
    std::vector<SourceBox>& cut = content->storage->many.emplace_back(
        copy.boxes().begin(), copy.boxes().end());
    for (std::size_t b = 0; b < cut.size(); ++b) cut[b].box = &master.box(b);
    copy.many = cut.data();
  }
}

}  // namespace ckptree::internal
