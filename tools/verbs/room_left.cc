// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/room_left.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;
using Level = Diagnosis::Level;

// Steps by which growth is judged, where they span long enough.
constexpr std::size_t kRecentSteps = 50;
// What a run does in less says nothing of days.
constexpr absl::Duration kShortestSpan = absl::Minutes(10);
constexpr double kSecondsOfDay = 86400;

// Of all files below.
std::uint64_t BytesBelow(const std::string& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end;
       !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone)) continue;
    const std::uintmax_t size = it->file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

std::string DaysText(double days) {
  return days > 10000 ? "more than 10000" : absl::StrFormat("%.1f", days);
}

// The first of those by which growth is judged.
std::size_t FirstRecent(const std::vector<StepInfo>& steps) {
  std::size_t first = steps.size() - std::min(steps.size(), kRecentSteps);
  while (first > 0 &&
         steps.back().committed - steps[first].committed < kShortestSpan) {
    --first;
  }
  return first;
}

}  // namespace

Lasting WhereAllStays(const std::vector<StepInfo>& steps, std::uint64_t free) {
  Lasting lasting;
  if (steps.size() < 2) return lasting;
  const std::size_t first = FirstRecent(steps);
  const absl::Duration took = steps.back().committed - steps[first].committed;
  if (took < kShortestSpan) {
    lasting.text =
        "; the saves so far are of too short a time to say how long it lasts";
    return lasting;
  }
  std::uint64_t written = 0;
  for (std::size_t i = first + 1; i < steps.size(); ++i) {
    written += steps[i].new_bytes;
  }
  if (written == 0) return lasting;
  lasting.days = static_cast<double>(free) * absl::ToDoubleSeconds(took) /
                 static_cast<double>(written) / kSecondsOfDay;
  lasting.text =
      absl::StrFormat(", enough for %s days of saves as the last %d were",
                      DaysText(*lasting.days), steps.size() - first);
  return lasting;
}

Lasting WhereSomeStays(const std::string& grows, std::uint64_t there,
                       absl::Time created, const std::vector<StepInfo>& steps,
                       std::uint64_t free) {
  Lasting lasting;
  lasting.text = absl::StrFormat("; what grows here is %s", grows);
  if (steps.empty()) return lasting;
  const absl::Duration took = steps.back().committed - created;
  const double days = static_cast<double>(free) * absl::ToDoubleSeconds(took) /
                      static_cast<double>(std::max<std::uint64_t>(there, 1)) /
                      kSecondsOfDay;
  if (took >= kShortestSpan && days >= 1) {
    lasting.days_at_least = days;
    absl::StrAppendFormat(
        &lasting.text, ": enough for at least %s days, as it came to %s in %s",
        DaysText(days), SizeText(there),
        AgeText(created, steps.back().committed));
  } else {
    absl::StrAppendFormat(&lasting.text,
                          ", for how long that lasts cannot be said yet");
  }
  return lasting;
}

namespace {

// The policies of the branches, each once.
absl::StatusOr<std::vector<std::string>> PoliciesOf(const Store& store) {
  std::vector<std::string> texts;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<BranchInfo> branches,
                           store.Branches());
  for (const BranchInfo& branch : branches) {
    CKPTREE_ASSIGN_OR_RETURN(PolicyInfo policy, store.Policy(branch.name));
    if (policy.text.empty() || policy.text == "all") continue;
    texts.push_back("`" + std::move(policy.text) + "`");
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

absl::StatusOr<Lasting> HowLong(const Store& store,
                                const std::string& directory,
                                const std::vector<StepInfo>& steps,
                                std::uint64_t free) {
  const StoreInfo info = store.Info();
  if (!info.remote.empty()) {
    return Lasting{" where what is fetched is kept", std::nullopt,
                   std::nullopt};
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> policies,
                           PoliciesOf(store));
  if (policies.empty() && info.far_bytes == 0)
    return WhereAllStays(steps, free);
  const std::string kept = absl::StrJoin(policies, " and ");
  const std::string grows =
      info.far_bytes == 0 ? absl::StrFormat("what %s keeps", kept)
      : policies.empty()
          ? std::string(
                "records of steps, whose arrays leave this disk (local_keep)")
          : absl::StrFormat(
                "records of the steps that %s keeps, whose arrays leave this "
                "disk (local_keep)",
                kept);
  return WhereSomeStays(grows, BytesBelow(directory), info.created, steps,
                        free);
}

}  // namespace

absl::StatusOr<Diagnosis> RoomLeft(const Store& store,
                                   const std::string& directory,
                                   const std::vector<StepInfo>& steps) {
  std::error_code error;
  const fs::space_info space = fs::space(directory, error);
  if (error) {
    return Diagnosis{"space", Level::kProblem,
                     "the free space is not known: " + error.message(),
                     "see whether the disk is there"};
  }
  std::uint64_t largest = 0;
  for (std::size_t i = steps.size() - std::min(steps.size(), kRecentSteps);
       i < steps.size(); ++i) {
    largest = std::max(largest, steps[i].new_bytes);
  }
  CKPTREE_ASSIGN_OR_RETURN(const Lasting lasting,
                           HowLong(store, directory, steps, space.available));
  std::string what = SizeText(space.available) + " free" + lasting.text;
  const bool tight = space.available < 2 * largest + (16 << 20);
  if (tight) what += "; not enough for two more saves";
  // What lasts for nobody knows how long is no reason for alarm.
  const double days = lasting.days.value_or(7);
  const Level level = tight || days < 1 ? Level::kProblem
                      : days < 7        ? Level::kNote
                                        : Level::kGood;
  const auto json = [](const std::optional<double>& number) {
    return number.has_value() ? Json(*number) : Json();
  };
  return Diagnosis{
      "space",
      level,
      std::move(what),
      level == Level::kGood
          ? ""
          : "`ckptree policy --set POLICY --dry-run` says what a policy frees, "
            "`ckptree du` what each step costs",
      {{"free_bytes", space.available},
       {"largest_save_bytes", largest},
       {"days_left", json(lasting.days)},
       {"days_left_at_least", json(lasting.days_at_least)}}};
}

}  // namespace ckptree::tools
