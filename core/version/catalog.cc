// SPDX-License-Identifier: Apache-2.0

#include "core/version/catalog.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/process/arena.h"
#include "core/version/row_scan.h"
#include "core/version/step_choice.h"
#include "schema/keys.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

// Calls `fn` for every row of one kind; rows that it refuses are among the
// problems. An error: some were not seen.
absl::Status ForEachRow(const kv::Database& database, schema::Row row,
                        std::vector<std::string>* problems, RowFn fn) {
  absl::Status status = ScanRows(
      database, row, [&](std::string_view key, std::string_view value) {
        if (const absl::Status bad = fn(key, value); !bad.ok()) {
          problems->emplace_back(NamingRow(key, bad).message());
        }
        return absl::OkStatus();
      });
  if (!status.ok()) problems->emplace_back(status.message());
  return status;
}

// What a row of a map of the catalog is now.
template <typename Rows, typename Map, typename Key, typename Decode>
absl::StatusOr<std::function<void(Rows&)>> ChangeIn(
    Map Rows::*map, std::optional<Key> key,
    std::optional<std::string_view> value, Decode decode) {
  if (!value.has_value()) {
    return [map, key](Rows& rows) {
      if (key.has_value()) (rows.*map).erase(*key);
    };
  }
  CKPTREE_ASSIGN_OR_RETURN(auto record, decode(*value));
  return [map, key, record = std::move(record)](Rows& rows) {
    if (key.has_value()) (rows.*map)[*key] = record;
  };
}

// All but what other rows say of it: its branch, tags and pin.
StepInfo PlainInfo(const schema::StepRecord& record) {
  StepInfo info;
  info.step = record.step;
  info.version = record.version;
  info.base = record.base;
  info.begun = absl::FromUnixNanos(record.begun_ns);
  info.staged = absl::FromUnixNanos(record.staged_ns);
  info.committed = absl::FromUnixNanos(record.committed_ns);
  info.metrics = record.metrics;
  info.leaf_count = record.leaf_count;
  info.changed_leaves = record.changed_leaves;
  info.logical_bytes = record.logical_bytes;
  info.new_bytes = record.new_bytes;
  info.nan_count = record.nan_count;
  info.inf_count = record.inf_count;
  info.nonfinite_leaves = record.nonfinite_leaves;
  info.unknown_leaves = record.unknown_leaves;
  info.digest = record.digest.Hex();
  info.saved_by = record.saved_by;
  info.note = record.note;
  return info;
}

}  // namespace

absl::StatusOr<Catalog::Change> Catalog::ChangeOf(
    std::string_view key, std::optional<std::string_view> value) {
  switch (key.empty() ? schema::Row::kStore
                      : static_cast<schema::Row>(key.front())) {
    case schema::Row::kStep: {
      const auto fields = schema::DecodeStepKey(key);
      if (!value.has_value()) {
        return [fields](Rows& rows) {
          if (!fields.has_value()) return;
          const auto steps = rows.steps.find(fields->branch);
          if (steps != rows.steps.end()) steps->second.erase(fields->step);
        };
      }
      CKPTREE_ASSIGN_OR_RETURN(StepRecordPtr row, StepIn(fields, *value));
      return [row = std::move(row)](Rows& rows) {
        rows.steps[row->branch][row->step] = row;
      };
    }
    case schema::Row::kBranch:
      return ChangeIn(&Rows::branches, schema::DecodeBranchKey(key), value,
                      schema::DecodeBranchRecord);
    case schema::Row::kTag:
      return ChangeIn(&Rows::tags, schema::DecodeTagKey(key), value,
                      schema::DecodeTagRecord);
    case schema::Row::kPin:
      return ChangeIn(&Rows::pins,
                      schema::DecodeVersionKey(schema::Row::kPin, key), value,
                      schema::DecodePinRecord);
    case schema::Row::kSettings:
      return ChangeIn(
          &Rows::settings, schema::DecodeSettingsKey(key), value,
          [](std::string_view bytes)
              -> absl::StatusOr<std::shared_ptr<const schema::BranchSettings>> {
            CKPTREE_ASSIGN_OR_RETURN(schema::BranchSettings settings,
                                     schema::DecodeBranchSettings(bytes));
            return std::make_shared<const schema::BranchSettings>(
                std::move(settings));
          });
    default:
      return nullptr;
  }
}

