// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/rocksdb_options.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kv/rocks/open_files.h"
#include "kv/rocks/rewrite_filter_factory.h"
#include "kv/rocks/segment_layout.h"
#include "kv/rocks/small_tables.h"
#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/flush_block_policy.h"
#include "rocksdb/options.h"
#include "rocksdb/slice.h"
#include "rocksdb/table.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kBlockBytes = 16 * kKiB;

using schema::Space;

// A read of `small` mostly asks for one record: a page of them is read and
// checked at once.
constexpr std::size_t kSmallBlockBytes = 4 * kKiB;

// Array bytes of a small save have a block of their own, so that damage of one
// is damage of no other and each is found by its own head; all else of `small`
// shares blocks.
class SmallBlocks : public rocksdb::FlushBlockPolicy {
 public:
  bool Update(const rocksdb::Slice& key, const rocksdb::Slice& value) override {
    // The type stands first behind the key: a deletion is no array.
    const std::size_t user_bytes = key.size() - kKeySuffixBytes;
    const bool alone =
        IsArrayBlock({key.data(), user_bytes}) && key[user_bytes] != 0;
    const bool next =
        bytes_ > 0 && (alone || alone_ || bytes_ >= kSmallBlockBytes);
    alone_ = alone;
    bytes_ = (next ? 0 : bytes_) + key.size() + value.size();
    return next;
  }

 private:
  std::size_t bytes_ = 0;  // In the block so far.
  bool alone_ = false;     // What is in it.
};

class SmallBlocksFactory : public rocksdb::FlushBlockPolicyFactory {
 public:
  const char* Name() const override { return "ckptree.small"; }

  rocksdb::FlushBlockPolicy* NewFlushBlockPolicy(
      const rocksdb::BlockBasedTableOptions&,
      const rocksdb::BlockBuilder&) const override {
    return new SmallBlocks;
  }
};

rocksdb::BlockBasedTableOptions TableOptions(
    Space space, const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::BlockBasedTableOptions table;
  // Not CRC32C: Debian's build computes it at 1.4 GB/s.
  table.checksum = rocksdb::kXXH3;
  // The newest that 7.8 writes and every later release reads.
  table.format_version = 5;
  // Table readers are few and their index blocks small: keep them out of the
  // cache, where a scan would push them out.
  table.cache_index_and_filter_blocks = false;
  // Keys are looked up because some record names them: they are there.
  table.filter_policy = nullptr;
  // These defaults changed in later releases.
  table.index_shortening =
      rocksdb::BlockBasedTableOptions::IndexShorteningMode::kShortenSeparators;
  table.optimize_filters_for_memory = false;
  table.max_auto_readahead_size = 256 * kKiB;
  table.initial_auto_readahead_size = 8 * kKiB;
  table.num_file_reads_for_auto_readahead = 2;
  // Aligning blocks to pages has bugs and would break our own alignment.
  table.block_align = false;
  if (space == Space::kChunks) {
    // One record a block: a value then stands in its file as it was given, in
    // one piece, and can be read and mapped without a copy.
    table.block_size = 1;
    // A chunk is read once; caching it would double its memory.
    table.no_block_cache = true;
  } else {
    table.block_size = kBlockBytes;
    table.block_cache = cache;
    table.no_block_cache = cache == nullptr;
    // A leaf record is found by its own key, whatever happened to the one
    // before it.
    if (space == Space::kLeaves) table.block_restart_interval = 1;
    if (space == Space::kSmall) {
      table.flush_block_policy_factory = std::make_shared<SmallBlocksFactory>();
    }
  }
  return table;
}

