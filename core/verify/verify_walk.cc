// SPDX-License-Identifier: Apache-2.0

#include "core/verify/verify_walk.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/entry_kind.h"
#include "ckptree/path.h"
#include "core/version/base_loader.h"
#include "core/version/leaf_reader.h"
#include "schema/keys.h"
#include "schema/tree.h"

namespace ckptree::internal {

using schema::BlockKind;
using schema::Space;

std::string VersionView::name() const {
  return removed ? absl::StrFormat("removed step %s (version %d)",
                                   step().Text(), record.version)
                 : absl::StrFormat("step %s", step().Text());
}

BlockId RecordBlock(std::uint16_t part, const BaseLeaf& leaf) {
  return {part,
          {BlockKind::kLeafRecord, leaf.place, leaf.version, leaf.source + 1}};
}

BlockId RecordBlock(std::uint16_t part, const schema::MapRun& run) {
  return {part,
          {BlockKind::kLeafRecord, run.place, run.version, run.source + 1}};
}

BlockId ChunkBlock(const schema::ChunkRef& ref) {
  return {ref.part, {BlockKind::kChunk, ref.place, ref.version, ref.n}};
}

namespace {

std::string TextOf(const std::string& encoded_path) {
  return Path::Decode(encoded_path).value_or(Path()).Text();
}

}  // namespace

std::string LeafName(const BasePart& part, std::size_t ordinal) {
  std::size_t leaf = 0;
  for (const schema::TreeEntry& entry : *part.entries) {
    if (!IsLeaf(entry.kind)) continue;
    if (leaf++ == ordinal) {
      return TextOf(entry.path);
    }
  }
  return absl::StrFormat("leaf %d", ordinal);
}

void Damage::Add(Finding::Severity severity, std::string what,
                 const std::set<StepName>& steps, std::string leaf) {
  Finding finding;
  finding.severity = severity;
  finding.what = std::move(what);
  finding.leaf = std::move(leaf);
  for (const StepName& step : steps) {
    finding.steps.push_back(step.step);
    finding.selectors.push_back(step.Text());
  }
  report_->findings.push_back(std::move(finding));
}

void Damage::AddBlock(const BlockId& id, std::string what) {
  Broken& broken = blocks_[id];
  if (!broken.all) broken.what = std::move(what);
  broken.all = true;
}

void Damage::AddSlice(const BlockId& id, std::uint32_t offset,
                      std::string what) {
  Broken& broken = blocks_[id];
  if (broken.what.empty()) broken.what = std::move(what);
  broken.offsets.insert(offset);
}

void Damage::Explain(const kv::Database& database,
                     const std::vector<VersionView>& versions) {
  if (blocks_.empty()) return;
  // Leaves that share a block, and ties of these with what they are tied to;
  // the steps in which each does.
  std::map<BlockId,
           std::map<std::pair<std::string, std::string>, std::set<StepName>>>
      hurt;
  for (const VersionView& version : versions) {
    if (version.removed) continue;
    std::map<std::uint16_t, std::shared_ptr<const BasePart>> parts;
    std::multimap<std::string, std::string> ties;  // By what they are tied to.
    for (const schema::PartRecord& record : version.parts) {
      VerifyReport unused;
      Damage again(&unused);
      const auto part = LoadPartSharing(database, record, nullptr, &again);
      if (!part.ok()) continue;
      parts[record.part] = *part;
      for (const schema::TreeEntry& entry : *(*part)->entries) {
        if (entry.kind != EntryKind::kTie) continue;
        ties.emplace(TextOf(entry.tie_to), TextOf(entry.path));
      }
    }
    for (const auto& numbered : parts) {
      const std::uint16_t number = numbered.first;
      const BasePart& part = *numbered.second;
      const auto note = [&](const BlockId& id, std::uint32_t offset,
                            std::size_t ordinal) {
        const auto found = blocks_.find(id);
        if (found == blocks_.end()) return;
        const Broken& broken = found->second;
        if (!broken.all && !broken.offsets.contains(offset)) return;
        const std::string leaf = LeafName(part, ordinal);
        hurt[id][{leaf, ""}].insert(version.step());
        const auto [begin, end] = ties.equal_range(leaf);
        for (auto tie = begin; tie != end; ++tie) {
          hurt[id][{tie->second, leaf}].insert(version.step());
        }
      };
      for (std::size_t i = 0; i < part.leaves.size(); ++i) {
        const auto& leaf = part.leaves[i];
        note(RecordBlock(number, part.map.At(static_cast<std::uint32_t>(i))), 0,
             i);
        if (leaf == nullptr) continue;
        for (const schema::ChunkRef& ref : leaf->record.chunks) {
          note(ChunkBlock(ref), ref.offset, i);
        }
      }
    }
  }
  for (const auto& [id, broken] : blocks_) {
    const auto it = hurt.find(id);
    if (it == hurt.end()) {
      Add(Finding::Severity::kWarning, broken.what + " (no step needs it)");
      continue;
    }
    for (const auto& [name, names] : it->second) {
      const auto& [leaf, tied_to] = name;
      std::string steps;
      for (const StepName& step : names) {
        absl::StrAppendFormat(&steps, "%s%s", steps.empty() ? "" : ", ",
                              step.Text());
      }
      Add(Finding::Severity::kDamage,
          absl::StrFormat("%s: %s%s (hurts step %s)", leaf,
                          tied_to.empty() ? "" : "tied to " + tied_to + ": ",
                          broken.what, steps),
          names, leaf);
    }
  }
}

absl::StatusOr<std::shared_ptr<const BasePart>> LoadPartSharing(
    const kv::Database& database, const schema::PartRecord& part,
    const BasePart* known, Damage* damage) {
  CKPTREE_ASSIGN_OR_RETURN(std::shared_ptr<BasePart> base,
                           LoadPartEntries(database, part, known));
  std::map<BlockId, std::shared_ptr<const BaseLeaf>> have;
  if (known != nullptr) {
    for (const auto& leaf : known->leaves) {
      if (leaf != nullptr) have.emplace(RecordBlock(part.part, *leaf), leaf);
    }
  }
  const schema::LeafMap& map = base->map;
  base->leaves.resize(map.size());
  std::vector<std::uint32_t> missing;
  for (std::uint32_t i = 0; i < map.size(); ++i) {
    const auto it = have.find(RecordBlock(part.part, map.At(i)));
    if (it != have.end()) {
      base->leaves[i] = it->second;
    } else {
      missing.push_back(i);
    }
  }
  auto read = ReadLeaves(database, part.part, map, missing);
  if (read.ok()) {
    for (std::size_t i = 0; i < missing.size(); ++i) {
      base->leaves[missing[i]] = std::move((*read)[i]);
    }
    return base;
  }
  // One by one: which of them is it?
  for (const std::uint32_t ordinal : missing) {
    auto one = ReadLeaves(database, part.part, map, std::span(&ordinal, 1));
    if (one.ok()) {
      base->leaves[ordinal] = std::move(one->front());
    } else {
      damage->AddBlock(RecordBlock(part.part, map.At(ordinal)),
                       std::string(one.status().message()));
    }
  }
  return base;
}

}  // namespace ckptree::internal