void Catalog::LoadNames(const kv::Database& database,
                        std::vector<std::string>* problems, Rows* rows) {
  const std::size_t before = problems->size();
  for (const schema::Row kind : {schema::Row::kBranch, schema::Row::kTag,
                                 schema::Row::kPin, schema::Row::kSettings}) {
    rows->unseen.Update(ForEachRow(
        database, kind, problems,
        [rows](std::string_view key, std::string_view value) -> absl::Status {
          CKPTREE_ASSIGN_OR_RETURN(const Change change, ChangeOf(key, value));
          change(*rows);
          return absl::OkStatus();
        }));
    // Settings are not what a step is chosen by.
    if (kind == schema::Row::kPin && !problems->empty()) {
      rows->damage = problems->front();
      rows->names_damaged = problems->size() > before;
    }
  }
}

Catalog::Rows Catalog::RowsOf(const kv::Database& database, Arena* arena,
                              std::vector<std::string>* problems) {
  Rows rows;
  absl::StatusOr<StepRows> steps = StepRows::Open(database);
  if (steps.ok()) {
    rows.unseen = steps->ReadAll(problems, &rows.steps, &rows.bad_steps, arena);
  } else {
    rows.unseen = steps.status();
    problems->emplace_back(rows.unseen.message());
  }
  LoadNames(database, problems, &rows);
  return rows;
}

std::vector<std::string> Catalog::Load(const kv::Database& database) {
  std::vector<std::string> problems;
  Rows rows = RowsOf(database, /*arena=*/nullptr, &problems);
  absl::MutexLock lock(&mu_);
  later_.reset();
  rows_ = std::move(rows);
  return problems;
}

bool Catalog::Update(const kv::Database& database,
                     const std::vector<std::string>& keys) {
  std::vector<Change> changes;
  for (const std::string& key : keys) {
    const auto value = database.Get(schema::Space::kRecords, key);
    if (!value.ok()) return false;
    absl::StatusOr<Change> change = ChangeOf(key, *value);
    if (!change.ok()) return false;
    if (*change != nullptr) changes.push_back(*std::move(change));
  }
  absl::MutexLock lock(&mu_);
  if (later_.has_value()) return false;
  for (const Change& change : changes) change(rows_);
  return true;
}

const StepsByNumber& Catalog::StepsOf(std::uint32_t branch) const {
  static const StepsByNumber* const none = new StepsByNumber();
  const auto it = rows_.steps.find(branch);
  return it == rows_.steps.end() ? *none : it->second;
}

absl::StatusOr<std::uint32_t> Catalog::BranchCalled(
    std::string_view name) const {
  if (name.empty()) return kMainBranch;
  std::string known;
  for (const auto& [number, branch] : rows_.branches) {
    if (number == kMainBranch) continue;
    if (branch.name == name) return number;
    absl::StrAppendFormat(&known, "%s%s", known.empty() ? "" : ", ",
                          branch.name);
  }
  return absl::NotFoundError(absl::StrFormat(
      "no branch '%s'; %s", name,
      known.empty() ? "the store has no fork" : "there are " + known));
}

absl::StatusOr<std::uint32_t> Catalog::FindBranch(std::string_view name) const {
  absl::MutexLock lock(&mu_);
  return BranchCalled(name);
}

absl::StatusOr<BranchId> Catalog::FindBranchId(std::string_view name) const {
  absl::MutexLock lock(&mu_);
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t number, BranchCalled(name));
  const auto row = rows_.branches.find(number);
  if (row == rows_.branches.end()) return BranchId{number, 0};
  return BranchId{number, row->second.created_ns};
}

std::map<std::uint32_t, schema::BranchRecord> Catalog::Branches() const {
  absl::MutexLock lock(&mu_);
  return rows_.branches;
}

StepRecordPtr Catalog::Find(std::uint32_t branch, std::int64_t step) const {
  {
    absl::MutexLock lock(&mu_);
    if (const auto found = FindLater(branch, step)) return *found;
  }
  const Listed lock(this);
  const StepsByNumber& steps = StepsOf(branch);
  const auto it = steps.find(step);
  return it == steps.end() ? nullptr : it->second;
}

