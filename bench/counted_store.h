// SPDX-License-Identifier: Apache-2.0

// How many requests a store makes of its object store, and how many bytes go
// there.

#ifndef CKPTREE_BENCH_COUNTED_STORE_H_
#define CKPTREE_BENCH_COUNTED_STORE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv/object_store.h"
#include "kv/object_store_wrapper.h"

namespace ckptree::bench {

// Of every object store that is opened while it lives.
class Requests {
 public:
  Requests() {
    kv::SetObjectStoreWrapper([this](std::unique_ptr<kv::ObjectStore> store) {
      return std::make_unique<Counted>(std::move(store), this);
    });
  }
  ~Requests() { kv::SetObjectStoreWrapper(nullptr); }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  void Reset() { count_ = bytes_ = 0; }
  double count() const { return static_cast<double>(count_.load()); }
  double bytes_put() const { return static_cast<double>(bytes_.load()); }

 private:
  class Counted : public kv::ObjectStore {
   public:
    Counted(std::unique_ptr<kv::ObjectStore> store, Requests* requests)
        : store_(std::move(store)), requests_(requests) {}
    const std::string& address() const override { return store_->address(); }
    absl::StatusOr<kv::PutAnswer> PutIfAbsent(const std::string& name,
                                              std::string_view bytes,
                                              const std::string& write_id,
                                              const kv::Call& call) override {
      Note(bytes.size());
      return store_->PutIfAbsent(name, bytes, write_id, call);
    }
    absl::Status Put(const std::string& name, const kv::ObjectSource& source,
                     const kv::Call& call) override {
      Note(source.size());
      return store_->Put(name, source, call);
    }
    absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                         std::uint64_t offset,
                                         std::span<std::byte> into,
                                         const kv::Call& call) override {
      Note(0);
      return store_->GetRange(name, offset, into, call);
    }
    absl::StatusOr<std::optional<kv::ObjectInfo>> Head(
        const std::string& name, const kv::Call& call) override {
      Note(0);
      return store_->Head(name, call);
    }
    absl::StatusOr<kv::ObjectPage> List(const std::string& prefix,
                                        const std::string& after,
                                        const kv::Call& call) override {
      Note(0);
      return store_->List(prefix, after, call);
    }
    absl::Status Delete(std::span<const std::string> names,
                        const kv::Call& call) override {
      for (std::size_t i = 0; i < names.size(); ++i) Note(0);
      return store_->Delete(names, call);
    }
    absl::StatusOr<std::vector<kv::Upload>> ListUploads(
        const std::string& prefix, const kv::Call& call) override {
      Note(0);
      return store_->ListUploads(prefix, call);
    }
    absl::Status AbortUpload(const kv::Upload& upload,
                             const kv::Call& call) override {
      Note(0);
      return store_->AbortUpload(upload, call);
    }

   private:
    void Note(std::uint64_t bytes) {
      ++requests_->count_;
      requests_->bytes_ += bytes;
    }
    const std::unique_ptr<kv::ObjectStore> store_;
    Requests* const requests_;
  };

  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;
};

}  // namespace ckptree::bench

#endif  // CKPTREE_BENCH_COUNTED_STORE_H_
