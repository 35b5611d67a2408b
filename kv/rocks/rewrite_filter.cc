// SPDX-License-Identifier: Apache-2.0

#include "kv/rewrite_filter.h"

#include <memory>
#include <string>

#include "kv/rocks/rewrite_filter_factory.h"
#include "rocksdb/compaction_filter.h"
#include "rocksdb/slice.h"

namespace ckptree::kv {
namespace {

// CompactFiles runs its compaction, filter included, in the thread that calls.
thread_local const KeepFn* keep_of_this_thread = nullptr;

class Filter : public rocksdb::CompactionFilter {
 public:
  explicit Filter(const KeepFn& keep) : keep_(keep) {}

  Decision FilterV2(int, const rocksdb::Slice& key, ValueType,
                    const rocksdb::Slice& value, std::string*,
                    std::string*) const override {
    return keep_(key.ToStringView(), value.size()) ? Decision::kKeep
                                                   : Decision::kRemove;
  }

  const char* Name() const override { return "ckptree.rewrite"; }

 private:
  const KeepFn keep_;
};

class Factory : public rocksdb::CompactionFilterFactory {
 public:
  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context&) override {
    if (keep_of_this_thread == nullptr) return nullptr;
    return std::make_unique<Filter>(*keep_of_this_thread);
  }

  const char* Name() const override { return "ckptree.rewrite"; }
};

}  // namespace

RewriteScope::RewriteScope(KeepFn keep) : keep_(keep) {
  keep_of_this_thread = &keep_;
}

RewriteScope::~RewriteScope() { keep_of_this_thread = nullptr; }

bool RewriteScope::Active() { return keep_of_this_thread != nullptr; }

std::shared_ptr<rocksdb::CompactionFilterFactory> MakeRewriteFilterFactory() {
  return std::make_shared<Factory>();
}

}  // namespace ckptree::kv
