// SPDX-License-Identifier: Apache-2.0

// Counts the requests to every object store that is opened while it lives.

#ifndef CKPTREE_TESTS_OBJECTS_COUNTING_STORE_H_
#define CKPTREE_TESTS_OBJECTS_COUNTING_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "kv/object_store_wrapper.h"

namespace ckptree::testing {

// Thread-safe.
class RequestCount {
 public:
  RequestCount() {
    kv::SetObjectStoreWrapper([this](std::unique_ptr<kv::ObjectStore> store) {
      return std::make_unique<Counting>(std::move(store), this);
    });
  }
  ~RequestCount() { kv::SetObjectStoreWrapper(nullptr); }
  RequestCount(const RequestCount&) = delete;
  RequestCount& operator=(const RequestCount&) = delete;

  // Called with "put NAME" and the like before a request is sent. What it
  // returns that is not OK is the answer, and nothing is sent.
  void SetHook(std::function<absl::Status(const std::string& what)> hook) {
    if (hook == nullptr) return SetCallHook(nullptr);
    SetCallHook(
        [hook = std::move(hook)](const std::string& what, const kv::Call&) {
          return hook(what);
        });
  }
  // The same for one that waits as the request would.
  using CallHook =
      std::function<absl::Status(const std::string& what, const kv::Call&)>;
  void SetCallHook(CallHook hook) {
    const std::scoped_lock lock(mu_);
    hook_ = std::move(hook);
  }
  // From now on what a hook returns of a creation is the answer to it that did
  // not come: whether the object is there is not known.
  void LoseAnswers() {
    const std::scoped_lock lock(mu_);
    loses_answers_ = true;
  }
  // Called with the name when a creation was carried out. What it returns that
  // is not OK is said in place of the answer: an error that is not true.
  using CreatedHook = std::function<absl::Status(const std::string& name)>;
  void SetCreatedHook(CreatedHook hook) {
    const std::scoped_lock lock(mu_);
    created_hook_ = std::move(hook);
  }
  // Called with the same words when a request was answered, or failed.
  void SetAnsweredHook(std::function<void(const std::string& what)> hook) {
    const std::scoped_lock lock(mu_);
    answered_hook_ = std::move(hook);
  }

  // Called with the bytes that were read of an object, which it may change, as
  // if they had been damaged on their way.
  using ReadHook =
      std::function<void(const std::string& name, std::span<std::byte> bytes)>;
  void SetReadHook(ReadHook hook) {
    const std::scoped_lock lock(mu_);
    read_hook_ = std::move(hook);
  }

  // Called with what a Put is given, before it is sent.
  using PutHook = std::function<void(const std::string& name,
                                     const kv::ObjectSource& source)>;
  void SetPutHook(PutHook hook) {
    const std::scoped_lock lock(mu_);
    put_hook_ = std::move(hook);
  }

  void Reset() {
    const std::scoped_lock lock(mu_);
    requests_.clear();
    longest_ = absl::ZeroDuration();
  }
  // That any of them may take.
  absl::Duration longest() const {
    const std::scoped_lock lock(mu_);
    return longest_;
  }
  // What was asked, in order: "get NAME" and the like.
  std::vector<std::string> requests() const {
    const std::scoped_lock lock(mu_);
    return requests_;
  }
  // For a message.
  std::string Text() const {
    std::string text;
    for (const std::string& request : requests()) {
      absl::StrAppend(&text, request, "\n");
    }
    return text;
  }

 private:
  absl::Status Note(const kv::Call& call, std::string_view kind,
                    const std::string& name) {
    std::string what = std::string(kind) + " " + name;
    CallHook hook;
    {
      const std::scoped_lock lock(mu_);
      requests_.push_back(what);
      longest_ = std::max(longest_, call.deadline - kv::MonotonicNow());
      hook = hook_;
    }
    return hook == nullptr ? absl::OkStatus() : hook(what, call);
  }

  template <typename Answer>
  Answer Answered(std::string_view kind, const std::string& name,
                  Answer answer) {
    std::function<void(const std::string&)> hook;
    {
      const std::scoped_lock lock(mu_);
      hook = answered_hook_;
    }
    if (hook != nullptr) hook(std::string(kind) + " " + name);
    return answer;
  }

