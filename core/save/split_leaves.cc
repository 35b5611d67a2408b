// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf of every part of which it has less than the whole.

#include "core/save/split_leaves.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/status_macros.h"

namespace ckptree::internal {
namespace {

// Bit `at` of a list that ends with its last byte that is not zero.
bool BitAt(const std::string& bits, std::size_t at) {
  return at / 8 < bits.size() && (bits[at / 8] >> (at % 8) & 1) != 0;
}

void SetBit(std::size_t at, std::string* bits) {
  if (bits->size() <= at / 8) bits->resize(at / 8 + 1, '\0');
  (*bits)[at / 8] = static_cast<char>((*bits)[at / 8] | (1 << (at % 8)));
}

void Unite(const std::string& with, std::string* bits) {
  if (bits->size() < with.size()) bits->resize(with.size(), '\0');
  for (std::size_t i = 0; i < with.size(); ++i) {
    (*bits)[i] = static_cast<char>((*bits)[i] | with[i]);
  }
}

std::uint64_t CountBits(const std::string& bits) {
  std::uint64_t count = 0;
  for (const char byte : bits) {
    count += static_cast<std::uint64_t>(
        std::popcount(static_cast<unsigned char>(byte)));
  }
  return count;
}

// Parts that have the same leaves.
struct Alike {
  std::size_t first = 0;  // One of them.
  std::uint32_t count = 0;
  std::string changed;  // On any of them.
  std::string nonfinite;
  std::string unknown;
};

struct NamedLeaf {
  std::uint64_t name = 0;
  LeafMarks marks;
};

}  // namespace

SplitNames SplitNamesOf(const std::vector<schema::TreeEntry>& entries,
                        const std::vector<schema::BoxedLeaf>& boxed) {
  SplitNames names;
  std::uint32_t ordinal = 0;
  auto next = boxed.begin();
  for (const schema::TreeEntry& entry : entries) {
    if (!IsLeaf(entry.kind)) continue;
    std::span<const schema::Box> boxes;
    if (next != boxed.end() && next->ordinal == ordinal) {
      boxes = next->boxes;
      ++next;
    }
    ++ordinal;
    if (ShareOf(entry, boxes) == Share::kSome) {
      names.push_back(base::ChecksumOf(entry.path));
    }
  }
  return names;
}

base::Digest DigestOfNames(const SplitNames& names) {
  std::string bytes;
  bytes.reserve(names.size() * sizeof(names[0]));
  for (const std::uint64_t name : names) base::AppendBig(name, &bytes);
  return base::DigestOf(bytes);
}

void SplitWriter::Add(std::string_view path, const LeafMarks& marks) {
  if (marks.changed) SetBit(names_.size(), &split_.changed);
  if (marks.nonfinite) SetBit(names_.size(), &split_.nonfinite);
  if (marks.unknown) SetBit(names_.size(), &split_.unknown);
  names_.push_back(base::ChecksumOf(path));
}

schema::SplitLeaves SplitWriter::Finish() && {
  if (names_.empty()) return {};
  split_.count = static_cast<std::uint32_t>(names_.size());
  split_.names = DigestOfNames(names_);
  return std::move(split_);
}

absl::StatusOr<LeafTotals> CountSplit(
    const std::vector<const schema::SplitLeaves*>& parts,
    absl::FunctionRef<
        absl::StatusOr<std::shared_ptr<const SplitNames>>(std::size_t)>
        names_of) {
  const auto differ = [] {
    return absl::DataLossError(
        "two ranks say the same leaves and another number of them");
  };
  std::map<base::Digest, Alike> all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const schema::SplitLeaves& part = *parts[i];
    if (part.count == 0) continue;
    const auto [it, is_new] = all.try_emplace(part.names);
    Alike& alike = it->second;
    if (is_new) {
      alike.first = i;
      alike.count = part.count;
    } else if (alike.count != part.count) {
      return differ();
    }
    Unite(part.changed, &alike.changed);
    Unite(part.nonfinite, &alike.nonfinite);
    Unite(part.unknown, &alike.unknown);
  }
  LeafTotals totals;
  if (all.size() == 1) {
    const Alike& alike = all.begin()->second;
    totals.leaves = alike.count;
    totals.changed = CountBits(alike.changed);
    totals.nonfinite = CountBits(alike.nonfinite);
    totals.unknown = CountBits(alike.unknown);
    return totals;
  }
  std::vector<NamedLeaf> leaves;
  for (const auto& [digest, alike] : all) {
    CKPTREE_ASSIGN_OR_RETURN(const std::shared_ptr<const SplitNames> names,
                             names_of(alike.first));
    if (names->size() != alike.count) return differ();
    for (std::size_t i = 0; i < names->size(); ++i) {
      leaves.push_back({(*names)[i],
                        {BitAt(alike.changed, i), BitAt(alike.nonfinite, i),
                         BitAt(alike.unknown, i)}});
    }
  }
  std::sort(
      leaves.begin(), leaves.end(),
      [](const NamedLeaf& a, const NamedLeaf& b) { return a.name < b.name; });
  for (std::size_t i = 0; i < leaves.size();) {
    NamedLeaf leaf = leaves[i];
    for (++i; i < leaves.size() && leaves[i].name == leaf.name; ++i) {
      leaf.marks |= leaves[i].marks;
    }
    totals.Add(leaf.marks);
  }
  return totals;
}

}  // namespace ckptree::internal
