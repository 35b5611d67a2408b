// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf of every part, where paths or boxes changed.

#include "core/save/part_union.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/array/chunk_grid.h"
#include "core/save/box_cover.h"

namespace ckptree::internal {
namespace {

using schema::Box;
using schema::TreeEntry;

// Where an entry is, and what its part has of it.
struct Found {
  const TreeEntry* entry = nullptr;
  std::uint16_t part = 0;
  const std::vector<Box>* boxes = nullptr;  // Null: the whole.
};

bool IsEmpty(const std::vector<std::int64_t>& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

std::string NameOf(const std::string& encoded) {
  return Path::Decode(encoded).value_or(Path()).Text();
}

template <typename... Args>
absl::Status Refused(const absl::FormatSpec<Args...>& format,
                     const Args&... args) {
  return absl::InvalidArgumentError(absl::StrFormat(format, args...));
}

// Boxes with their part, ascending by where they start.
using Boxes = std::vector<std::pair<const Box*, std::uint16_t>>;

// Two boxes meet only where they do along the first dimension: those that still
// reach to where one begins are few.
absl::Status CheckApart(const std::string& path, const Boxes& boxes) {
  Boxes open;
  for (const auto& [box, part] : boxes) {
    if (box->start.empty()) {
      if (boxes.size() == 1) return absl::OkStatus();
      return Refused("%s was put by ranks %d and %d: one of them has it",
                     NameOf(path), boxes[0].second, boxes[1].second);
    }
    const std::int64_t begin = box->start[0];
    std::erase_if(open, [begin](const auto& other) {
      return other.first->start[0] + other.first->shape[0] <= begin;
    });
    for (const auto& [other, owner] : open) {
      if (!BoxesOverlap(*box, *other)) continue;
      return Refused(
          "%s: the box at %s of shape %s of rank %d overlaps the one at %s of "
          "shape %s of rank %d: one rank saves each element",
          NameOf(path), ShapeText(other->start), ShapeText(other->shape), owner,
          ShapeText(box->start), ShapeText(box->shape), part);
    }
    open.emplace_back(box, part);
  }
  return absl::OkStatus();
}

// Those of one path.
absl::Status CheckLeaf(const std::vector<Found>& found) {
  const Found& first = found.front();
  const TreeEntry& entry = *first.entry;
  for (const Found& other : found) {
    if (*other.entry == entry) continue;
    if (other.entry->kind != entry.kind) {
      return Refused("%s is of kind %s on rank %d and of kind %s on rank %d",
                     NameOf(entry.path), Name(entry.kind), first.part,
                     Name(other.entry->kind), other.part);
    }
    if (entry.kind == EntryKind::kArray) {
      return Refused(
          "%s is %s of shape %s on rank %d and %s of shape %s on rank %d%s",
          NameOf(entry.path), Name(entry.dtype), ShapeText(entry.shape),
          first.part, Name(other.entry->dtype), ShapeText(other.entry->shape),
          other.part,
          other.entry->dtype == entry.dtype && other.entry->shape == entry.shape
              ? ", with another tag"
              : "");
    }
    return Refused("%s has another tag or target on rank %d than on rank %d",
                   NameOf(entry.path), first.part, other.part);
  }
  if (!IsLeaf(entry.kind)) return absl::OkStatus();
  if (found.size() == 1 && first.boxes == nullptr) return absl::OkStatus();
  // Who has elements of it; an empty box holds none, wherever it is.
  std::vector<const Found*> owners;
  owners.reserve(found.size());
  Boxes boxes;
  boxes.reserve(found.size());
  for (const Found& place : found) {
    if (place.boxes == nullptr) {
      owners.push_back(&place);
      continue;
    }
    const std::size_t before = boxes.size();
    for (const Box& box : *place.boxes) {
      if (absl::Status status = CheckBox(box.start, box.shape, entry.shape);
          !status.ok()) {
        return Refused("%s: a box of rank %d: %s", NameOf(entry.path),
                       place.part, status.message());
      }
      if (!IsEmpty(box.shape)) boxes.emplace_back(&box, place.part);
    }
    if (boxes.size() > before) owners.push_back(&place);
  }
  // No part of an array without elements can be there twice.
  if (entry.kind == EntryKind::kArray && IsEmpty(entry.shape)) {
    return absl::OkStatus();
  }
  if (owners.size() == 1 && owners[0]->boxes == nullptr) {
    return absl::OkStatus();
  }
  for (std::size_t i = 1; i < owners.size(); ++i) {
    const bool whole = owners[i]->boxes == nullptr;
    if (!whole && owners[0]->boxes != nullptr) continue;
    const Found& all = *owners[whole ? i : 0];
    const Found& other = *owners[whole ? 0 : i];
    if (other.boxes != nullptr) {
      return Refused(
          "%s was put whole by rank %d, and a box of it by rank %d: one rank "
          "saves each element",
          NameOf(entry.path), all.part, other.part);
    }
    return Refused(
        "%s was put by ranks %d and %d: one rank saves each value; say what "
        "all ranks have alike, or give each rank a path of its own",
        NameOf(entry.path), other.part, all.part);
  }
  std::sort(boxes.begin(), boxes.end(), [](const auto& a, const auto& b) {
    return a.first->start < b.first->start;
  });
  CKPTREE_RETURN_IF_ERROR(CheckApart(entry.path, boxes));
  std::vector<Box> all;
  all.reserve(boxes.size());
  for (const auto& [box, part] : boxes) all.push_back(*box);
  return CheckCovered(entry.path, entry.shape, all);
}

// A tie of rank `rank` that is not in its part; `there`, `of`: what the parts
// have at its path, and at that of its target.
absl::Status CheckTie(const std::string& path, const std::string& target,
                      std::uint16_t rank, const Found* there, const Found* of) {
  if (there != nullptr) {
    const TreeEntry& entry = *there->entry;
    if (entry.kind == EntryKind::kTie && entry.tie_to == target) {
      return absl::OkStatus();
    }
    return Refused(
        "%s is not the same on ranks %d and %d: rank %d ties it to "
        "%s, rank %d %s",
        NameOf(path), std::min(there->part, rank), std::max(there->part, rank),
        rank, NameOf(target), there->part,
        entry.kind == EntryKind::kTie
            ? absl::StrFormat("to %s", NameOf(entry.tie_to))
            : absl::StrFormat("has a %s there", Name(entry.kind)));
  }
  if (of == nullptr) {
    return Refused("%s is tied to %s, which no rank has", NameOf(path),
                   NameOf(target));
  }
  return Refused(
      "%s was put by rank %d and not by rank %d, which has %s, to which it is "
      "tied: a tie is saved with its target",
      NameOf(path), rank, of->part, NameOf(target));
}

}  // namespace

absl::Status CheckUnion(const std::vector<PartToUnite>& parts,
                        std::int64_t most) {
  std::vector<Found> all;
  for (const PartToUnite& part : parts) {
    std::uint32_t ordinal = 0;
    auto boxed = part.boxed->begin();
    for (const TreeEntry& entry : *part.entries) {
      Found found = {&entry, part.part, nullptr};
      if (IsLeaf(entry.kind)) {
        if (boxed != part.boxed->end() && boxed->ordinal == ordinal) {
          found.boxes = &boxed->boxes;
          ++boxed;
        }
        ++ordinal;
      }
      all.push_back(found);
    }
    if (boxed != part.boxed->end()) {
      return Refused("rank %d has boxes of leaf %d of %d", part.part,
                     boxed->ordinal, ordinal);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return a.entry->path < b.entry->path;
  });
  std::vector<Found> same;
  const Found* leaf = nullptr;  // The last one that has nothing below it.
  std::int64_t entries = 0;     // Of the step: what ranks share counts once.
  for (std::size_t i = 0; i < all.size(); ++entries) {
    same.clear();
    const std::string& path = all[i].entry->path;
    for (; i < all.size() && all[i].entry->path == path; ++i) {
      same.push_back(all[i]);
    }
    if (leaf != nullptr && path.starts_with(leaf->entry->path)) {
      return Refused("%s of rank %d lies below the leaf %s of rank %d",
                     NameOf(path), same.front().part, NameOf(leaf->entry->path),
                     leaf->part);
    }
    const EntryKind kind = same.front().entry->kind;
    if (IsLeaf(kind) || kind == EntryKind::kTie) leaf = &all[i - same.size()];
    CKPTREE_RETURN_IF_ERROR(CheckLeaf(same));
  }
  if (entries > most) {
    return Refused(
        "%d entries of all ranks together (leaves, ties, nodes): a step has at "
        "most %d",
        entries, most);
  }
  const auto find = [&all](const std::string& path) -> const Found* {
    const auto at = std::lower_bound(
        all.begin(), all.end(), path,
        [](const Found& one, const auto& p) { return one.entry->path < p; });
    return at != all.end() && at->entry->path == path ? &*at : nullptr;
  };
  for (const PartToUnite& part : parts) {
    for (const auto& [path, target] : *part.ties) {
      CKPTREE_RETURN_IF_ERROR(
          CheckTie(path, target, part.part, find(path), find(target)));
    }
  }
  return absl::OkStatus();
}

std::optional<Disagreement> CompareReplicated(
    const std::vector<std::pair<std::uint16_t, std::string_view>>& ranks) {
  if (ranks.empty()) return std::nullopt;
  constexpr std::size_t kBytes = 16;
  const std::uint16_t first = ranks.front().first;
  // What the first has, with the values that others were the first to look at.
  std::string_view mine = ranks.front().second;
  std::string joined;
  std::map<std::size_t, std::uint16_t> looked;  // Who, by the place of it.
  for (const auto& [rank, theirs] : ranks) {
    if (theirs == mine) continue;
    // In tree order both: where the paths differ, one of them lacks one.
    std::size_t at = 0;
    for (; at < mine.size() && at < theirs.size(); at += kBytes) {
      const auto a = base::ReadBig<std::uint64_t>(mine, at);
      const auto b = base::ReadBig<std::uint64_t>(theirs, at);
      if (a != b) break;
      const auto value_a = base::ReadBig<std::uint32_t>(mine, at + 12);
      const auto value_b = base::ReadBig<std::uint32_t>(theirs, at + 12);
      if (base::ReadBig<std::uint32_t>(mine, at + 8) !=
          base::ReadBig<std::uint32_t>(theirs, at + 8)) {
        return Disagreement{a, first, rank, Disagreement::How::kEntry};
      }
      if (value_a == value_b || value_b == 0) continue;  // Did not look.
      if (value_a != 0) {
        const auto by = looked.find(at);
        return Disagreement{a, by == looked.end() ? first : by->second, rank,
                            Disagreement::How::kValue};
      }
      if (joined.empty()) joined = std::string(mine);
      joined.replace(at, kBytes, theirs.substr(at, kBytes));
      mine = joined;
      looked[at] = rank;
    }
    if (at >= mine.size() && at >= theirs.size()) continue;
    const auto has = [at](std::string_view list, std::uint64_t name) {
      for (std::size_t i = at; i < list.size(); i += kBytes) {
        if (base::ReadBig<std::uint64_t>(list, i) == name) return true;
      }
      return false;
    };
    if (at < mine.size()) {
      const auto name = base::ReadBig<std::uint64_t>(mine, at);
      if (!has(theirs, name)) {
        return Disagreement{name, first, rank, Disagreement::How::kMissing};
      }
    }
    return Disagreement{base::ReadBig<std::uint64_t>(theirs, at), rank, first,
                        Disagreement::How::kMissing};
  }
  return std::nullopt;
}

}  // namespace ckptree::internal
