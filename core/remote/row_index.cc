// SPDX-License-Identifier: Apache-2.0

#include "core/remote/row_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "core/remote/remote_objects.h"
#include "core/remote/segment_upload.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

using schema::RemoteCommit;
using schema::RemoteDirectory;
using schema::RemoteIndex;
using schema::RemoteLiving;
using schema::RemoteRow;
using schema::RemoteRun;
using schema::RemoteRunObject;
using schema::Space;

namespace {

// More than that does not stand in the index itself.
constexpr std::size_t kRowsInIndex = std::size_t{256} << 10;
constexpr std::size_t kRowsInRunObject = std::size_t{16} << 20;
// A run is smaller than the one before it by that.
constexpr std::uint64_t kRunRatio = 8;
constexpr std::size_t kIndexesKept = 2;

std::size_t BytesIn(const RowName& name,
                    const std::optional<std::string>& value) {
  return name.second.size() + (value.has_value() ? value->size() : 0) + 16;
}

// Of the upload of a segment.
std::size_t BytesIn(const RemoteLiving& living) {
  return 64 + 8 * living.segment.blocks.size();
}

std::uint64_t BytesOfRun(const std::vector<RemoteRunObject>& run) {
  std::uint64_t bytes = 0;
  for (const RemoteRunObject& object : run) bytes += object.object.bytes;
  return bytes;
}

std::string KeyOf(const RemoteLiving& living) {
  return schema::SegmentKey(living.segment.segment);
}

// The segments that a commit lists, by the keys of their rows.
std::map<std::string, RemoteLiving> UploadedBy(const RemoteCommit& commit) {
  std::map<std::string, RemoteLiving> uploaded;
  for (const schema::RemoteSegment& segment : commit.segments) {
    const RemoteLiving living{segment, commit.era};
    uploaded[KeyOf(living)] = living;
  }
  return uploaded;
}

bool IsSegment(const RowName& name) {
  return name.first == Space::kRecords &&
         schema::DecodeSegmentKey(name.second).has_value();
}

absl::StatusOr<RemoteRun> GetRun(const RemoteRunObject& object,
                                 const std::string& uuid,
                                 kv::ObjectStore& store, const kv::Call& call) {
  const std::string name = RemoteRunName(uuid, object);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::string bytes,
      GetChecked(store, name, object.object.bytes, object.object.digest, call));
  absl::StatusOr<RemoteRun> run = schema::DecodeRemoteRun(bytes);
  if (run.ok()) return run;
  return absl::Status(run.status().code(),
                      absl::StrFormat("%s: %s", name, run.status().message()));
}

// Makes objects of rows that come in their order.
class RunWriter {
 public:
  RunWriter(const std::string& uuid, std::uint64_t era, kv::ObjectStore& store,
            const std::stop_token& stop)
      : uuid_(uuid), era_(era), store_(store), stop_(stop) {}

  absl::Status Add(const RowName& name, std::optional<std::string> value,
                   const RemoteLiving* living) {
    bytes_ += BytesIn(name, value);
    run_.rows.push_back({name.first, name.second, std::move(value)});
    if (living != nullptr) {
      bytes_ += BytesIn(*living);
      run_.segments.push_back(*living);
    }
    return bytes_ < kRowsInRunObject ? absl::OkStatus() : Put();
  }
  absl::StatusOr<std::vector<RemoteRunObject>> Finish() {
    if (!run_.rows.empty()) CKPTREE_RETURN_IF_ERROR(Put());
    return std::move(objects_);
  }

 private:
  absl::Status Put() {
    const std::string bytes = schema::EncodeRemoteRun(run_);
    RemoteRunObject object{{NewRemoteId(), bytes.size(), base::DigestOf(bytes)},
                           era_};
    CKPTREE_RETURN_IF_ERROR(store_.Put(RemoteRunName(uuid_, object),
                                       BytesOf(bytes),
                                       CallFor(bytes.size(), stop_)));
    objects_.push_back(std::move(object));
    run_ = {};
    bytes_ = 0;
    return absl::OkStatus();
  }

