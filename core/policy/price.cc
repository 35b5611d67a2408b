// SPDX-License-Identifier: Apache-2.0

#include "core/policy/price.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/version/version_shares.h"
#include "schema/keys.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// The steps by version.
class Timeline {
 public:
  explicit Timeline(const std::vector<PricedStep>& steps) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      places_.push_back({steps[i].version, i, steps[i].fixed});
      any_fixed_ |= steps[i].fixed;
    }
    std::sort(
        places_.begin(), places_.end(),
        [](const Place& a, const Place& b) { return a.version < b.version; });
    in_order_ = std::is_sorted(
        places_.begin(), places_.end(),
        [](const Place& a, const Place& b) { return a.index < b.index; });
  }

  // The steps saved by versions in [first, last].
  struct Users {
    bool any = false;
    bool fixed = false;     // One of them stays anyway.
    std::size_t index = 0;  // The greatest.
  };
  Users Between(std::uint64_t first, std::uint64_t last) const {
    Users users;
    auto it = std::upper_bound(
        places_.begin(), places_.end(), last,
        [](std::uint64_t v, const Place& p) { return v < p.version; });
    while (it != places_.begin()) {
      --it;
      if (it->version < first) break;
      users.index = users.any ? std::max(users.index, it->index) : it->index;
      users.any = true;
      users.fixed |= it->fixed;
      if (in_order_ && !any_fixed_) break;
    }
    return users;
  }

  // What is found from the newest on is final as soon as it is found.
  bool simple() const { return in_order_ && !any_fixed_; }
  std::uint64_t oldest() const {
    return places_.empty() ? 0 : places_.front().version;
  }

 private:
  struct Place {
    std::uint64_t version = 0;
    std::size_t index = 0;
    bool fixed = false;
  };
  std::vector<Place> places_;
  bool in_order_ = true;
  bool any_fixed_ = false;
};

}  // namespace

absl::StatusOr<std::size_t> OldestBeyond(const kv::Database& database,
                                         const PriceHead& head,
                                         const std::vector<PricedStep>& steps,
                                         std::uint64_t bytes) {
  if (steps.empty()) return std::size_t{0};
  const Timeline timeline(steps);
  CKPTREE_ASSIGN_OR_RETURN(const auto shares, SharesByVersion(database));
  // A version that is not stored yet will take what the newest one takes.
  const double of_new = shares.empty() ? 1 : shares.rbegin()->second;
  // By the greatest index of a step that needs them.
  std::vector<std::uint64_t> needed(steps.size(), 0);
  std::uint64_t always = 0;
  std::uint64_t found = 0;
  const auto count = [&](std::uint64_t born, std::uint64_t last,
                         std::uint64_t size) {
    const Timeline::Users users = timeline.Between(born, last);
    if (!users.any) return;
    if (!shares.empty()) {
      const auto share = shares.find(born);
      const bool is_new = born > shares.rbegin()->first;
      size = static_cast<std::uint64_t>(static_cast<double>(size) *
                                        (share != shares.end() ? share->second
                                         : is_new              ? of_new
                                                               : 1.0));
    }
    std::uint64_t& sum = users.fixed ? always : needed.at(users.index);
    sum += size;
    found += size;
  };
  for (const auto& [born, size] : head.bytes) count(born, head.version, size);
  // As of one moment: collection joins dead lists at any time.
  const schema::KeyRange range = schema::AllRows(schema::Row::kDead);
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Iterator rows,
      database.Scan(Space::kRecords, range.begin, range.end));
  schema::DeadList list = head.dead;
  while (list.prev != 0 && list.prev >= timeline.oldest()) {
    for (const schema::DeadPart& part : list.parts) {
      for (const schema::BlockRun& run : part.runs) {
        count(run.version, list.prev, run.bytes);
      }
    }
    if (timeline.simple() && found > bytes) break;
    const std::string key = schema::DeadKey(list.prev);
    rows.Seek(key);
    CKPTREE_RETURN_IF_ERROR(rows.status());
    if (!rows.Valid() || rows.key() != key) {
      return absl::DataLossError(
          absl::StrFormat("the dead list of version %d is missing", list.prev));
    }
    CKPTREE_ASSIGN_OR_RETURN(list, schema::DecodeDeadList(rows.value()));
  }
  std::uint64_t total = always;
  for (std::size_t kept = steps.size(); kept-- > 0;) {
    total += needed[kept];
    if (total > bytes) return std::min(kept + 1, steps.size() - 1);
  }
  return std::size_t{0};
}

}  // namespace ckptree::internal
