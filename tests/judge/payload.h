// SPDX-License-Identifier: Apache-2.0

// Where the bytes of leaves stand in the files of a store: found by looking
// for them, not by asking the engine.

#ifndef CKPTREE_TESTS_JUDGE_PAYLOAD_H_
#define CKPTREE_TESTS_JUDGE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/judge/files.h"
#include "tests/judge/record.h"

namespace ckptree::testing {

class PayloadMap {
 public:
  PayloadMap(const StoreFiles& files, const Acknowledged& known);

  bool HasPayload(const std::string& file) const;
  bool IsPayload(const std::string& file, std::uint64_t at) const;
  // Bytes of `file` that are payload.
  std::uint64_t PayloadBytes(const std::string& file) const;

  // The leaves that may be lost by these hits: those that have lost bytes of
  // which no other copy is left, those in one pack with them, and what is tied
  // to any of these.
  std::set<LeafOfStep> MayBeLost(const std::vector<Hit>& hits) const;

  // Leaves of which not every byte was found: 0, or nothing here is right.
  std::size_t unfound() const { return unfound_; }

 private:
  // Bytes [at, at + length) of a content stand at [begin, end) of a file.
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::size_t content = 0;
    std::uint64_t at = 0;
  };
  struct Content {
    std::string bytes;
    std::set<LeafOfStep> leaves;
  };

  void Find(const std::string& file, const std::string& bytes);
  void CountUnfound();
  // Of what stands at one place of `hit_file`, there is a copy that is not hit.
  bool ElseWhere(const std::string& hit_file, std::size_t content,
                 std::uint64_t begin, std::uint64_t end,
                 const std::map<std::string, std::vector<Hit>>& hits) const;

  std::vector<Content> contents_;
  std::map<std::string, std::vector<Place>> places_;     // By file, by begin.
  std::map<LeafOfStep, std::vector<std::string>> ties_;  // By what they are.
  std::size_t unfound_ = 0;

  // While finding: 8 bytes of a content -> where they stand in it.
  std::multimap<std::uint64_t, std::pair<std::size_t, std::uint64_t>> words_;
  std::vector<bool> seen_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_JUDGE_PAYLOAD_H_
