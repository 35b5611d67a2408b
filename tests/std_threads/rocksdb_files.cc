// SPDX-License-Identifier: Apache-2.0

// What the thread sanitizer is told of RocksDB: see README.md.

extern "C" const char* __tsan_default_suppressions();  // NOLINT: its name

// A table's file is ours, and RocksDB ends it with the last reference to the
// table, under the lock of its cache. That lock is in a library that the
// sanitizer doesn't look into.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: its name
  return "race:rocksdb::BlockBasedTable::Rep::~Rep\n";
}
