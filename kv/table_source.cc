#include "kv/table_source.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kv/file_system.h"
#include "kv/rocksdb_options.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "rocksdb/iterator.h"
#include "rocksdb/metadata.h"
#include "rocksdb/options.h"
#include "rocksdb/sst_file_reader.h"
#include "rocksdb/sst_file_writer.h"
#include "rocksdb/table_properties.h"

namespace ckptree::kv {
namespace {

using schema::Space;

constexpr std::size_t kCopyBytes = std::size_t{1} << 20;

std::optional<Space> SpaceNamed(std::string_view name) {
  for (int i = 0; i < schema::kSpaceCount; ++i) {
    if (schema::kSpaceNames[static_cast<std::size_t>(i)] == name) {
      return static_cast<Space>(i);
    }
  }
  return std::nullopt;
}

rocksdb::ReadOptions ScanOptions() {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  return options;
}

absl::Status Append(rocksdb::FSSequentialFile* in, rocksdb::FSWritableFile* out,
                    std::string* buffer) {
  const rocksdb::IOOptions io;
  for (;;) {
    rocksdb::Slice piece;
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(in->Read(buffer->size(), io, &piece, buffer->data(), nullptr),
                 "reading"));
    if (piece.empty()) return absl::OkStatus();
    CKPTREE_RETURN_IF_ERROR(
        ToStatus(out->Append(piece, io, nullptr), "writing"));
  }
}

}  // namespace

absl::StatusOr<TableSource> LookAtTable(
    const std::string& path, rocksdb::Env* env,
    absl::FunctionRef<std::optional<Space>(std::string_view value)> space_of) {
  rocksdb::SstFileReader reader(
      FileOptionsOf(Space::kLeaves, env, /*map=*/false));
  CKPTREE_RETURN_IF_ERROR(ToStatus(reader.Open(path), path));
  const auto properties = reader.GetTableProperties();
  TableSource table{path, SpaceNamed(properties->column_family_name)};
  if (table.space.has_value()) return table;
  // A SegmentWriter does not know the family that its file will be in.
  const std::unique_ptr<rocksdb::Iterator> first(
      reader.NewIterator(ScanOptions()));
  first->SeekToFirst();
  if (first->Valid()) {
    table.space = space_of(first->value().ToStringView());
  } else if (!first->status().ok()) {
    // Its first block is damaged: chunks have a block each.
    table.space = properties->num_data_blocks == properties->num_entries
                      ? Space::kChunks
                      : Space::kLeaves;
  }
  return table;
}

absl::StatusOr<ScanGaps> ScanTable(
    const TableSource& table, rocksdb::Env* env,
    absl::FunctionRef<absl::Status(std::string_view key,
                                   std::string_view value)>
        entry) {
  rocksdb::SstFileReader reader(
      FileOptionsOf(Space::kLeaves, env, /*map=*/false));
  CKPTREE_RETURN_IF_ERROR(ToStatus(reader.Open(table.path), table.path));
  return ScanAround(
      [&reader] {
        return std::unique_ptr<rocksdb::Iterator>(
            reader.NewIterator(ScanOptions()));
      },
      entry);
}

absl::StatusOr<ScanGaps> RewriteTable(const TableSource& table,
                                      rocksdb::Env* from_env,
                                      const std::string& path,
                                      rocksdb::Env* to_env) {
  rocksdb::SstFileWriter writer(
      rocksdb::EnvOptions(),
      FileOptionsOf(table.space.value_or(Space::kChunks), to_env,
                    /*map=*/false));
  bool opened = false;
  const auto gaps = ScanTable(
      table, from_env,
      [&](std::string_view key, std::string_view value) -> absl::Status {
        if (!opened) {
          CKPTREE_RETURN_IF_ERROR(ToStatus(writer.Open(path), path));
          opened = true;
        }
        return ToStatus(writer.Put(key, value), path);
      });
  CKPTREE_RETURN_IF_ERROR(gaps.status());
  if (opened) {
    CKPTREE_RETURN_IF_ERROR(ToStatus(writer.Finish(), path));
  }
  return gaps;
}

absl::Status CopyFile(const Options& options, const std::string& from,
                      const std::string& to) {
  const auto fs = FileSystemOf(options);
  std::unique_ptr<rocksdb::FSSequentialFile> in;
  std::unique_ptr<rocksdb::FSWritableFile> out;
  CKPTREE_RETURN_IF_ERROR(ToStatus(
      fs->NewSequentialFile(from, rocksdb::FileOptions(), &in, nullptr),
      "opening " + from));
  CKPTREE_RETURN_IF_ERROR(
      ToStatus(fs->NewWritableFile(to, rocksdb::FileOptions(), &out, nullptr),
               "creating " + to));
  std::string buffer(kCopyBytes, '\0');
  const absl::Status copied = Append(in.get(), out.get(), &buffer);
  const rocksdb::IOStatus closed = out->Close(rocksdb::IOOptions(), nullptr);
  if (!copied.ok()) {
    return absl::Status(
        copied.code(),
        absl::StrFormat("copying %s to %s: %s", from, to, copied.message()));
  }
  return ToStatus(closed, "closing " + to);
}

absl::Status LinkOrCopy(const Options& options, const std::string& from,
                        const std::string& to) {
  // Refused across file systems and, for files of others, by the kernel.
  const rocksdb::IOStatus linked =
      FileSystemOf(options)->LinkFile(from, to, rocksdb::IOOptions(), nullptr);
  return linked.ok() ? absl::OkStatus() : CopyFile(options, from, to);
}

std::set<std::string, std::less<>> LiveTableNames(rocksdb::DB* database) {
  std::vector<rocksdb::LiveFileMetaData> files;
  database->GetLiveFilesMetaData(&files);
  std::set<std::string, std::less<>> names;
  for (const rocksdb::LiveFileMetaData& file : files) {
    names.emplace(BaseName(file.relative_filename));
  }
  return names;
}

}  // namespace ckptree::kv
