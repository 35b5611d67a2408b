// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/plan.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fault/random.h"

namespace ckptree::testing {
namespace {

constexpr int kFlipsEach = 3;
constexpr int kPairsEach = 8;
constexpr int kTries = 12;  // Until a damage is one.

// `file` under a higher number that is not taken; `file`.2 where it has none.
std::string Renumbered(const std::string& file, const StoreFiles& files) {
  std::size_t end = file.size();
  while (end > 0 &&
         std::isdigit(static_cast<unsigned char>(file[end - 1])) == 0) {
    --end;
  }
  std::size_t begin = end;
  while (begin > 0 &&
         std::isdigit(static_cast<unsigned char>(file[begin - 1])) != 0) {
    --begin;
  }
  if (begin == end) return file + ".2";
  std::uint64_t number =
      std::strtoull(file.substr(begin, end - begin).c_str(), nullptr, 10);
  std::string name;
  do {
    std::string digits = absl::StrCat(++number);
    if (digits.size() < end - begin) {
      digits.insert(0, end - begin - digits.size(), '0');
    }
    name = file.substr(0, begin) + digits + file.substr(end);
  } while (files.bytes.contains(name));
  return name;
}

class Planner {
 public:
  Planner(const StoreFiles& files, const StoreFiles& earlier,
          const PayloadMap& payload, std::uint64_t seed)
      : files_(files), earlier_(earlier), payload_(payload), random_(seed) {
    for (const auto& [name, bytes] : files.bytes) {
      names_.push_back(name);
      classes_[absl::StrCat(NamePattern(name),
                            payload.HasPayload(name) ? " *" : "")]
          .push_back(name);
    }
  }

  std::vector<PlannedTrial> Run(int each) {
    std::vector<PlannedTrial> plan;
    for (const auto& [pattern, names] : classes_) {
      for (int s = 0; s < kShapes; ++s) {
        const auto shape = static_cast<DamageShape>(s);
        const int count =
            shape == DamageShape::kFlip ? kFlipsEach * each : each;
        for (int i = 0; i < count; ++i) {
          if (const auto change = One(names, shape, i)) {
            plan.push_back(Planned({*change}));
          }
        }
      }
    }
    const std::size_t singles = plan.size();
    for (int i = 0; i < kPairsEach * each && singles > 1; ++i) {
      const Change& one = plan[random_.Below(singles)].changes[0];
      const Change& two = plan[random_.Below(singles)].changes[0];
      if (one.file == two.file) continue;
      plan.push_back(Planned({one, two}));
    }
    return plan;
  }

  PlannedTrial Planned(std::vector<Change> changes) const {
    PlannedTrial trial;
    trial.where = WhereOf(changes, files_, earlier_, payload_);
    trial.shape = changes.size() > 1 ? "two at once"
                                     : std::string(ShapeName(changes[0].shape));
    trial.changes = std::move(changes);
    return trial;
  }

 private:
  std::optional<Change> One(const std::vector<std::string>& names,
                            DamageShape shape, int i) {
    for (int attempt = 0; attempt < kTries; ++attempt) {
      Change change = {.shape = shape, .file = random_.Pick(names)};
      change.bit = random_.Int(8);
      change.seed = random_.Next() % 1000000;
      const std::string& bytes = files_.bytes.at(change.file);
      change.at = PlaceFor(change, i);
      if (shape == DamageShape::kSwapped) {
        // One of its kind, or any: of some kinds there is one file alone.
        change.other = random_.Pick(random_.OneIn(2) ? names_ : names);
        if (change.other == change.file) continue;
      } else if (shape == DamageShape::kDuplicated) {
        change.other = Renumbered(change.file, files_);
      } else if (shape == DamageShape::kForeign512 ||
                 shape == DamageShape::kForeign4k) {
        if (random_.OneIn(2)) change.other = random_.Pick(names_);
        if (change.other == change.file) continue;
      } else if (bytes.empty() && shape != DamageShape::kGrown &&
                 shape != DamageShape::kMissing) {
        return std::nullopt;
      }
      if (Apply(files_, earlier_, {change}).fired) return change;
    }
    return std::nullopt;
  }