std::vector<StepRecordPtr> Catalog::Steps(std::uint32_t branch) const {
  const Listed lock(this);
  std::vector<StepRecordPtr> steps;
  steps.reserve(StepsOf(branch).size());
  for (const auto& [step, record] : StepsOf(branch)) steps.push_back(record);
  return steps;
}

std::vector<std::int64_t> Catalog::StepNumbers(std::uint32_t branch) const {
  const Listed lock(this);
  std::vector<std::int64_t> numbers;
  for (const auto& [step, record] : StepsOf(branch)) numbers.push_back(step);
  return numbers;
}

std::vector<StepRecordPtr> Catalog::AllSteps() const {
  const Listed lock(this);
  std::vector<StepRecordPtr> all;
  for (const auto& [branch, steps] : rows_.steps) {
    for (const auto& [step, record] : steps) all.push_back(record);
  }
  return all;
}

std::uint64_t Catalog::HighestVersion() const {
  const Listed lock(this);
  std::uint64_t highest = 0;
  for (const auto& [number, branch] : rows_.branches) {
    highest = std::max({highest, branch.tip, branch.origin_version});
  }
  for (const auto& [branch, steps] : rows_.steps) {
    for (const auto& [step, record] : steps) {
      highest = std::max(highest, record->version);
    }
  }
  return highest;
}

std::vector<TagInfo> Catalog::Tags() const {
  absl::MutexLock lock(&mu_);
  std::vector<TagInfo> tags;
  for (const auto& [name, tag] : rows_.tags) {
    TagInfo info = {name, tag.step, tag.version};
    const auto branch = rows_.branches.find(tag.branch);
    if (branch != rows_.branches.end()) info.branch = branch->second.name;
    tags.push_back(std::move(info));
  }
  return tags;
}

std::optional<schema::TagRecord> Catalog::FindTag(std::string_view name) const {
  absl::MutexLock lock(&mu_);
  const auto it = rows_.tags.find(name);
  if (it == rows_.tags.end()) return std::nullopt;
  return it->second;
}

std::vector<std::string> Catalog::TagsOf(std::uint64_t version) const {
  absl::MutexLock lock(&mu_);
  std::vector<std::string> names;
  for (const auto& [name, tag] : rows_.tags) {
    if (tag.version == version) names.push_back(name);
  }
  return names;
}

bool Catalog::IsPinned(std::uint64_t version) const {
  absl::MutexLock lock(&mu_);
  return rows_.pins.contains(version);
}

std::set<std::uint64_t> Catalog::NamedVersions() const {
  absl::MutexLock lock(&mu_);
  std::set<std::uint64_t> versions;
  for (const auto& [version, pin] : rows_.pins) versions.insert(version);
  for (const auto& [name, tag] : rows_.tags) versions.insert(tag.version);
  return versions;
}

std::shared_ptr<const schema::BranchSettings> Catalog::Settings(
    std::uint32_t branch) const {
  absl::MutexLock lock(&mu_);
  const auto it = rows_.settings.find(branch);
  return it == rows_.settings.end() ? nullptr : it->second;
}

void Catalog::SetDoubt(absl::Status doubt) {
  absl::MutexLock lock(&mu_);
  doubt_ = std::move(doubt);
}

absl::Status Catalog::MayCompare(std::optional<std::int64_t> newest) const {
  std::string why;
  if (!doubt_.ok()) {
    why = absl::StrCat(": ", doubt_.message());
  } else if (!rows_.damage.empty()) {
    why =
        absl::StrFormat(", as rows of steps cannot be read (%s)", rows_.damage);
  } else {
    return absl::OkStatus();
  }
  if (newest) absl::StrAppendFormat(&why, "; the newest known is %d", *newest);
  return absl::DataLossError(
      absl::StrCat("nobody can say which step it is", why,
                   "; name the step, or run `ckptree repair`"));
}

absl::Status Catalog::MayTakeNewest(std::uint32_t branch) const {
  const bool all_known =
      doubt_.ok() && rows_.unseen.ok() && !rows_.names_damaged;
  const auto bad = rows_.bad_steps.find(branch);
  const StepsByNumber& steps = StepsOf(branch);
  if (all_known && (bad == rows_.bad_steps.end() ||
                    (!steps.empty() && bad->second < steps.rbegin()->first))) {
    return absl::OkStatus();
  }
  if (steps.empty()) return MayCompare();
  return MayCompare(steps.rbegin()->first);
}

