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
thread_local const RewriteFn* rewrite_of_this_thread = nullptr;

class Filter : public rocksdb::CompactionFilter {
 public:
  explicit Filter(const RewriteFn& rewrite) : rewrite_(rewrite) {}

  Decision FilterV2(int, const rocksdb::Slice& key, ValueType,
                    const rocksdb::Slice& value, std::string* changed,
                    std::string*) const override {
    changed->clear();
    switch (rewrite_(key.ToStringView(), value.ToStringView(), changed)) {
      case Rewritten::kDropped:
        return Decision::kRemove;
      case Rewritten::kChanged:
        return Decision::kChangeValue;
      case Rewritten::kAsItIs:
        break;
    }
    return Decision::kKeep;
  }

  const char* Name() const override { return "ckptree.rewrite"; }

 private:
  const RewriteFn rewrite_;
};

class Factory : public rocksdb::CompactionFilterFactory {
 public:
  std::unique_ptr<rocksdb::CompactionFilter> CreateCompactionFilter(
      const rocksdb::CompactionFilter::Context&) override {
    if (rewrite_of_this_thread == nullptr) return nullptr;
    return std::make_unique<Filter>(*rewrite_of_this_thread);
  }

  const char* Name() const override { return "ckptree.rewrite"; }
};

}  // namespace

RewriteScope::RewriteScope(RewriteFn rewrite) : rewrite_(rewrite) {
  rewrite_of_this_thread = &rewrite_;
}

RewriteScope::~RewriteScope() { rewrite_of_this_thread = nullptr; }

bool RewriteScope::Active() { return rewrite_of_this_thread != nullptr; }

std::shared_ptr<rocksdb::CompactionFilterFactory> MakeRewriteFilterFactory() {
  return std::make_shared<Factory>();
}

}  // namespace ckptree::kv