  std::uint64_t PlaceFor(const Change& change, int i) {
    const std::string& bytes = files_.bytes.at(change.file);
    const std::uint64_t size = bytes.size();
    if (size == 0) return 0;
    switch (change.shape) {
      case DamageShape::kCut:
        switch (random_.Int(5)) {
          case 0:
            return 0;
          case 1:
            return size - 1;
          case 2:
            return size - std::min<std::uint64_t>(size, 16);
          default:
            return random_.Below(size);
        }
      case DamageShape::kZero512:
      case DamageShape::kForeign512:
        return random_.Below((size + 511) / 512) * 512;
      case DamageShape::kZero4k:
      case DamageShape::kForeign4k:
      case DamageShape::kOld4k:
        return random_.Below((size + 4095) / 4096) * 4096;
      default:
        break;
    }
    // One in three in what is no payload, one in what is, one anywhere; seldom
    // in fillings.
    std::uint64_t at = 0;
    for (int attempt = 0; attempt < 300; ++attempt) {
      at = random_.Below(size);
      if (attempt < 100 && bytes[at] == 0 && !random_.OneIn(8)) continue;
      if (!payload_.HasPayload(change.file) || i % 3 == 2) break;
      // It stands at the end, what describes a table.
      if (i % 3 == 0 && size > 3000 && random_.OneIn(2)) {
        at = size - 1 - random_.Below(3000);
      }
      if (payload_.IsPayload(change.file, at) == (i % 3 == 1)) break;
    }
    return at;
  }

  const StoreFiles& files_;
  const StoreFiles& earlier_;
  const PayloadMap& payload_;
  FaultRandom random_;
  std::vector<std::string> names_;
  std::map<std::string, std::vector<std::string>> classes_;
};

}  // namespace

std::vector<PlannedTrial> Plan(const StoreFiles& files,
                               const StoreFiles& earlier,
                               const PayloadMap& payload, std::uint64_t seed,
                               int each) {
  return Planner(files, earlier, payload, seed).Run(each);
}

std::vector<PlannedTrial> EveryByte(const StoreFiles& files,
                                    const PayloadMap& payload,
                                    std::uint64_t seed) {
  FaultRandom random(seed);
  const StoreFiles none;
  const Planner planner(files, none, payload, seed);
  std::vector<PlannedTrial> plan;
  for (const auto& [name, bytes] : files.bytes) {
    const bool unread =
        absl::StrContains(name, "/LOG") || absl::StrContains(name, "/OPTIONS");
    for (std::uint64_t at = 0; at < bytes.size(); ++at) {
      const bool filling = at > 0 && at + 1 < bytes.size() && bytes[at] == 0 &&
                           bytes[at - 1] == 0 && bytes[at + 1] == 0;
      const int bit = random.Int(8);
      if ((unread || filling) && at % 64 != 0) continue;
      plan.push_back(planner.Planned(
          {{.shape = DamageShape::kFlip, .file = name, .at = at, .bit = bit}}));
    }
  }
  return plan;
}

std::vector<PlannedTrial> EverySector(const StoreFiles& files,
                                      const PayloadMap& payload,
                                      std::uint64_t seed) {
  const StoreFiles none;
  const Planner planner(files, none, payload, seed);
  std::vector<PlannedTrial> plan;
  for (const auto& [name, bytes] : files.bytes) {
    for (std::uint64_t at = 0; at < bytes.size(); at += 4096) {
      const Change change = {
          .shape = DamageShape::kZero4k, .file = name, .at = at};
      if (!Apply(files, none, {change}).fired) continue;
      plan.push_back(planner.Planned({change}));
    }
  }
  return plan;
}

std::string WhereOf(const std::vector<Change>& changes, const StoreFiles& files,
                    const StoreFiles& earlier, const PayloadMap& payload) {
  std::string where;
  for (const Change& change : changes) {
    if (!where.empty()) where += " + ";
    where += NamePattern(change.file);
    if (!payload.HasPayload(change.file)) continue;
    const Damaged damaged = Apply(files, earlier, {change});
    bool hit = false;
    for (const Hit& h : damaged.hits) {
      // Its ends and what lies between are looked at, not each byte.
      const std::uint64_t step =
          std::max<std::uint64_t>(1, (h.end - h.begin) / 64);
      for (std::uint64_t at = h.begin; at < h.end && !hit; at += step) {
        hit = payload.IsPayload(h.file, at);
      }
    }
    where += hit ? " payload" : " beside payload";
  }
  return where;
}

}  // namespace ckptree::testing