absl::StatusOr<StepRecordPtr> Catalog::Resolve(
    const StepSelector& selector) const {
  if (selector.back < 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a selector goes %d saves back: 0 or more", selector.back));
  }
  {
    absl::MutexLock lock(&mu_);
    StepRecordPtr found = ResolveLater(selector);
    if (found != nullptr && IsMeant(selector, *found)) return found;
  }
  const Listed lock(this);
  if (absl::IsResourceExhausted(rows_.unseen)) return rows_.unseen;
  CKPTREE_ASSIGN_OR_RETURN(const std::uint32_t branch,
                           BranchCalled(selector.branch));
  if (selector.kind == StepSelector::Kind::kLatest && selector.back == 0) {
    CKPTREE_RETURN_IF_ERROR(MayTakeNewest(branch));
  } else if ((selector.kind != StepSelector::Kind::kStep &&
              selector.kind != StepSelector::Kind::kTag) ||
             selector.back != 0) {
    CKPTREE_RETURN_IF_ERROR(MayCompare());
  }
  const StepsByNumber& steps = StepsOf(branch);
  StepRecordPtr found;
  switch (selector.kind) {
    case StepSelector::Kind::kStep: {
      const auto it = steps.find(selector.step);
      if (it == steps.end()) {
        return absl::NotFoundError(absl::StrFormat(
            "no step %s; %s", StepText(selector.branch, selector.step),
            KnownSteps(steps, selector.branch)));
      }
      found = it->second;
      break;
    }
    case StepSelector::Kind::kLatest:
      if (steps.empty()) {
        return absl::NotFoundError(KnownSteps(steps, selector.branch));
      }
      found = steps.rbegin()->second;
      break;
    case StepSelector::Kind::kTag: {
      const auto tag = rows_.tags.find(selector.name);
      if (tag == rows_.tags.end()) {
        return absl::NotFoundError("no tag '" + selector.name + "'");
      }
      const StepsByNumber& tagged = StepsOf(tag->second.branch);
      const auto it = tagged.find(tag->second.step);
      if (it == tagged.end()) {
        return absl::NotFoundError(
            absl::StrFormat("tag '%s' names step %d, which is gone",
                            selector.name, tag->second.step));
      }
      found = it->second;
      break;
    }
    case StepSelector::Kind::kHealthy: {
      CKPTREE_ASSIGN_OR_RETURN(found, LastHealthy(steps, selector.branch));
      break;
    }
    case StepSelector::Kind::kBest: {
      CKPTREE_ASSIGN_OR_RETURN(found, BestOf(steps, selector));
      break;
    }
    default:
      return absl::InvalidArgumentError(absl::StrFormat(
          "%d is not a kind of selector", static_cast<int>(selector.kind)));
  }
  const auto meant =
      [&selector](const StepRecordPtr& step) -> absl::StatusOr<StepRecordPtr> {
    if (IsMeant(selector, *step)) return step;
    if (selector.kind == StepSelector::Kind::kStep && selector.back == 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("step %s was saved anew since",
                          StepText(selector.branch, selector.step)));
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is another save by now, of step %d", Text(selector), step->step));
  };
  if (selector.back == 0) return meant(found);
  // Saves are ordered by version, steps by number: "~2" is two saves earlier.
  std::vector<StepRecordPtr> earlier;
  for (const auto& [step, record] : StepsOf(found->branch)) {
    if (record->version < found->version) earlier.push_back(record);
  }
  const auto back = static_cast<std::size_t>(selector.back);
  if (back > earlier.size()) {
    return absl::NotFoundError(
        absl::StrFormat("%s: only %d saves are before step %d", Text(selector),
                        earlier.size(), found->step));
  }
  std::sort(earlier.begin(), earlier.end(),
            [](const StepRecordPtr& a, const StepRecordPtr& b) {
              return a->version > b->version;
            });
  return meant(earlier[back - 1]);
}

StepInfo Catalog::Info(const schema::StepRecord& record) const {
  StepInfo info = PlainInfo(record);
  info.branch = BranchName(record.branch);
  info.tags = TagsOf(record.version);
  info.pinned = IsPinned(record.version);
  return info;
}

