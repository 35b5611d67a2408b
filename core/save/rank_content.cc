// SPDX-License-Identifier: Apache-2.0

// ContentBuilder: what a rank tells of what all ranks have alike, and what it
// leaves to the others. Hot path: per leaf.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "base/mapped_vector.h"
#include "ckptree/dtype.h"
#include "core/array/chunk_grid.h"
#include "core/save/step_content.h"
#include "schema/tree.h"

namespace ckptree::internal {
namespace {

// Values of more bytes are not compared between ranks, nor those that lie
// elsewhere than in the memory of the host.
constexpr std::uint64_t kComparedBytes = 64 << 10;

std::uint32_t Folded(std::uint64_t checksum) {
  return static_cast<std::uint32_t>(checksum ^ (checksum >> 32));
}

// The bytes of a value, row-major; `gathered` keeps them where they do not lie
// so. Nothing where they are not looked at.
std::optional<std::string_view> BytesToCompare(const SourceLeaf& leaf,
                                               std::string* gathered) {
  if (leaf.byte_length > kComparedBytes) return std::nullopt;
  if (leaf.boxes().empty()) return leaf.value();
  const SourceBox& box = leaf.boxes()[0];
  const auto* bytes = reinterpret_cast<const char*>(box.data);
  if (box.dense()) return std::string_view(bytes, leaf.byte_length);
  if (box.access->copy) return std::nullopt;
  gathered->resize(leaf.byte_length);
  if (leaf.byte_length == 0) return *gathered;
  // Packed elements have no strides.
  Gather(box.data, box.strides(), box.box->shape,
         (BitWidth(leaf.entry().dtype) + 7) / 8,
         reinterpret_cast<std::byte*>(gathered->data()));
  return *gathered;
}

// See schema::PartLayout::replicated; 0 for the value where it is not looked
// at.
void AppendReplicated(std::uint64_t name, std::string_view entry,
                      std::optional<std::string_view> value, std::string* out) {
  base::AppendBig(name, out);
  base::AppendBig(Folded(base::ChecksumOf(entry)), out);
  base::AppendBig(
      value.has_value() ? std::max(Folded(base::ChecksumOf(*value)), 1u) : 0u,
      out);
}

void AppendLeaf(const SourceLeaf& leaf, std::uint64_t name, std::string* out) {
  std::string entry;
  for (const int field : {static_cast<int>(leaf.entry().kind),
                          static_cast<int>(leaf.entry().dtype),
                          static_cast<int>(leaf.entry().packed)}) {
    absl::StrAppendFormat(&entry, "%d ", field);
  }
  for (const std::int64_t dim : leaf.entry().shape) {
    absl::StrAppendFormat(&entry, "%d ", dim);
  }
  entry += leaf.entry().tag;
  std::string gathered;
  AppendReplicated(name, entry, BytesToCompare(leaf, &gathered), out);
}

// The value of a tie is its target.
void AppendTie(const schema::TreeEntry& tie, std::string* out) {
  AppendReplicated(base::ChecksumOf(tie.path), "tie", tie.tie_to, out);
}

// Null where there is none of that path.
const SourceLeaf* FindLeaf(const base::MappedVector<SourceLeaf>& leaves,
                           std::string_view path) {
  const auto at = std::lower_bound(
      leaves.begin(), leaves.end(), path,
      [](const SourceLeaf& leaf, std::string_view p) { return leaf.path < p; });
  return at != leaves.end() && at->path == path ? &*at : nullptr;
}

}  // namespace

void ContentBuilder::KeepOwn(StepContent* content) {
  const auto per_rank = [this](std::string_view path) {
    return std::any_of(
        per_rank_.begin(), per_rank_.end(),
        [&path](const std::string& node) { return path.starts_with(node); });
  };
  // A tie to what all ranks have alike is alike, too; in tree order.
  std::vector<const schema::TreeEntry*> ties;
  for (const schema::TreeEntry& node : nodes_) {
    if (node.kind != EntryKind::kTie || per_rank(node.path)) continue;
    const SourceLeaf* const target = FindLeaf(content->leaves, node.tie_to);
    if (target == nullptr || target->by_box || per_rank(target->path)) continue;
    ties.push_back(&node);
  }
  std::sort(ties.begin(), ties.end(),
            [](const auto* a, const auto* b) { return a->path < b->path; });
  auto tie = ties.begin();
  std::erase_if(content->leaves, [&](const SourceLeaf& leaf) {
    if (leaf.by_box || per_rank(leaf.path)) return false;
    for (; tie != ties.end() && (*tie)->path < leaf.path; ++tie) {
      AppendTie(**tie, &content->replicated);
    }
    const std::uint64_t name = base::ChecksumOf(leaf.path);
    AppendLeaf(leaf, name, &content->replicated);
    if (name % world_ == rank_) return false;
    content->saved_elsewhere.emplace_back(leaf.path);
    return true;
  });
  for (; tie != ties.end(); ++tie) AppendTie(**tie, &content->replicated);
  // A tie goes with its target. Who has that has the tie, where it is alike;
  // else the coordinator looks for it.
  const std::unordered_set<const schema::TreeEntry*> alike(ties.begin(),
                                                           ties.end());
  std::vector<schema::TreeEntry> kept;
  for (schema::TreeEntry& node : nodes_) {
    if (node.kind != EntryKind::kTie ||
        FindLeaf(content->leaves, node.tie_to) != nullptr) {
      kept.push_back(std::move(node));
    } else if (alike.contains(&node)) {
      content->saved_elsewhere.push_back(std::move(node.path));
    } else {
      content->ties_elsewhere.emplace_back(std::move(node.path),
                                           std::move(node.tie_to));
    }
  }
  nodes_ = std::move(kept);
}

}  // namespace ckptree::internal