  bool loses_answers() const {
    const std::scoped_lock lock(mu_);
    return loses_answers_;
  }
  CreatedHook created_hook() const {
    const std::scoped_lock lock(mu_);
    return created_hook_;
  }
  ReadHook read_hook() const {
    const std::scoped_lock lock(mu_);
    return read_hook_;
  }
  PutHook put_hook() const {
    const std::scoped_lock lock(mu_);
    return put_hook_;
  }

  class Counting : public kv::ObjectStore {
   public:
    Counting(std::unique_ptr<kv::ObjectStore> store, RequestCount* count)
        : store_(std::move(store)), count_(count) {}
    const std::string& address() const override { return store_->address(); }
    absl::StatusOr<kv::PutAnswer> PutIfAbsent(const std::string& name,
                                              std::string_view bytes,
                                              const std::string& write_id,
                                              const kv::Call& call) override {
      if (auto s = count_->Note(call, "create", name); !s.ok()) {
        if (!count_->loses_answers()) return s;
        return kv::PutAnswer{kv::PutOutcome::kUnknown, std::move(s)};
      }
      absl::StatusOr<kv::PutAnswer> answer =
          store_->PutIfAbsent(name, bytes, write_id, call);
      if (const CreatedHook hook = count_->created_hook()) {
        if (absl::Status s = hook(name); !s.ok()) answer = std::move(s);
      }
      return count_->Answered("create", name, std::move(answer));
    }
    absl::Status Put(const std::string& name, const kv::ObjectSource& source,
                     const kv::Call& call) override {
      if (auto s = count_->Note(call, "put", name); !s.ok()) return s;
      if (const PutHook hook = count_->put_hook()) hook(name, source);
      return count_->Answered("put", name, store_->Put(name, source, call));
    }
    absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                         std::uint64_t offset,
                                         std::span<std::byte> into,
                                         const kv::Call& call) override {
      if (auto s = count_->Note(call, "get", name); !s.ok()) return s;
      absl::StatusOr<std::size_t> read =
          store_->GetRange(name, offset, into, call);
      if (const ReadHook hook = count_->read_hook(); hook && read.ok()) {
        hook(name, into.first(*read));
      }
      return count_->Answered("get", name, std::move(read));
    }
    absl::StatusOr<std::optional<kv::ObjectInfo>> Head(
        const std::string& name, const kv::Call& call) override {
      if (auto s = count_->Note(call, "head", name); !s.ok()) return s;
      return count_->Answered("head", name, store_->Head(name, call));
    }
    absl::StatusOr<kv::ObjectPage> List(const std::string& prefix,
                                        const std::string& after,
                                        const kv::Call& call) override {
      if (auto s = count_->Note(call, "list", prefix); !s.ok()) return s;
      return count_->Answered("list", prefix,
                              store_->List(prefix, after, call));
    }
    absl::Status Delete(std::span<const std::string> names,
                        const kv::Call& call) override {
      for (const std::string& name : names) {
        if (auto s = count_->Note(call, "delete", name); !s.ok()) return s;
      }
      absl::Status answer = store_->Delete(names, call);
      for (const std::string& name : names) {
        answer = count_->Answered("delete", name, std::move(answer));
      }
      return answer;
    }
    absl::StatusOr<std::vector<kv::Upload>> ListUploads(
        const std::string& prefix, const kv::Call& call) override {
      if (auto s = count_->Note(call, "uploads", prefix); !s.ok()) return s;
      return store_->ListUploads(prefix, call);
    }
    absl::Status AbortUpload(const kv::Upload& upload,
                             const kv::Call& call) override {
      if (auto s = count_->Note(call, "abort", upload.name); !s.ok()) return s;
      return store_->AbortUpload(upload, call);
    }

   private:
    const std::unique_ptr<kv::ObjectStore> store_;
    RequestCount* const count_;
  };

  mutable std::mutex mu_;
  std::vector<std::string> requests_;
  absl::Duration longest_;
  CallHook hook_;
  bool loses_answers_ = false;
  CreatedHook created_hook_;
  PutHook put_hook_;
  ReadHook read_hook_;
  std::function<void(const std::string&)> answered_hook_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_OBJECTS_COUNTING_STORE_H_
