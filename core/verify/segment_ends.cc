// SPDX-License-Identifier: Apache-2.0

#include "core/verify/segment_ends.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/process/arena.h"
#include "core/process/first_error.h"
#include "core/version/open_check.h"
#include "schema/keys.h"
#include "schema/segment_record.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

using schema::Space;

// OK where the record of `key` is there and `decode` takes it.
absl::Status CheckRecord(
    const kv::Database& database, Space space, const std::string& key,
    std::string_view name,
    absl::FunctionRef<absl::Status(std::string_view value)> decode) {
  CKPTREE_ASSIGN_OR_RETURN(const kv::Iterator scan,
                           database.Scan(space, key, key + '\0'));
  CKPTREE_RETURN_IF_ERROR(scan.status());
  if (!scan.Valid()) {
    return absl::DataLossError(absl::StrFormat("its %s is missing", name));
  }
  return decode(scan.value());
}

// What is wrong with the ends of a segment; empty: nothing.
std::string WrongEnds(const kv::Database& database,
                      const schema::SegmentKeyFields& fields) {
  const absl::Status header = CheckRecord(
      database, fields.space, schema::SegmentHeaderKey(fields), "header",
      [&](std::string_view value) -> absl::Status {
        CKPTREE_ASSIGN_OR_RETURN(const auto is,
                                 schema::DecodeSegmentHeader(value));
        if (is.version == fields.version && is.part == fields.part &&
            is.space == fields.space && is.builder == fields.builder) {
          return absl::OkStatus();
        }
        return absl::DataLossError("its header is of another segment");
      });
  if (!header.ok()) return std::string(header.message());
  const absl::Status table =
      CheckRecord(database, fields.space, schema::SegmentTableKey(fields),
                  "table", [](std::string_view value) {
                    return schema::DecodeSegmentTable(value).status();
                  });
  return std::string(table.message());
}

// What there is to check, and what is wrong with it.
struct Item {
  std::string name;  // Of a segment.
  schema::SegmentKeyFields fields;
  kv::LiveFile file;  // Where `name` is empty.
  std::string wrong = {};
};

void Check(const kv::Database& database, Item* item) {
  if (!item->name.empty()) {
    item->wrong = WrongEnds(database, item->fields);
    if (!item->wrong.empty()) item->wrong = item->name + ": " + item->wrong;
    return;
  }
  item->wrong = item->file.whole
                    ? std::string(database.CheckFile(item->file).message())
                    : item->file.path + " is missing or cut short";
  if (item->file.copy && !item->wrong.empty()) {
    item->wrong += " (a second copy of leaf records)";
  }
}

}  // namespace

absl::Status CheckSegmentEnds(const kv::Database& database, kv::Iterator* rows,
                              const std::function<bool()>& cancelled,
                              Damage* damage) {
  // A segment that is elsewhere would be fetched whole.
  if (database.reads_far()) return absl::OkStatus();
  CKPTREE_ASSIGN_OR_RETURN(std::vector<kv::LiveFile> files,
                           SortedLiveFiles(database));
  std::vector<Item> items;
  const schema::KeyRange range = schema::AllRows(schema::Row::kSegment);
  for (rows->Seek(range.begin); rows->Valid() && rows->key() < range.end;
       rows->Next()) {
    const auto fields = schema::DecodeSegmentKey(rows->key());
    if (!fields.has_value()) continue;  // CheckRows reports it.
    const kv::LiveFile* const file = FileOfSegment(files, *fields);
    if (file == nullptr || file->far) continue;
    items.push_back(
        {schema::DescribeKey(Space::kRecords, rows->key()), *fields, {}});
  }
  CKPTREE_RETURN_IF_ERROR(rows->status());
  CKPTREE_ASSIGN_OR_RETURN(std::vector<kv::LiveFile> copies,
                           database.LeafCopies());
  for (std::vector<kv::LiveFile>* const some : {&files, &copies}) {
    for (kv::LiveFile& file : *some) {
      if (file.space != Space::kLeaves) continue;
      items.push_back({"", {}, std::move(file)});
    }
  }
  FirstError error;
  const std::thread::id here = std::this_thread::get_id();
  ForEach(0, items.size(), [&](std::size_t i) {
    if (error.any()) return;
    if (cancelled && std::this_thread::get_id() == here && cancelled()) {
      error.Note(absl::CancelledError("verify stopped"));
      return;
    }
    Check(database, &items[i]);
  });
  CKPTREE_RETURN_IF_ERROR(error.status());
  for (Item& item : items) {
    if (item.wrong.empty()) continue;
    damage->Add(Finding::Severity::kDamage, std::move(item.wrong));
  }
  return absl::OkStatus();
}

}  // namespace ckptree::internal
