// SPDX-License-Identifier: Apache-2.0

#include "core/manage/manager_ranks.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/status_macros.h"

namespace ckptree::internal {
namespace {

// More are not told one by one: rank 0 is asked about every step then.
constexpr std::size_t kMostNumbers = 16 << 10;

constexpr std::uint8_t kAll = 1;
constexpr std::uint8_t kFirst = 2;
constexpr std::uint8_t kPreemption = 4;
constexpr std::uint8_t kAskedFlags = 7;

constexpr std::uint8_t kYes = 1;
constexpr std::uint8_t kBegun = 2;
constexpr std::uint8_t kPreempted = 4;
constexpr std::uint8_t kMustSave = 8;
constexpr std::uint8_t kWordFlags = 15;

// The call of Meet().
constexpr char kOpening[] = "CheckpointManager";

void AppendNumbers(const std::vector<std::int64_t>& numbers, std::string* out) {
  base::AppendBig(static_cast<std::uint32_t>(numbers.size()), out);
  for (const std::int64_t number : numbers) {
    base::AppendBig(static_cast<std::uint64_t>(number), out);
  }
}

bool TakeNumbers(std::string_view* bytes, std::vector<std::int64_t>* numbers) {
  if (bytes->size() < sizeof(std::uint32_t)) return false;
  const auto count = base::ReadBig<std::uint32_t>(*bytes, 0);
  bytes->remove_prefix(sizeof(std::uint32_t));
  if (bytes->size() / sizeof(std::uint64_t) < count) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto number = base::ReadBig<std::uint64_t>(*bytes, 0);
    numbers->push_back(static_cast<std::int64_t>(number));
    bytes->remove_prefix(sizeof(std::uint64_t));
  }
  return true;
}

struct AskedCollector {
  AskedSteps* asked;

  void operator()(const AnySave& r) const {
    for (const SaveDecision& part : r.of) std::visit(*this, part.rule());
  }
  void operator()(const FixedInterval& r) const {
    asked->intervals.push_back(r.interval);
  }
  void operator()(const SpecificSteps& r) const {
    asked->steps.insert(asked->steps.end(), r.steps.begin(), r.steps.end());
  }
  void operator()(const OnPreemption&) const { asked->preemption = true; }
  void operator()(const InitialSave&) const { asked->first = true; }
  void operator()(const ContinuousCheckpointing&) const { asked->all = true; }
  void operator()(const SaveIf&) const { asked->all = true; }
  void operator()(const CustomSave&) const { asked->all = true; }
};

absl::Status NotUnderstood() {
  return absl::DataLossError("what rank 0 told cannot be understood");
}

}  // namespace

std::string AskedSteps::Encode() const {
  std::string bytes(1,
                    static_cast<char>((all ? kAll : 0) | (first ? kFirst : 0) |
                                      (preemption ? kPreemption : 0)));
  AppendNumbers(intervals, &bytes);
  AppendNumbers(steps, &bytes);
  return bytes;
}

absl::StatusOr<AskedSteps> AskedSteps::Decode(std::string_view bytes) {
  if (bytes.empty()) return NotUnderstood();
  const auto flags = static_cast<std::uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  AskedSteps asked;
  asked.all = (flags & kAll) != 0;
  asked.first = (flags & kFirst) != 0;
  asked.preemption = (flags & kPreemption) != 0;
  if ((flags & ~kAskedFlags) != 0 || !TakeNumbers(&bytes, &asked.intervals) ||
      !TakeNumbers(&bytes, &asked.steps) || !bytes.empty() ||
      std::count(asked.intervals.begin(), asked.intervals.end(), 0) > 0) {
    return NotUnderstood();
  }
  return asked;
}

AskedSteps AskedStepsOf(const SaveDecision& decision, bool watches) {
  AskedSteps asked;
  std::visit(AskedCollector{&asked}, decision.rule());
  asked.preemption = asked.preemption && watches;
  if (asked.all || asked.intervals.size() + asked.steps.size() > kMostNumbers) {
    asked = {};
    asked.all = true;
  }
  return asked;
}

ManagerRanks::ManagerRanks(std::shared_ptr<GroupRank> group)
    : topic_(group, absl::StrCat("manager ", group->NextManager())) {}

absl::Status ManagerRanks::Meet(const absl::Status& own,
                                const AskedSteps& asked) {
  if (decides()) {
    asked_ = asked;
    const absl::Status told = topic_.Tell({kOpening, 0, own, asked.Encode()});
    return own.ok() ? told : own;
  }
  if (!own.ok()) {
    topic_.Notice(own).IgnoreError();  // It learns it at the deadline, too.
    return own;
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<RankTopic::Word> word,
      Hear(kOpening, 0, nullptr, [](const RankTopic::Word&) { return true; }));
  if (!word.has_value()) return NotUnderstood();
  if (!word->status.ok()) {
    return absl::Status(word->status.code(),
                        absl::StrCat("rank 0: ", word->status.message()));
  }
  CKPTREE_ASSIGN_OR_RETURN(asked_, AskedSteps::Decode(word->body));
  return absl::OkStatus();
}

