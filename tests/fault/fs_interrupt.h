// SPDX-License-Identifier: Apache-2.0

// A file system that calls the test at a moment of its choice.

#ifndef CKPTREE_TESTS_FAULT_FS_INTERRUPT_H_
#define CKPTREE_TESTS_FAULT_FS_INTERRUPT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "rocksdb/file_system.h"

namespace ckptree::kv {

// Set up while nothing uses it.
class InterruptedFs : public rocksdb::FileSystemWrapper {
 public:
  InterruptedFs() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "InterruptedFs"; }

  // Calls `interrupt` once, right before a file whose name ends in `suffix` is
  // opened to be read for the `nth` time.
  void BeforeReading(std::string suffix, std::function<void()> interrupt,
                     int nth = 1) {
    suffix_ = std::move(suffix);
    left_ = nth;
    interrupt_ = std::move(interrupt);
  }
  // Calls `interrupt`, from now on, right before a file whose name ends in
  // `suffix` is made to be written.
  void BeforeEachWriting(std::string suffix, std::function<void()> interrupt) {
    written_suffix_ = std::move(suffix);
    before_writing_ = std::move(interrupt);
  }
  // It was called, before a reading.
  bool fired() const { return interrupt_ == nullptr; }

  rocksdb::IOStatus NewSequentialFile(
      const std::string& name, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSSequentialFile>* result,
      rocksdb::IODebugContext* debug) override {
    Opening(name);
    return target()->NewSequentialFile(name, options, result, debug);
  }
  rocksdb::IOStatus NewRandomAccessFile(
      const std::string& name, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
      rocksdb::IODebugContext* debug) override {
    Opening(name);
    return target()->NewRandomAccessFile(name, options, result, debug);
  }
  rocksdb::IOStatus NewWritableFile(
      const std::string& name, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* result,
      rocksdb::IODebugContext* debug) override {
    if (before_writing_ && name.ends_with(written_suffix_)) before_writing_();
    return target()->NewWritableFile(name, options, result, debug);
  }

 private:
  void Opening(const std::string& name) {
    if (fired() || !name.ends_with(suffix_) || --left_ > 0) return;
    std::exchange(interrupt_, nullptr)();
  }

  std::string suffix_;
  int left_ = 0;
  std::function<void()> interrupt_;
  std::string written_suffix_;
  std::function<void()> before_writing_;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_TESTS_FAULT_FS_INTERRUPT_H_