std::vector<StepInfo> Catalog::Infos(
    std::span<const StepRecordPtr> records) const {
  std::vector<StepInfo> infos;
  infos.reserve(records.size());
  for (const StepRecordPtr& record : records)
    infos.push_back(PlainInfo(*record));
  const absl::MutexLock lock(&mu_);
  std::unordered_map<std::uint64_t, std::vector<std::string>> tags;
  for (const auto& [name, tag] : rows_.tags) tags[tag.version].push_back(name);
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const schema::StepRecord& record = *records[i];
    if (record.branch != kMainBranch) {
      const auto branch = rows_.branches.find(record.branch);
      if (branch != rows_.branches.end()) infos[i].branch = branch->second.name;
    }
    if (const auto of = tags.find(record.version); of != tags.end()) {
      infos[i].tags = of->second;
    }
    infos[i].pinned = rows_.pins.contains(record.version);
  }
  return infos;
}

std::string Catalog::BranchName(std::uint32_t branch) const {
  if (branch == kMainBranch) return {};
  absl::MutexLock lock(&mu_);
  const auto it = rows_.branches.find(branch);
  return it == rows_.branches.end() ? std::string() : it->second.name;
}

std::string Catalog::NameOf(const schema::StepRecord& record) const {
  return StepText(BranchName(record.branch), record.step);
}

absl::Status Catalog::CheckSeen() const {
  absl::MutexLock lock(&mu_);
  return rows_.unseen;
}

absl::Status Catalog::CheckListed() const {
  const Listed lock(this);
  // For want of memory nothing is lost.
  if (rows_.unseen.ok() || absl::IsResourceExhausted(rows_.unseen)) {
    return rows_.unseen;
  }
  return absl::DataLossError(absl::StrFormat(
      "the steps cannot be listed: %s; `ckptree repair` saves what can be read",
      rows_.unseen.message()));
}

std::string Catalog::damage() const {
  const Listed lock(this);
  return rows_.damage;
}

void Catalog::Apply(const std::vector<StepRecordPtr>& erased,
                    StepRecordPtr put) {
  const Listed lock(this);
  for (const StepRecordPtr& record : erased) {
    EraseRow(record->branch, record->step);
  }
  if (put == nullptr) return;
  EraseRow(put->branch, put->step);
  StepRecordPtr& row = rows_.steps[put->branch][put->step];
  row = std::move(put);
}

void Catalog::PutBranch(std::uint32_t branch, schema::BranchRecord record) {
  absl::MutexLock lock(&mu_);
  rows_.branches[branch] = std::move(record);
}

void Catalog::EraseBranch(std::uint32_t branch) {
  const Listed lock(this);
  while (!StepsOf(branch).empty())
    EraseRow(branch, StepsOf(branch).begin()->first);
  rows_.branches.erase(branch);
  rows_.settings.erase(branch);
  rows_.steps.erase(branch);
}

void Catalog::EraseRow(std::uint32_t branch, std::int64_t step) {
  const auto steps = rows_.steps.find(branch);
  if (steps == rows_.steps.end()) return;
  const auto it = steps->second.find(step);
  if (it == steps->second.end()) return;
  const std::uint64_t version = it->second->version;
  steps->second.erase(it);
  rows_.pins.erase(version);
  std::erase_if(rows_.tags, [version](const auto& tag) {
    return tag.second.version == version;
  });
}

void Catalog::PutSettings(std::uint32_t branch,
                          schema::BranchSettings settings) {
  absl::MutexLock lock(&mu_);
  rows_.settings[branch] =
      std::make_shared<const schema::BranchSettings>(std::move(settings));
}

void Catalog::PutTag(std::string name, const schema::TagRecord& tag) {
  absl::MutexLock lock(&mu_);
  rows_.tags[std::move(name)] = tag;
}

void Catalog::EraseTag(std::string_view name) {
  absl::MutexLock lock(&mu_);
  if (const auto it = rows_.tags.find(name); it != rows_.tags.end()) {
    rows_.tags.erase(it);
  }
}

void Catalog::PutPin(std::uint64_t version) {
  absl::MutexLock lock(&mu_);
  rows_.pins[version] = {};
}

void Catalog::ErasePin(std::uint64_t version) {
  absl::MutexLock lock(&mu_);
  rows_.pins.erase(version);
}

}  // namespace ckptree::internal
