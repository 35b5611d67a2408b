// SPDX-License-Identifier: Apache-2.0

#include "core/remote/remote_objects.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/conditional_put.h"
#include "kv/object_store.h"
#include "schema/envelope.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

// A commit of a small save fits: one request reads it.
constexpr std::size_t kFirstRead = std::size_t{128} << 10;

// An answer may be damaged on its way: then the second one is whole.
constexpr int kMostReads = 2;

// What an error shows of an object that is something else.
constexpr std::size_t kMostShown = 24;

std::string Beginning(std::string_view bytes) {
  const std::string_view shown = bytes.substr(0, kMostShown);
  return absl::CHexEscape({shown.data(), shown.size()});
}

std::string Under(std::string_view uuid) {
  return uuid.empty() ? "" : HexOf(uuid) + "/";
}

// Of GetObject() by `decode`; what does not decode is read once more, and is
// then the error that `say` makes of the reason and the bytes.
template <typename Record>
absl::StatusOr<std::optional<Record>> GetDecoded(
    kv::ObjectStore& store, const std::string& name, std::size_t most,
    absl::StatusOr<Record> (*decode)(std::string_view bytes),
    absl::FunctionRef<absl::Status(const absl::Status& why,
                                   std::string_view bytes)>
        say,
    const kv::Call& call) {
  absl::Status damaged;
  for (int reads = 1;; ++reads) {
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::string> bytes,
                             GetObject(store, name, most, call));
    if (!bytes.has_value()) return std::nullopt;
    absl::StatusOr<Record> found = decode(*bytes);
    if (found.ok()) {
      if (!damaged.ok()) {
        store.NoteDamagedAnswer(
            absl::StrFormat("%s: %s", name, damaged.message()));
      }
      return *std::move(found);
    }
    damaged = found.status();
    if (reads == kMostReads || !absl::IsDataLoss(damaged)) {
      return say(damaged, *bytes);
    }
  }
}

}  // namespace

std::string HexOf(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

std::string NewRemoteId() { return absl::HexStringToBytes(kv::NewWriteId()); }

std::string RemoteCommitName(std::string_view uuid, std::uint64_t ordinal) {
  return absl::StrFormat("%s/commit/%020d", HexOf(uuid), ordinal);
}

std::string RemoteSegmentName(std::string_view uuid, std::uint64_t era,
                              const schema::RemoteSegment& segment) {
  // Random bits first: a store that spreads its load by names spreads it.
  const std::string attempt = HexOf(segment.attempt);
  return absl::StrFormat("%ssegment/%s/%d-%d-%d-%d-%d-%s", Under(uuid),
                         attempt.substr(0, 2), era, segment.segment.version,
                         segment.segment.part,
                         static_cast<int>(segment.segment.space),
                         segment.segment.builder, attempt);
}

kv::FarSegment FarSegmentOf(const schema::RemoteLiving& living,
                            std::string_view uuid) {
  const schema::SegmentKeyFields& fields = living.segment.segment;
  kv::FarSegment far;
  far.space = fields.space;
  far.first_key = schema::SegmentHeaderKey(fields);
  far.last_key = schema::SegmentTableKey(fields);
  far.name = RemoteSegmentName(uuid, living.era, living.segment);
  far.bytes = living.segment.bytes;
  far.blocks.reserve(living.segment.blocks.size());
  for (const schema::RemoteBlock& block : living.segment.blocks) {
    far.blocks.push_back({schema::BlockNumber(fields.builder, block.sequence),
                          block.offset, block.bytes});
  }
  return far;
}

std::string RemoteSegmentPrefix(std::string_view uuid) {
  return Under(uuid) + "segment/";
}

std::string RemoteRowsName(std::string_view uuid, std::uint64_t era,
                           const schema::RemoteRowsObject& object) {
  const std::string attempt = HexOf(object.attempt);
  return absl::StrFormat("%srows/%s/%d-%s", Under(uuid), attempt.substr(0, 2),
                         era, attempt);
}

std::string RemoteRunName(std::string_view uuid,
                          const schema::RemoteRunObject& object) {
  const std::string attempt = HexOf(object.object.attempt);
  return absl::StrFormat("%srun/%s/%d-%s", Under(uuid), attempt.substr(0, 2),
                         object.era, attempt);
}

std::string RemoteIndexPrefix(std::string_view uuid) {
  return Under(uuid) + "index/";
}

std::string RemoteIndexPrefix(std::string_view uuid, std::uint64_t ordinal) {
  return absl::StrFormat("%s%020d-", RemoteIndexPrefix(uuid), ~ordinal);
}

std::string RemoteIndexName(std::string_view uuid, std::uint64_t ordinal,
                            std::uint64_t era, std::string_view attempt) {
  return absl::StrFormat("%s%d-%s", RemoteIndexPrefix(uuid, ordinal), era,
                         HexOf(attempt));
}

absl::StatusOr<absl::Time> RemoteCommitTime(kv::ObjectStore& store,
                                            std::string_view uuid,
                                            std::uint64_t ordinal,
                                            const kv::Call& call) {
  const std::string name = RemoteCommitName(uuid, ordinal);
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<kv::ObjectInfo> info,
                           store.Head(name, call));
  if (info.has_value()) return info->modified;
  return absl::DataLossError(
      absl::StrFormat("%s is gone from %s", name, store.address()));
}