  const std::string& uuid_;
  const std::uint64_t era_;
  kv::ObjectStore& store_;
  const std::stop_token& stop_;
  RemoteRun run_;
  std::size_t bytes_ = 0;
  std::vector<RemoteRunObject> objects_;
};

}  // namespace

absl::Status ForEachRow(const RemoteCommit& commit, kv::ObjectStore& store,
                        const kv::Call& call, TakeRowFn take) {
  for (const schema::RemoteRowsObject& object : commit.rows_objects) {
    const std::string name = RemoteRowsName(commit.uuid, commit.era, object);
    CKPTREE_ASSIGN_OR_RETURN(
        const std::string bytes,
        GetChecked(store, name, object.bytes, object.digest, call));
    absl::StatusOr<std::vector<RemoteRow>> rows =
        schema::DecodeRemoteRows(bytes);
    if (!rows.ok()) {
      return absl::Status(
          rows.status().code(),
          absl::StrFormat("%s: %s", name, rows.status().message()));
    }
    for (const RemoteRow& row : *rows) CKPTREE_RETURN_IF_ERROR(take(row));
  }
  for (const RemoteRow& row : commit.rows) CKPTREE_RETURN_IF_ERROR(take(row));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RemoteIndex>> FindRemoteIndex(
    kv::ObjectStore& store, const std::string& uuid, const kv::Call& call) {
  // The newest one comes first.
  CKPTREE_ASSIGN_OR_RETURN(const kv::ObjectPage page,
                           store.List(RemoteIndexPrefix(uuid), "", call));
  for (const kv::ObjectInfo& info : page.objects) {
    if (info.size > static_cast<std::uint64_t>(schema::kMaxRecordBytes)) {
      continue;
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             GetKnown(store, info.name, info.size, call));
    if (!bytes.has_value()) continue;  // It was deleted since.
    absl::StatusOr<RemoteIndex> index = schema::DecodeRemoteIndex(*bytes);
    if (absl::IsFailedPrecondition(index.status())) return index.status();
    if (index.ok() && index->uuid == uuid &&
        info.name.starts_with(RemoteIndexPrefix(uuid, index->ordinal))) {
      return *std::move(index);
    }
  }
  return std::nullopt;
}

absl::Status RowIndex::Start(RemoteIndex index, kv::ObjectStore& store,
                             const kv::Call& call, TakeRowFn take) {
  const auto take_run = [&](const RemoteRun& run) -> absl::Status {
    for (const RemoteLiving& living : run.segments) {
      segments_[KeyOf(living)] = living;
    }
    for (const RemoteRow& row : run.rows) {
      CKPTREE_RETURN_IF_ERROR(take(row));
      if (!IsSegment({row.space, row.key})) continue;
      if (!row.value.has_value()) {
        segments_.erase(row.key);
      } else if (!segments_.contains(row.key)) {
        return absl::DataLossError(absl::StrFormat(
            "an index of commit %d in %s has a row of %s, and not its upload",
            index.ordinal, store.address(),
            schema::DescribeKey(row.space, row.key)));
      }
    }
    return absl::OkStatus();
  };
  for (const Run& run : index.runs) {
    for (const RemoteRunObject& object : run) {
      CKPTREE_ASSIGN_OR_RETURN(const RemoteRun rows,
                               GetRun(object, uuid_, store, call));
      CKPTREE_RETURN_IF_ERROR(take_run(rows));
    }
  }
  CKPTREE_RETURN_IF_ERROR(take_run(index.newest));
  ordinal_ = written_ = index.ordinal;
  ceiling_ = index.ceiling;
  directories_ = std::move(index.directories);
  rows_objects_ = std::move(index.rows_objects);
  for (schema::RemoteDead& dead : index.dead) {
    // The commit behind an index of another writer may be older than that.
    if (dead.at > index.ordinal) {
      marked_.insert(std::move(dead.name));
    } else {
      dead_.push_back(std::move(dead));
    }
  }
  listed_ = dead_.size();
  runs_ = std::move(index.runs);
  if (!keeps_rows_) return absl::OkStatus();
  for (RemoteLiving& living : index.newest.segments) {
    newest_bytes_ += BytesIn(living);
    newest_segments_[KeyOf(living)] = std::move(living);
  }
  for (RemoteRow& row : index.newest.rows) {
    const RowName name(row.space, row.key);
    newest_bytes_ += BytesIn(name, row.value);
    newest_[name] = std::move(row.value);
  }
  return absl::OkStatus();
}

absl::Status RowIndex::AddRow(
    const RemoteRow& row, const RemoteCommit& commit,
    const std::map<std::string, RemoteLiving>& uploaded) {
  const RowName name(row.space, row.key);
  if (IsSegment(name)) {
    const auto living = segments_.find(row.key);
    const auto found = uploaded.find(row.key);
    const bool lives = row.value.has_value();
    const auto name_of = [](const RemoteLiving& one) {
      return RemoteSegmentName("", one.era, one.segment);
    };
    // Also one that is uploaded again: what was there is lost, or soon nothing
    // needs it. One that was added before something threw replaces nothing.
    const bool replaced =
        living != segments_.end() && (!lives || found != uploaded.end());
    if (replaced &&
        (!lives || name_of(living->second) != name_of(found->second))) {
      if (keeps_rows_) {
        dead_.push_back({name_of(living->second), commit.ordinal});
      }
      segments_.erase(living);
    }
    if (!lives) {
      newest_segments_.erase(row.key);
    } else if (found != uploaded.end()) {
      segments_.insert_or_assign(row.key, found->second);
      if (keeps_rows_) {
        newest_bytes_ += BytesIn(found->second);
        newest_segments_.insert_or_assign(row.key, found->second);
      }
    } else if (!segments_.contains(row.key)) {
      return absl::DataLossError(absl::StrFormat(
          "commit %d of host %s has a row of %s, which was not uploaded",
          commit.ordinal, commit.host,
          schema::DescribeKey(row.space, row.key)));
    }
  }
  if (!keeps_rows_) return absl::OkStatus();
  newest_bytes_ += BytesIn(name, row.value);
  if (!row.value.has_value() && runs_.empty()) {
    newest_.erase(name);
  } else {
    newest_.insert_or_assign(name, row.value);
  }
  return absl::OkStatus();
}

void RowIndex::Count(const RemoteCommit& commit) {
  // What throws comes first, and changes nothing that is counted twice.
  std::vector<std::string> objects;
  for (const schema::RemoteRowsObject& object : commit.rows_objects) {
    objects.push_back(RemoteRowsName("", commit.era, object));
  }
  rows_objects_.reserve(rows_objects_.size() + objects.size());
  auto directory = std::find_if(
      directories_.begin(), directories_.end(),
      [&](const RemoteDirectory& one) { return one.local == commit.local; });
  const bool ships = commit.shape == RemoteCommit::Shape::kShip;
  if (directory == directories_.end() && (ships || commit.to > 0)) {
    RemoteDirectory added;
    added.local = commit.local;
    directory = directories_.insert(directory, std::move(added));
  }
  if (ships) directory->host = commit.host;
  ordinal_ = commit.ordinal;
  ceiling_ = std::max(ceiling_, commit.ceiling);
  std::move(objects.begin(), objects.end(), std::back_inserter(rows_objects_));
  if (directory == directories_.end()) return;
  if (commit.to > 0) {
    directory->to = commit.to;
    directory->to_at = commit.ordinal;
  }
  if (!ships) return;
  directory->shipped_at = commit.ordinal;
  directory->pid = commit.pid;
}

absl::Status RowIndex::Add(const RemoteCommit& commit, kv::ObjectStore& store,
                           const kv::Call& call, TakeRowFn take) {
  const std::map<std::string, RemoteLiving> uploaded = UploadedBy(commit);
  const auto add = [&](const RemoteRow& row) -> absl::Status {
    CKPTREE_RETURN_IF_ERROR(take(row));
    return AddRow(row, commit, uploaded);
  };
  CKPTREE_RETURN_IF_ERROR(ForEachRow(commit, store, call, add));
  Count(commit);
  return absl::OkStatus();
}

absl::Status RowIndex::AddWithRows(const RemoteCommit& commit,
                                   const std::vector<RemoteRow>& rows) {
  if (commit.ordinal <= ordinal_) return absl::OkStatus();
  const std::map<std::string, RemoteLiving> uploaded = UploadedBy(commit);
  for (const RemoteRow& row : rows) {
    CKPTREE_RETURN_IF_ERROR(AddRow(row, commit, uploaded));
  }
  Count(commit);
  return absl::OkStatus();
}

// Holds one object of the run.
class RowIndex::RunReader {
 public:
  RunReader(Run objects, const std::string& uuid, kv::ObjectStore& store,
            const std::stop_token& stop)
      : objects_(std::move(objects)), uuid_(uuid), store_(store), stop_(stop) {}
  // Of rows in memory.
  RunReader(RemoteRun run, const std::string& uuid, kv::ObjectStore& store,
            const std::stop_token& stop)
      : uuid_(uuid), store_(store), stop_(stop) {
    Take(std::move(run));
  }

  // Null: there are no more.
  absl::StatusOr<RemoteRow*> Look() {
    while (at_ == run_.rows.size()) {
      if (next_ == objects_.size()) return nullptr;
      CKPTREE_ASSIGN_OR_RETURN(
          RemoteRun run, GetRun(objects_[next_], uuid_, store_,
                                CallFor(objects_[next_].object.bytes, stop_)));
      ++next_;
      Take(std::move(run));
    }
    return &run_.rows[at_];
  }
  void Skip() { ++at_; }
  // The upload of the row that was looked at, where this run has it.
  const RemoteLiving* Living() const {
    const auto found = segments_.find(run_.rows[at_].key);
    return found == segments_.end() ? nullptr : &found->second;
  }

 private:
  void Take(RemoteRun run) {
    run_ = std::move(run);
    at_ = 0;
    segments_.clear();
    for (const RemoteLiving& living : run_.segments) {
      segments_[KeyOf(living)] = living;
    }
  }

  const Run objects_;
  const std::string& uuid_;
  kv::ObjectStore& store_;
  const std::stop_token& stop_;
  std::size_t next_ = 0;
  RemoteRun run_;
  std::size_t at_ = 0;
  std::map<std::string, RemoteLiving> segments_;
};

RemoteRun RowIndex::NewestRun() const {
  RemoteRun run;
  for (const auto& [name, value] : newest_) {
    run.rows.push_back({name.first, name.second, value});
  }
  for (const auto& [key, living] : newest_segments_) {
    run.segments.push_back(living);
  }
  return run;
}

absl::Status RowIndex::Spill(std::uint64_t era, kv::ObjectStore& store,
                             const std::stop_token& stop) {
  std::size_t first = runs_.size();
  std::uint64_t bytes = newest_bytes_;
  while (first > 0 && bytes * kRunRatio >= BytesOfRun(runs_[first - 1])) {
    bytes += BytesOfRun(runs_[--first]);
  }
  std::vector<std::unique_ptr<RunReader>> readers;
  for (std::size_t i = first; i < runs_.size(); ++i) {
    readers.push_back(
        std::make_unique<RunReader>(runs_[i], uuid_, store, stop));
  }
  readers.push_back(
      std::make_unique<RunReader>(NewestRun(), uuid_, store, stop));
  RunWriter writer(uuid_, era, store, stop);
  while (true) {
    std::vector<RemoteRow*> rows;
    const RemoteRow* least = nullptr;
    for (const auto& reader : readers) {
      CKPTREE_ASSIGN_OR_RETURN(RemoteRow * row, reader->Look());
      rows.push_back(row);
      if (row != nullptr &&
          (least == nullptr || std::tie(row->space, row->key) <
                                   std::tie(least->space, least->key))) {
        least = row;
      }
    }
    if (least == nullptr) break;
    const RowName name(least->space, least->key);
    std::optional<std::string> value;
    std::optional<RemoteLiving> living;
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (rows[i] == nullptr || rows[i]->space != name.first ||
          rows[i]->key != name.second) {
        continue;
      }
      value = std::move(rows[i]->value);
      if (const RemoteLiving* const one = readers[i]->Living()) living = *one;
      readers[i]->Skip();
    }
    // Nothing is below the first run that a deletion could hide.
    if (!value.has_value() && first == 0) continue;
    const bool lives = value.has_value() && living.has_value();
    CKPTREE_RETURN_IF_ERROR(
        writer.Add(name, std::move(value), lives ? &*living : nullptr));
  }
  CKPTREE_ASSIGN_OR_RETURN(Run run, writer.Finish());
  std::vector<Run> runs(runs_.begin(),
                        runs_.begin() + static_cast<std::ptrdiff_t>(first));
  if (!run.empty()) runs.push_back(std::move(run));
  for (std::size_t i = first; i < runs_.size(); ++i) {
    for (const RemoteRunObject& object : runs_[i]) {
      marked_.insert(RemoteRunName("", object));
    }
  }
  // Nothing throws from here on: an index never lacks rows.
  runs_ = std::move(runs);
  newest_.clear();
  newest_segments_.clear();
  newest_bytes_ = 0;
  return absl::OkStatus();
}