rocksdb::ColumnFamilyOptions SpaceOptions(
    Space space, const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions options;
  options.table_factory.reset(
      rocksdb::NewBlockBasedTableFactory(TableOptions(space, cache)));

  // Universal and FIFO compaction lose or resurrect ingested data (9.0, 7.10).
  options.compaction_style = rocksdb::kCompactionStyleLevel;
  options.compaction_pri = rocksdb::kMinOverlappingRatio;
  options.num_levels = kBottomLevel + 1;
  // Later releases choose levels by size, which moves the bottom level.
  options.level_compaction_dynamic_level_bytes = false;
  // The defaults start rewriting a store once it is a month old.
  options.ttl = 0;
  options.periodic_compaction_seconds = 0;
  // Arrays are coded above this wall, where their words are known.
  options.compression = rocksdb::kNoCompression;
  options.bottommost_compression = rocksdb::kDisableCompressionOption;
  options.enable_blob_files = false;
  options.force_consistency_checks = true;
  options.paranoid_file_checks = false;
  options.report_bg_io_stats = false;
  options.ignore_max_compaction_bytes_for_input = true;
  options.max_write_buffer_number = 2;

  switch (space) {
    case Space::kRecords:
    case Space::kSmall:
      // Never full: the keeper of the journal flushes at 8 MiB, and holds up
      // commits long before this.
      options.write_buffer_size = 128 * kMiB;
      options.target_file_size_base = 16 * kMiB;
      options.max_bytes_for_level_base = 64 * kMiB;
      // High: a write stall can hang the database (8.7).
      options.level0_file_num_compaction_trigger = 4;
      options.level0_slowdown_writes_trigger = 64;
      options.level0_stop_writes_trigger = 128;
      if (space == Space::kSmall) {
        options.table_properties_collector_factories = {NoteDeletions()};
        options.sst_partitioner_factory = CutBeforeMarker();
      }
      options.soft_pending_compaction_bytes_limit = 0;
      options.hard_pending_compaction_bytes_limit = 0;
      break;
    case Space::kLeaves:
    case Space::kChunks:
      // Written by Adopt alone; only collection compacts them.
      options.write_buffer_size = 64 * kKiB;
      options.disable_auto_compactions = true;
      options.target_file_size_base = 256 * kMiB;
      options.compaction_filter_factory = MakeRewriteFilterFactory();
      break;
  }
  return options;
}

}  // namespace

