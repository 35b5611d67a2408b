// SPDX-License-Identifier: Apache-2.0

// The commits of a store in an object store: one chain, of which each writer
// adds the next or learns that another one did.

#ifndef CKPTREE_CORE_REMOTE_CHAIN_H_
#define CKPTREE_CORE_REMOTE_CHAIN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Rules 1 to 5 and 12 of tests/remote/model.py.
//
// Confined to one thread at a time. `store` outlives it.
class RemoteChain {
 public:
  // Commits that are asked for at once, from threads of their own.
  static constexpr std::size_t kMostAtOnce = 64;
  // Of the store `uuid`; nothing is read yet.
  RemoteChain(kv::ObjectStore* store, std::string uuid,
              std::size_t most_at_once = kMostAtOnce);

  // Of the newest commit that was seen; 0: of none.
  std::uint64_t ordinal() const { return ordinal_; }
  const base::Digest& hash() const { return hash_; }
  // The newest commit that was seen, and the newest open; without their rows.
  const std::optional<schema::RemoteCommit>& newest() const { return newest_; }
  const std::optional<schema::RemoteCommit>& open() const { return open_; }
  // Of this writer; 0: it has not opened.
  std::uint64_t era() const { return era_; }

  // Reads on, up to the first commit that is absent, and calls `take` for each
  // in order. kDataLoss: one does not go on from the one before, or is gone: at
  // the end of the first reading the names behind it are listed, once. What
  // `take` returned ends it; that commit was not seen then.
  using TakeFn =
      absl::FunctionRef<absl::Status(const schema::RemoteCommit& commit)>;
  absl::Status ReadOn(TakeFn take, const kv::Call& call);
  // An index of that commit is there, so that the commit was: ReadOn() is
  // kDataLoss where the chain ends before it.
  void ExpectTo(std::uint64_t ordinal) {
    expected_ = std::max(expected_, ordinal);
  }
  // Goes on behind a commit that was seen in an earlier life; kDataLoss where
  // the chain has another one there, or none. REQUIRES: nothing was read yet.
  absl::Status GoOnFrom(std::uint64_t ordinal, const base::Digest& hash,
                        const kv::Call& call);
  // As if nothing was read. REQUIRES: nothing was asked for.
  void Forget();

  // Asks for a commit behind the newest that was seen: of `draft` all but
  // shape, rows, segments, local, from, to, host and pid is filled in, and the
  // write id, where it has none yet. OK: it is in the chain.
  //
  //   kAborted      of an open: another commit came first, and is to be read;
  //                 then the open may be made anew
  //   kFailedPrecondition  of others: fenced. It never was committed, nor will
  //                 be; nor will any other of this writer
  //   kAlreadyExists  of others: an earlier one of this writer came first, of
  //                 which it was said that it never would be; ReadOn() has it
  //   kUnavailable  nobody knows yet; Settle() asks again. Nothing else may be
  //                 asked for before. kCancelled: so it is, and `call` was
  //                 cancelled, or the store's own token ended it
  //
  // Other errors: nothing was created, nor will be.
  absl::Status Append(schema::RemoteCommit draft, const kv::Call& call);
  // kFailedPrecondition: nothing was asked for.
  absl::Status Settle(const kv::Call& call);
  bool pending() const { return pending_.has_value(); }
  // OK, or who took the store over.
  const absl::Status& fenced() const { return fenced_; }

  // By the clock of the store, of the newest commit.
  absl::StatusOr<absl::Time> NewestTime(const kv::Call& call);

 private:
  struct Pending {
    schema::RemoteCommit commit;
    std::string bytes;
    std::string name;
    bool asked = false;  // The request may have arrived.
  };

  absl::StatusOr<std::optional<std::string>> Get(std::uint64_t ordinal,
                                                 const kv::Call& call) const;
  // Decodes it and looks whether it goes on from the newest.
  absl::StatusOr<schema::RemoteCommit> Check(std::uint64_t ordinal,
                                             const std::string& bytes) const;
  // The same, which reads again what does not hold: a proxy may have answered.
  // kDataLoss: the same bytes came again, after a pause. kUnavailable: others
  // each time, or with `any_may_come` what does not even decode. `bytes` are
  // what came last.
  absl::StatusOr<schema::RemoteCommit> CheckAgain(std::uint64_t ordinal,
                                                  bool any_may_come,
                                                  std::string* bytes,
                                                  const kv::Call& call) const;
  // True where nothing stands behind the end of the chain. kDataLoss: something
  // does, and what would be between them is gone.
  absl::StatusOr<bool> IsEnd(const kv::Call& call) const;
  absl::Status CheckExpected() const;
  void Saw(schema::RemoteCommit commit, const base::Digest& hash);
  absl::Status Settled();  // What was asked for is there.
  void Fence(const schema::RemoteCommit& by);

  kv::ObjectStore* const store_;
  const std::string uuid_;
  const std::size_t most_at_once_;
  std::uint64_t ordinal_ = 0;
  base::Digest hash_;
  std::optional<schema::RemoteCommit> newest_;
  std::optional<schema::RemoteCommit> open_;
  std::uint64_t ceiling_ = 0;
  std::uint64_t era_ = 0;
  bool end_was_listed_ = false;
  std::uint64_t expected_ = 0;  // That an index knows of.
  std::optional<Pending> pending_;
  absl::Status fenced_;
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_CHAIN_H_