std::set<std::string> RowIndex::Needed() const {
  std::set<std::string> names(rows_objects_.begin(), rows_objects_.end());
  names.insert(indexes_.begin(), indexes_.end());
  for (const auto& [key, living] : segments_) {
    names.insert(RemoteSegmentName("", living.era, living.segment));
  }
  for (const Run& run : runs_) {
    for (const RemoteRunObject& object : run) {
      names.insert(RemoteRunName("", object));
    }
  }
  return names;
}

void RowIndex::Mark(std::string name) {
  const bool known = std::any_of(
      dead_.begin(), dead_.end(),
      [&](const schema::RemoteDead& dead) { return dead.name == name; });
  if (!known) marked_.insert(std::move(name));
}

void RowIndex::NoteIndex(std::string name) {
  indexes_.push_back(std::move(name));
  while (indexes_.size() > kIndexesKept) {
    Mark(std::move(indexes_.front()));
    indexes_.erase(indexes_.begin());
  }
}

bool RowIndex::HasDead() const {
  return std::any_of(
      dead_.begin(), dead_.begin() + static_cast<std::ptrdiff_t>(listed_),
      [this](const schema::RemoteDead& dead) { return dead.at <= ordinal_; });
}

std::vector<schema::RemoteDead> RowIndex::Dead() const {
  std::vector<schema::RemoteDead> dead;
  std::copy_if(
      dead_.begin(), dead_.begin() + static_cast<std::ptrdiff_t>(listed_),
      std::back_inserter(dead),
      [this](const schema::RemoteDead& one) { return one.at <= ordinal_; });
  return dead;
}

