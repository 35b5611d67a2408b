// SPDX-License-Identifier: Apache-2.0

// Named objects beyond one disk: a folder, an S3 bucket, a pool of Ceph.

#ifndef CKPTREE_KV_OBJECT_STORE_H_
#define CKPTREE_KV_OBJECT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv/monotonic.h"

namespace ckptree::kv {

// How long a call may take, and how to end it early: from another thread, by
// the source of `cancelled`. A call that ends so returns kDeadlineExceeded or
// kCancelled within a second, but for a disk that does not answer.
struct Call {
  absl::Time deadline;  // Of MonotonicNow().
  std::stop_token cancelled;
  // What a request failed with that is sent again; by the thread of the call,
  // or another. Null: nobody wants to know.
  std::function<void(const absl::Status& why)> heard = {};

  static Call Within(absl::Duration timeout, std::stop_token cancelled = {}) {
    return {MonotonicNow() + timeout, std::move(cancelled), nullptr};
  }
};

enum class PutOutcome : std::uint8_t {
  kCreated,  // It was absent, and has these bytes now.
  kExists,   // Somebody was first; that may have been this very request.
  // No answer came, or one that leaves it open. The request may be carried out
  // at any later moment.
  kUnknown,
};
struct PutAnswer {
  PutOutcome outcome;
  absl::Status reason;  // Why it is unknown; else OK.
};

struct ObjectInfo {
  std::string name;
  std::uint64_t size = 0;  // Bytes.
  absl::Time modified;     // By the clock of the store; of List and Head.
  // What PutIfAbsent was given, where the store keeps it; of Head.
  std::optional<std::string> write_id;
};
struct ObjectPage {
  std::vector<ObjectInfo> objects;  // By name, ascending bytes.
  // There may be more after the last one.
  bool more = false;
};

// A Put that was not finished; it takes space, and no List shows it.
struct Upload {
  std::string name;
  std::string id;
};

// Bytes that are read in pieces, some of them again where a request is
// repeated. Thread-safe.
class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  virtual std::uint64_t size() const = 0;
  // Fills `into` from `offset` on. REQUIRES: it ends within size().
  virtual absl::Status Read(std::uint64_t offset,
                            std::span<std::byte> into) const = 0;
};

// Calls block, and each has a deadline. Names are 1 to 200 letters, digits, and
// any of "._-/": parts between slashes, none of which is empty or begins with
// a dot; all else is kInvalidArgument. No name is another's with a slash after
// it.
//
// Errors name the object and the host, never a secret, and say what to do:
// kNotFound where what must be there is absent, kPermissionDenied,
// kUnauthenticated (credentials that are missing, expired or wrong, a clock
// that is wrong), kFailedPrecondition (no such bucket or pool),
// kResourceExhausted (full), kUnavailable after all retries, kUnknown.
//
// Thread-safe; many calls at once are how a store is read and written fast.
// Dead in a forked child: calls there return kFailedPrecondition.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // The address it was opened by, as PlainAddress() has it.
  virtual const std::string& address() const = 0;

  // What ends a request that begins now with `call`: a store whose user may
  // have enough of it adds a token where `call` has none. A wait between two
  // requests has to end by it, too; it is asked for anew before each wait.
  virtual Call Ending(const Call& call) const { return call; }

  // A reader says what it found wrong with one answer, where the next one was
  // whole: who looks after this store may want to know.
  virtual void NoteDamagedAnswer(const std::string& /*what*/) {}

  // Creates the object unless it is there: of all who try, one wins. An error
  // means that nothing was created, nor will be. Sent once: what repeats it is
  // PutSettled(). `write_id` is 32 hexadecimal digits, drawn at random for
  // these bytes, which hold it, too. At most kMaxConditionalBytes.
  virtual absl::StatusOr<PutAnswer> PutIfAbsent(const std::string& name,
                                                std::string_view bytes,
                                                const std::string& write_id,
                                                const Call& call) = 0;
  static constexpr std::size_t kMaxConditionalBytes = std::size_t{64} << 20;

  // Writes all of `source`; visible as a whole, once this returns OK. After an
  // error it may be visible, now or later. Replaces what has the name.
  virtual absl::Status Put(const std::string& name, const ObjectSource& source,
                           const Call& call) = 0;

  // Reads from `offset` on; returns how many bytes, fewer than `into` holds
  // only at the end of the object. kNotFound where it is absent.
  virtual absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                               std::uint64_t offset,
                                               std::span<std::byte> into,
                                               const Call& call) = 0;

  // nullopt: absent.
  virtual absl::StatusOr<std::optional<ObjectInfo>> Head(
      const std::string& name, const Call& call) = 0;

  // The objects whose names begin with `prefix` and sort after `after`. A
  // prefix may be empty, or end anywhere in a name.
  virtual absl::StatusOr<ObjectPage> List(const std::string& prefix,
                                          const std::string& after,
                                          const Call& call) = 0;

  // Absent ones are no error. After an error some may be gone.
  virtual absl::Status Delete(std::span<const std::string> names,
                              const Call& call) = 0;

  // Unfinished Puts of names that begin with `prefix`; those that are under
  // way, too.
  virtual absl::StatusOr<std::vector<Upload>> ListUploads(
      const std::string& prefix, const Call& call) = 0;
  // Frees its space; one that is gone is no error.
  virtual absl::Status AbortUpload(const Upload& upload, const Call& call) = 0;
};

struct ObjectStoreOptions {
  // Of S3: where it is if that is not the environment's AWS_ENDPOINT_URL_S3,
  // AWS_ENDPOINT_URL, or Amazon's of the region; like https://host:port. Of gs:
  // else CKPTREE_GS_ENDPOINT.
  std::string endpoint;
  // Else AWS_REGION, AWS_DEFAULT_REGION, the profile's; of gs "auto".
  std::string region;
  // Plain http to other hosts than this one; else refused.
  bool allow_http = false;
  // Of RADOS: the cluster's ceph.conf; else CEPH_CONF, /etc/ceph/ceph.conf.
  std::string ceph_conf;
};

// Opens file:///folder, s3://bucket/prefix or rados://pool/namespace; and
// gs://bucket/prefix where an endpoint is named for it. What has no such form
// is kInvalidArgument, also an address that could hold a secret; a kind that
// this build is without, kUnimplemented. Nothing is asked of S3 yet; a cluster
// of Ceph is connected to.
absl::StatusOr<std::unique_ptr<ObjectStore>> OpenObjectStore(
    const std::string& address, const ObjectStoreOptions& options,
    const Call& call);

// The one text of all that name the same: without slashes at its end, nor, of a
// folder, several in a row. What is no address stays as it is.
std::string PlainAddress(const std::string& address);

// An address as messages may show it: `***` in place of what stands before the
// `@` of its authority.
std::string ShownAddress(std::string_view address);

// Whether this build has the kind of store: "file", "s3", "gs", "rados".
bool HasObjectStore(std::string_view scheme);

// The endpoint that Google Cloud Storage has for clients of S3, as the
// environment names it (CKPTREE_GS_ENDPOINT); empty: no gs:// is taken.
std::string GoogleEndpoint();

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECT_STORE_H_