bool ManagerRanks::MustAsk(std::int64_t step) const {
  if (asked_.all || asked_.preemption) return true;
  {
    const absl::MutexLock lock(&mu_);
    if (asked_.first && !state_.begun) return true;
    if (state_.must_save) return true;
  }
  return std::any_of(asked_.intervals.begin(), asked_.intervals.end(),
                     [step](std::int64_t interval) {
                       // By -1 the lowest number cannot be divided.
                       return interval == -1 || step % interval == 0;
                     }) ||
         std::count(asked_.steps.begin(), asked_.steps.end(), step) > 0;
}

absl::StatusOr<bool> ManagerRanks::Take(const RankTopic::Word& word) {
  if (word.call == kOpening) return false;
  const auto flags =
      static_cast<std::uint8_t>(word.body.empty() ? 0xff : word.body.front());
  if (word.body.size() != 1 || (flags & ~kWordFlags) != 0) {
    return NotUnderstood();
  }
  {
    const absl::MutexLock lock(&mu_);
    state_.begun = (flags & kBegun) != 0;
    state_.preempted = (flags & kPreempted) != 0;
    state_.must_save = (flags & kMustSave) != 0;
  }
  CKPTREE_RETURN_IF_ERROR(word.status);
  return (flags & kYes) != 0;
}

absl::StatusOr<bool> ManagerRanks::Tell(
    std::string_view call, std::int64_t step,
    absl::FunctionRef<absl::StatusOr<Decision>()> decide) {
  const absl::StatusOr<bool> noticed = topic_.Noticed();
  RankTopic::Word word = {std::string(call), step, noticed.status(), ""};
  Decision decision;
  if (noticed.ok()) {
    {
      const absl::MutexLock lock(&mu_);
      state_.preempted = state_.preempted || noted_ || *noticed;
      state_.must_save = state_.preempted && !saved_;
    }
    // Whatever comes of it: the others wait for a word.
    absl::StatusOr<Decision> decided = GuardedResult(call, decide);
    word.status = decided.status();
    if (decided.ok()) decision = *decided;
  }
  {
    const absl::MutexLock lock(&mu_);
    if (word.status.ok()) state_.begun = decision.begun;
    word.body.assign(1, static_cast<char>((decision.yes ? kYes : 0) |
                                          (state_.begun ? kBegun : 0) |
                                          (state_.preempted ? kPreempted : 0) |
                                          (state_.must_save ? kMustSave : 0)));
  }
  const absl::Status told = topic_.Tell(word);
  CKPTREE_RETURN_IF_ERROR(word.status);
  CKPTREE_RETURN_IF_ERROR(told);
  return decision.yes;
}

absl::StatusOr<std::optional<RankTopic::Word>> ManagerRanks::Hear(
    std::string_view call, std::int64_t step, const Cancelled& cancelled,
    absl::FunctionRef<bool(const RankTopic::Word&)> passed) {
  auto word = topic_.Hear(call, step, cancelled, passed);
  // Of a manager that is a wait that ended, and may go on.
  if (!absl::IsDeadlineExceeded(word.status())) return word;
  return absl::UnavailableError(word.status().message());
}

absl::StatusOr<bool> ManagerRanks::Ask(
    std::string_view call, std::int64_t step, Waits waits,
    const Cancelled& cancelled,
    absl::FunctionRef<absl::StatusOr<Decision>()> decide, bool* told) {
  if (decides()) return Tell(call, step, decide);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<RankTopic::Word> word,
      Hear(call, step, cancelled, [&](const RankTopic::Word& other) {
        Take(other).IgnoreError();  // Of its state alone.
        return waits == Waits::kAlways || MustAsk(step);
      }));
  if (!word.has_value()) return false;
  absl::StatusOr<bool> taken = Take(*word);
  if (told != nullptr) *told = !taken.ok();
  return taken;
}

void ManagerRanks::NotePreemption() {
  {
    const absl::MutexLock lock(&mu_);
    noted_ = true;
    if (decides() || posted_) return;
    posted_ = true;
  }
  if (!topic_.Notice(absl::OkStatus()).ok()) {
    const absl::MutexLock lock(&mu_);
    posted_ = false;  // Perhaps the next time.
  }
}

void ManagerRanks::NoteSavedForPreemption() {
  const absl::MutexLock lock(&mu_);
  saved_ = true;
}

bool ManagerRanks::preempted() const {
  const absl::MutexLock lock(&mu_);
  return state_.preempted;
}

bool ManagerRanks::must_save() const {
  const absl::MutexLock lock(&mu_);
  return state_.must_save && !saved_;
}

}  // namespace ckptree::internal
