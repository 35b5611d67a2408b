// SPDX-License-Identifier: Apache-2.0

// What the objects of a store are called, and how they are read and written
// whole.

#ifndef CKPTREE_CORE_REMOTE_REMOTE_OBJECTS_H_
#define CKPTREE_CORE_REMOTE_REMOTE_OBJECTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "kv/far_segments.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

// Names which store all others are of.
inline constexpr char kRemoteStoreName[] = "store";

// Names begin with the uuid of the store: what is left over of a store that was
// deleted cannot write into the next one of that address. Of an empty `uuid`:
// what comes behind it and its slash.
std::string RemoteCommitName(std::string_view uuid, std::uint64_t ordinal);
// `era` is that of the commit that lists it.
std::string RemoteSegmentName(std::string_view uuid, std::uint64_t era,
                              const schema::RemoteSegment& segment);
// As it is read there.
kv::FarSegment FarSegmentOf(const schema::RemoteLiving& living,
                            std::string_view uuid);
std::string RemoteSegmentPrefix(std::string_view uuid);
std::string RemoteRowsName(std::string_view uuid, std::uint64_t era,
                           const schema::RemoteRowsObject& object);
std::string RemoteRunName(std::string_view uuid,
                          const schema::RemoteRunObject& object);
// Of indexes, of which the newest sorts first; those of one commit.
std::string RemoteIndexPrefix(std::string_view uuid);
std::string RemoteIndexPrefix(std::string_view uuid, std::uint64_t ordinal);
std::string RemoteIndexName(std::string_view uuid, std::uint64_t ordinal,
                            std::uint64_t era, std::string_view attempt);

// 16 random bytes.
std::string NewRemoteId();
// As kv::NewWriteId() has them: hexadecimal.
std::string HexOf(std::string_view bytes);

// All of an object, nothing where it is absent; kDataLoss where it has more
// than `most` bytes, which is said before memory is taken.
absl::StatusOr<std::optional<std::string>> GetObject(kv::ObjectStore& store,
                                                     const std::string& name,
                                                     std::size_t most,
                                                     const kv::Call& call);
// The same of an object that had `bytes` bytes, by one request. It may have
// fewer or, by one, more by now.
absl::StatusOr<std::optional<std::string>> GetKnown(kv::ObjectStore& store,
                                                    const std::string& name,
                                                    std::uint64_t bytes,
                                                    const kv::Call& call);
// The same where it must be there with these bytes: kDataLoss naming it.
absl::StatusOr<std::string> GetChecked(kv::ObjectStore& store,
                                       const std::string& name,
                                       std::uint64_t bytes,
                                       const base::Digest& digest,
                                       const kv::Call& call);

// A commit that is there, decoded; nothing where it is absent. Like each of the
// reads here that knows what it reads it asks once more where the bytes are not
// such, as an answer may be damaged on its way. kDataLoss says what to do.
absl::StatusOr<std::optional<schema::RemoteCommit>> GetRemoteCommit(
    kv::ObjectStore& store, std::string_view uuid, std::uint64_t ordinal,
    const kv::Call& call);

// What to do about a chain that is damaged.
inline constexpr std::string_view kMendChain =
    "Put it back from a copy. Where there is none the directory of the machine "
    "that wrote it has all: remove the file 'remote' in that, and an open of "
    "it with another, empty address ships all of it there";

// Calls `take` with all objects whose names begin with `prefix`, in the order
// of their names. Each request, of a page of them, is a `next_call`.
absl::Status ForEachObject(
    kv::ObjectStore& store, const std::string& prefix,
    absl::FunctionRef<kv::Call()> next_call,
    absl::FunctionRef<void(const kv::ObjectInfo& object)> take);

// When a commit was made, by the clock of the store. kDataLoss: it is gone.
absl::StatusOr<absl::Time> RemoteCommitTime(kv::ObjectStore& store,
                                            std::string_view uuid,
                                            std::uint64_t ordinal,
                                            const kv::Call& call);

// Bytes in memory. They must outlive it.
class BytesOf : public kv::ObjectSource {
 public:
  explicit BytesOf(std::string_view bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override;

 private:
  std::string_view bytes_;
};

// Which store is at the address; nothing where none is.
absl::StatusOr<std::optional<schema::RemoteStore>> FindRemoteStore(
    kv::ObjectStore& store, const kv::Call& call);

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_REMOTE_REMOTE_OBJECTS_H_
