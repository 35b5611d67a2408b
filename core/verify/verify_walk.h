// SPDX-License-Identifier: Apache-2.0

// What the checks of a verify have in common: the versions of a store in
// version order, and the damage that was found.

#ifndef CKPTREE_CORE_VERIFY_VERIFY_WALK_H_
#define CKPTREE_CORE_VERIFY_VERIFY_WALK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "ckptree/store.h"
#include "core/version/base_part.h"
#include "kv/database.h"
#include "schema/dead_list.h"
#include "schema/leaf_record.h"
#include "schema/step_record.h"

namespace ckptree::internal {

// A step, ordered by branch and number.
struct StepName {
  std::string branch = {};  // Empty: the main branch.
  std::int64_t step = 0;

  std::string Text() const { return StepText(branch, step); }
  friend auto operator<=>(const StepName&, const StepName&) = default;
};

// One version that is not collected, with what could be read of it.
struct VersionView {
  schema::StepRecord record;
  std::string branch = {};  // Name; empty: the main branch.
  bool removed = false;     // Its step has no row any more.
  std::optional<schema::DeadList> dead;
  std::vector<schema::PartRecord> parts;
  std::map<std::uint16_t, std::shared_ptr<const BasePart>> loaded;
  bool whole = true;  // Every part was loaded.

  StepName step() const { return {branch, record.step}; }
  // "step 12", "step BRANCH/12", "removed step 12 (version 3)"
  std::string name() const;
};

// A block, wherever it is.
struct BlockId {
  std::uint16_t part = 0;
  schema::Block block;

  friend auto operator<=>(const BlockId&, const BlockId&) = default;
};

BlockId RecordBlock(std::uint16_t part, const BaseLeaf& leaf);
BlockId RecordBlock(std::uint16_t part, const schema::MapRun& run);
BlockId ChunkBlock(const schema::ChunkRef& ref);
// The name of leaf `ordinal` of a loaded part.
std::string LeafName(const BasePart& part, std::size_t ordinal);

// Collects findings and damaged blocks. Confined to one thread.
class Damage {
 public:
  explicit Damage(VerifyReport* report) : report_(report) {}

  void Add(Finding::Severity severity, std::string what,
           const std::set<StepName>& steps = {}, std::string leaf = "");
  // A block that cannot be read or is wrong; Explain() says whom it hurts.
  void AddBlock(const BlockId& id, std::string what);
  // The same of what stands at `offset` of the block alone.
  void AddSlice(const BlockId& id, std::uint32_t offset, std::string what);

  // Turns damaged blocks into findings that name leaf and steps: looks through
  // every step of `versions` (loads them again; reads no chunks).
  void Explain(const kv::Database& database,
               const std::vector<VersionView>& versions);

 private:
  struct Broken {
    std::string what;
    bool all = false;
    std::set<std::uint32_t> offsets;  // Where not all of it.
  };

  VerifyReport* const report_;
  std::map<BlockId, Broken> blocks_;
};

// Loads a part leaf by leaf, sharing the records that `known` (the same part of
// the base, or null) has already; a leaf whose record cannot be read is null in
// the result and reported to `damage`.
absl::StatusOr<std::shared_ptr<const BasePart>> LoadPartSharing(
    const kv::Database& database, const schema::PartRecord& part,
    const BasePart* known, Damage* damage);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERIFY_VERIFY_WALK_H_