rocksdb::DBOptions DatabaseOptions(Role role, rocksdb::Env* env) {
  rocksdb::DBOptions options;
  options.env = env;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;

  // An open that may create wipes a store that lost its CURRENT.
  options.create_if_missing = role == Role::kCreate;
  options.create_missing_column_families = role == Role::kCreate;
  options.error_if_exists = role == Role::kCreate;

  // Forensic: one missing file must not hide all others.
  options.paranoid_checks = role != Role::kForensic;
  options.verify_sst_unique_id_in_manifest = true;
  options.flush_verify_memtable_count = true;
  // Reports missing logs that are not (7.10).
  options.track_and_verify_wals_in_manifest = false;

  options.max_open_files = OpenTableLimit();
  // Each of the 64 shards by default keeps a table at least.
  options.table_cache_numshardbits = 2;
  options.max_file_opening_threads = 1;
  // Both would touch every file at open; the check of our own looks at sizes.
  options.skip_stats_update_on_db_open = true;
  options.skip_checking_sst_file_sizes_on_db_open = true;
  // With the advice, mapped and large reads fall to a tenth.
  options.advise_random_on_open = false;
  // A mapped file that shrinks kills the process; views map on their own.
  options.allow_mmap_reads = false;
  options.allow_mmap_writes = false;
  // Slower here, and tmpfs has none.
  options.use_direct_reads = false;
  options.use_direct_io_for_flush_and_compaction = false;

  // There is no log: each open makes an empty one, and nothing goes to it. The
  // journal is what a commit is in.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.avoid_flush_during_recovery = false;
  options.avoid_flush_during_shutdown = false;
  options.max_total_wal_size = 24 * kMiB;
  options.recycle_log_file_num = 0;
  options.WAL_ttl_seconds = 0;
  options.WAL_size_limit_MB = 0;
  options.wal_compression = rocksdb::kNoCompression;
  options.manual_wal_flush = false;
  options.wal_bytes_per_sync = 0;
  options.max_manifest_file_size = 64 * kMiB;
  options.manifest_preallocation_size = 64 * kKiB;
  options.write_dbid_to_manifest = false;
  options.best_efforts_recovery = false;

  // One writer at a time, each batch atomic in view and on disk.
  options.enable_pipelined_write = false;
  options.unordered_write = false;
  options.two_write_queues = false;
  options.allow_2pc = false;
  options.atomic_flush = false;
  options.allow_concurrent_memtable_write = true;

  // One flush at a time: concurrent failures remove each other's output (8.7).
  options.max_background_jobs = 2;
  options.max_background_flushes = 1;
  options.max_background_compactions = 1;
  options.max_subcompactions = 1;
  // Nothing is retried behind our back: after a failed sync nobody knows what
  // the disk holds.
  options.max_bgerror_resume_count = 0;
  options.bytes_per_sync = kMiB;
  options.strict_bytes_per_sync = false;
  options.compaction_readahead_size = 2 * kMiB;
  options.writable_file_max_buffer_size = kMiB;
  options.use_fsync = false;
  options.delete_obsolete_files_period_micros = 6ull * 60 * 60 * 1000000;

  // No background thread wakes for figures nobody reads.
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.persist_stats_to_disk = false;
  // The options file is a courtesy; all options stand here.
  options.fail_if_options_file_error = false;
  // Keys stay out of error texts and with them out of logs.
  options.allow_data_in_errors = false;
  options.enforce_single_del_contracts = true;
  options.access_hint_on_compaction_start = rocksdb::DBOptions::NORMAL;
  return options;
}

std::vector<rocksdb::ColumnFamilyDescriptor> Families(
    const std::shared_ptr<rocksdb::Cache>& cache, bool repaired) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  families.emplace_back(rocksdb::kDefaultColumnFamilyName,
                        SpaceOptions(Space::kLeaves, nullptr));
  for (int i = 0; i < schema::kSpaceCount; ++i) {
    families.emplace_back(
        std::string(schema::kSpaceNames[static_cast<std::size_t>(i)]),
        SpaceOptions(static_cast<Space>(i), cache));
  }
  families.emplace_back(std::string(kLeafCopiesName),
                        SpaceOptions(Space::kLeaves, cache));
  if (repaired) {
    for (rocksdb::ColumnFamilyDescriptor& family : families) {
      family.options.force_consistency_checks = false;
    }
  }
  return families;
}

std::shared_ptr<rocksdb::Cache> BlockCache() {
  // One shard bit: shards of a small cache are too small for a block.
  return rocksdb::NewLRUCache(8 * kMiB, /*num_shard_bits=*/1);
}

rocksdb::IngestExternalFileOptions AdoptOptions() {
  rocksdb::IngestExternalFileOptions options;
  // By link: no second copy of the bytes, and no silent copying instead.
  options.move_files = true;
  options.failed_move_fall_back_to_copy = false;
  // Every key is new, so nothing has to be ordered against anything. A file
  // that overlaps another one is a bug and fails here, loudly.
  options.snapshot_consistency = false;
  options.allow_global_seqno = false;
  options.write_global_seqno = false;
  options.allow_blocking_flush = false;
  options.fail_if_not_bottommost_level = true;
  options.ingest_behind = false;
  options.verify_checksums_before_ingest = false;
  options.verify_file_checksum = true;
  return options;
}

rocksdb::Options FileOptionsOf(Space space, rocksdb::Env* env, bool map) {
  rocksdb::Options options(DatabaseOptions(Role::kReadOnly, env),
                           SpaceOptions(space, nullptr));
  options.allow_mmap_reads = map;
  return options;
}

}  // namespace ckptree::kv
