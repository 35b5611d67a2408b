// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/pieces.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "kv/object_store.h"

namespace ckptree::kv {
namespace {

using SendFn = absl::FunctionRef<absl::Status(std::uint64_t, std::string_view)>;

class Pieces {
 public:
  Pieces(const ObjectSource& source, std::uint64_t piece_bytes, SendFn send)
      : source_(source), piece_bytes_(piece_bytes), send_(send) {}

  // Of each thread, until all is sent or something failed.
  void Work() {
    try {
      std::string bytes;
      std::uint64_t number = 0;
      while (ReadNext(&bytes, &number)) Note(send_(number, bytes));
    } catch (const std::exception& error) {
      // A piece may be more than there is memory for.
      Note(absl::ResourceExhaustedError(
          absl::StrCat("sending a piece: ", error.what())));
    }
  }

  absl::Status status() const {
    const absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  bool ReadNext(std::string* bytes, std::uint64_t* number) {
    const absl::MutexLock lock(&mu_);
    if (!status_.ok() || at_ >= source_.size()) return false;
    *number = next_++;
    bytes->resize(
        static_cast<std::size_t>(std::min(piece_bytes_, source_.size() - at_)));
    status_ = source_.Read(at_, std::as_writable_bytes(std::span(*bytes)));
    at_ += bytes->size();
    return status_.ok();
  }

  void Note(const absl::Status& sent) {
    const absl::MutexLock lock(&mu_);
    status_.Update(sent);
  }

  const ObjectSource& source_;
  const std::uint64_t piece_bytes_;
  const SendFn send_;
  mutable absl::Mutex mu_;
  std::uint64_t at_ ABSL_GUARDED_BY(mu_) = 0;
  std::uint64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::Status SendPieces(const ObjectSource& source, std::uint64_t piece_bytes,
                        std::size_t at_once, SendFn send) {
  Pieces pieces(source, piece_bytes, send);
  const std::uint64_t count = (source.size() + piece_bytes - 1) / piece_bytes;
  std::vector<std::thread> others;
  try {
    others.reserve(at_once);
    while (others.size() + 1 < std::min<std::uint64_t>(at_once, count)) {
      others.emplace_back([&pieces] { pieces.Work(); });
    }
  } catch (const std::exception&) {
    // No thread for one: those there are send what is left.
  }
  pieces.Work();
  for (std::thread& other : others) other.join();
  return pieces.status();
}

}  // namespace ckptree::kv