absl::Status BytesOf::Read(std::uint64_t offset,
                           std::span<std::byte> into) const {
  bytes_.copy(reinterpret_cast<char*>(into.data()), into.size(),
              static_cast<std::size_t>(offset));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> GetObject(kv::ObjectStore& store,
                                                     const std::string& name,
                                                     std::size_t most,
                                                     const kv::Call& call) {
  std::string bytes(std::min(most + 1, kFirstRead), '\0');
  absl::StatusOr<std::size_t> read =
      store.GetRange(name, 0, std::as_writable_bytes(std::span(bytes)), call);
  if (absl::IsNotFound(read.status())) return std::nullopt;
  CKPTREE_RETURN_IF_ERROR(read.status());
  if (*read < bytes.size()) {
    bytes.resize(*read);
    return bytes;
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<kv::ObjectInfo> info,
                           store.Head(name, call));
  if (!info.has_value()) return std::nullopt;
  if (info->size > most) {
    return absl::DataLossError(
        absl::StrFormat("%s in %s has %d bytes; at most %d are possible", name,
                        store.address(), info->size, most));
  }
  const std::size_t have = bytes.size();
  bytes.resize(static_cast<std::size_t>(info->size));
  if (bytes.size() <= have) return bytes;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::size_t more,
      store.GetRange(name, have,
                     std::as_writable_bytes(std::span(bytes)).subspan(have),
                     call));
  bytes.resize(have + more);
  return bytes;
}

absl::StatusOr<std::optional<std::string>> GetKnown(kv::ObjectStore& store,
                                                    const std::string& name,
                                                    std::uint64_t bytes,
                                                    const kv::Call& call) {
  std::string found(static_cast<std::size_t>(bytes) + 1, '\0');
  const absl::StatusOr<std::size_t> read =
      store.GetRange(name, 0, std::as_writable_bytes(std::span(found)), call);
  if (absl::IsNotFound(read.status())) return std::nullopt;
  CKPTREE_RETURN_IF_ERROR(read.status());
  found.resize(*read);
  return found;
}

absl::StatusOr<std::string> GetChecked(kv::ObjectStore& store,
                                       const std::string& name,
                                       std::uint64_t bytes,
                                       const base::Digest& digest,
                                       const kv::Call& call) {
  for (int reads = 1; reads <= kMostReads; ++reads) {
    CKPTREE_ASSIGN_OR_RETURN(std::optional<std::string> found,
                             GetKnown(store, name, bytes, call));
    if (!found.has_value()) {
      return absl::DataLossError(absl::StrFormat(
          "%s is missing in %s, and a commit needs it", name, store.address()));
    }
    if (found->size() == bytes && base::DigestOf(*found) == digest) {
      if (reads > 1) store.NoteDamagedAnswer(name);
      return *std::move(found);
    }
  }
  return absl::DataLossError(absl::StrFormat(
      "%s in %s is not what was put there", name, store.address()));
}

absl::Status ForEachObject(
    kv::ObjectStore& store, const std::string& prefix,
    absl::FunctionRef<kv::Call()> next_call,
    absl::FunctionRef<void(const kv::ObjectInfo& object)> take) {
  std::string after;
  while (true) {
    CKPTREE_ASSIGN_OR_RETURN(const kv::ObjectPage page,
                             store.List(prefix, after, next_call()));
    for (const kv::ObjectInfo& info : page.objects) take(info);
    if (!page.more || page.objects.empty()) return absl::OkStatus();
    after = page.objects.back().name;
  }
}

absl::StatusOr<std::optional<schema::RemoteStore>> FindRemoteStore(
    kv::ObjectStore& store, const kv::Call& call) {
  const auto say = [&store](const absl::Status& why, std::string_view bytes) {
    std::string what;
    if (!bytes.starts_with(schema::kEnvelopeMagic)) {
      what = absl::StrFormat(
          "it begins with \"%s\", as none of ckptree does. Is that the object "
          "store, or does a proxy or a login page answer for it?",
          Beginning(bytes));
    } else {
      what = absl::StrFormat("%s.", why.message());
    }
    if (absl::IsDataLoss(why)) {
      absl::StrAppend(&what,
                      " Put the object back from a version or a copy of it; "
                      "where there is none delete it: the directory that "
                      "shipped there, or an open with this remote that has "
                      "take_over set, puts it back");
    }
    return absl::Status(
        why.code(), absl::StrFormat("%s: the object '%s': %s", store.address(),
                                    kRemoteStoreName, what));
  };
  return GetDecoded<schema::RemoteStore>(store, kRemoteStoreName, kFirstRead,
                                         schema::DecodeRemoteStore, say, call);
}

absl::StatusOr<std::optional<schema::RemoteCommit>> GetRemoteCommit(
    kv::ObjectStore& store, std::string_view uuid, std::uint64_t ordinal,
    const kv::Call& call) {
  const std::string name = RemoteCommitName(uuid, ordinal);
  const auto say = [&](const absl::Status& why, std::string_view /*bytes*/) {
    return absl::Status(
        why.code(), absl::StrFormat("commit %d in %s (%s): %s%s%s", ordinal,
                                    store.address(), name, why.message(),
                                    absl::IsDataLoss(why) ? ". " : "",
                                    absl::IsDataLoss(why) ? kMendChain : ""));
  };
  return GetDecoded<schema::RemoteCommit>(
      store, name, kv::ObjectStore::kMaxConditionalBytes,
      schema::DecodeRemoteCommit, say, call);
}

}  // namespace ckptree::internal
