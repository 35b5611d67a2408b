// SPDX-License-Identifier: Apache-2.0

// Which segments are thought needed, compared with those that steps have.

#ifndef CKPTREE_TESTS_REMOTE_SEGMENT_JUDGE_H_
#define CKPTREE_TESTS_REMOTE_SEGMENT_JUDGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/collect/chain.h"
#include "core/remote/needed_segments.h"
#include "core/version/kept_versions.h"
#include "gtest/gtest.h"
#include "schema/keys.h"

namespace ckptree::testing {

// Version, part, builder.
using Segment = std::tuple<std::uint64_t, std::uint16_t, std::uint8_t>;

// What must have happened for the comparisons to mean something.
struct Met {
  int states = 0;
  int may_go = 0;         // Segments that nothing kept has.
  int of_collected = 0;   // Such of a version that was collected,
  int with_branches = 0;  // also where several branches are left.
  int shared = 0;         // That a version needs that did not write them.
  int partly_dead = 0;    // Needed, and of some blocks are dead.
  int kept_too_long = 0;  // Where not all that is newest is kept.
};

// Compares one state with `has`, the segments that each version has blocks in.
class Judge {
 public:
  Judge(const internal::SegmentNeeds& needs, const internal::Chain& chain,
        std::map<std::uint64_t, std::set<Segment>> has, Met* met)
      : needs_(needs), chain_(chain), has_(std::move(has)), met_(*met) {
    ++met_.states;
    for (const auto& [version, link] : chain_.versions()) {
      const auto behind = chain_.Successors(version).size();
      if (behind == 0) newest_.insert(version);
      branched_ |= behind > 1;
    }
    branched_ |= newest_.size() > 1;
  }

  // Each version by itself, and some sets; each with and without all that is
  // newest of a branch.
  void CompareAll(std::mt19937_64* random) {
    for (const auto& [version, link] : chain_.versions()) {
      Compare(std::set<std::uint64_t>{version});
    }
    for (int i = 0; i < 4; ++i) {
      std::set<std::uint64_t> kept;
      for (const auto& [version, link] : chain_.versions()) {
        if ((*random)() % 3 == 0) kept.insert(version);
      }
      Compare(kept);
    }
    Compare({});
  }

  // What a policy keeps has all that is newest.
  void CompareKept(const internal::KeptVersions& kept) {
    std::set<std::uint64_t> versions;
    for (const auto& [version, link] : chain_.versions()) {
      if (kept.Has(version)) versions.insert(version);
    }
    ASSERT_TRUE(std::includes(versions.begin(), versions.end(), newest_.begin(),
                              newest_.end()));
    CompareOne(versions);
  }

 private:
  void Compare(std::set<std::uint64_t> kept) {
    CompareOne(kept);
    kept.insert(newest_.begin(), newest_.end());
    CompareOne(kept);
  }

  void CompareOne(const std::set<std::uint64_t>& kept) {
    const bool exact =
        !branched_ ||
        std::includes(kept.begin(), kept.end(), newest_.begin(), newest_.end());
    std::set<Segment> wanted;
    for (const std::uint64_t version : kept) {
      wanted.insert(has_[version].begin(), has_[version].end());
    }
    const std::vector<bool> needed = needs_.NeededBy({kept, chain_.newest()});
    ASSERT_EQ(needed.size(), needs_.segments().size());
    std::size_t known = 0;
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const auto& [key, row] = needs_.segments()[i];
      const bool is_wanted =
          wanted.contains({key.version, key.part, key.builder});
      known += is_wanted ? 1 : 0;
      const bool collected = !chain_.versions().contains(key.version);
      if (is_wanted) {
        ASSERT_TRUE(needed[i]) << Text(key, kept);
        met_.shared += kept.contains(key.version) ? 0 : 1;
        met_.partly_dead += row.dead.empty() ? 0 : 1;
      } else if (exact) {
        ASSERT_FALSE(needed[i]) << Text(key, kept);
        ++met_.may_go;
        met_.of_collected += collected ? 1 : 0;
        met_.with_branches += collected && branched_ ? 1 : 0;
      } else {
        met_.kept_too_long += needed[i] ? 1 : 0;
      }
    }
    ASSERT_EQ(known, wanted.size());  // All of them have a row.
  }

  static std::string Text(const schema::SegmentKeyFields& key,
                          const std::set<std::uint64_t>& kept) {
    std::string text =
        absl::StrFormat("version %d part %d builder %d; kept:", key.version,
                        key.part, key.builder);
    for (const std::uint64_t version : kept) {
      absl::StrAppendFormat(&text, " %d", version);
    }
    return text;
  }

  const internal::SegmentNeeds& needs_;
  const internal::Chain& chain_;
  std::map<std::uint64_t, std::set<Segment>> has_;
  Met& met_;
  std::set<std::uint64_t> newest_;  // That nothing follows.
  bool branched_ = false;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_REMOTE_SEGMENT_JUDGE_H_