void RowIndex::Deleted(const std::vector<std::string>& names) {
  const std::set<std::string> gone(names.begin(), names.end());
  const auto end = dead_.begin() + static_cast<std::ptrdiff_t>(listed_);
  const auto kept = std::stable_partition(dead_.begin(), end,
                                          [&](const schema::RemoteDead& dead) {
                                            return !gone.contains(dead.name);
                                          });
  listed_ = static_cast<std::size_t>(kept - dead_.begin());
  dead_.erase(kept, end);
}

absl::Status RowIndex::Write(const base::Digest& hash, std::uint64_t era,
                             kv::ObjectStore& store,
                             const std::stop_token& stop) {
  if (newest_bytes_ > kRowsInIndex) {
    CKPTREE_RETURN_IF_ERROR(Spill(era, store, stop));
  }
  RemoteIndex index;
  index.uuid = uuid_;
  index.ordinal = ordinal_;
  index.hash = hash;
  index.ceiling = ceiling_;
  index.directories = directories_;
  index.runs = runs_;
  index.newest = NewestRun();
  index.dead = dead_;
  for (const std::string& name : marked_) {
    index.dead.push_back({name, ordinal_ + 1});
  }
  index.rows_objects = rows_objects_;
  const std::string bytes = schema::EncodeRemoteIndex(index);
  const std::string attempt = NewRemoteId();
  CKPTREE_RETURN_IF_ERROR(
      store.Put(RemoteIndexName(uuid_, ordinal_, era, attempt), BytesOf(bytes),
                CallFor(bytes.size(), stop)));
  dead_ = std::move(index.dead);
  listed_ = dead_.size();
  marked_.clear();
  NoteIndex(RemoteIndexName("", ordinal_, era, attempt));
  written_ = ordinal_;
  return absl::OkStatus();
}

}  // namespace ckptree::internal
