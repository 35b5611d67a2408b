// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/rados_store.h"

#include <rados/librados.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
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
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "kv/conditional_put.h"
#include "kv/files/errno_status.h"
#include "kv/monotonic.h"
#include "kv/object_store.h"
#include "kv/objects/names.h"
#include "kv/objects/text.h"
#include "kv/objects/wait.h"

namespace ckptree::kv {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t{64} << 20;
// "SIZE ID": of the first piece.
constexpr char kAbout[] = "ckptree";
// By default librados waits for ever. A shorter deadline ends a call before.
constexpr char kTimeoutSeconds[] = "30";

// Of the whole object.
struct About {
  std::uint64_t size = 0;
  std::string id;
  absl::Time modified;
};

std::string TextOf(const About& about) {
  return absl::StrCat(about.size, " ", about.id);
}

std::string PieceName(const std::string& name, const std::string& id,
                      std::uint64_t number) {
  if (number == 0) return name;
  return absl::StrCat(name, ":", id, ":", number);
}

std::uint64_t PieceCount(std::uint64_t size) {
  return std::max<std::uint64_t>(1, (size + kPiece - 1) / kPiece);
}

absl::Status RadosError(int result, const std::string& what) {
  switch (-result) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(absl::StrCat(
          what,
          ": the pool, or the cluster, is full; delete steps, or add "
          "storage"));
    case EPERM:
    case EACCES:
      return absl::PermissionDeniedError(absl::StrCat(
          what, ": Ceph does not let this user do that; see its caps"));
    case ETIMEDOUT:
    case ESHUTDOWN:
    case ENOTCONN:
      return absl::UnavailableError(
          absl::StrCat(what, ": the cluster does not answer; see ceph -s"));
    default:
      return ErrnoStatus(-result, what);
  }
}

// A missing file of the configuration is not a missing store.
absl::Status Unconfigured(int result, const std::string& what) {
  if (result != -ENOENT) return RadosError(result, what);
  return absl::FailedPreconditionError(absl::StrCat(
      what,
      ": a file is missing, the ceph.conf, or the keyring that it names for "
      "this user; name others by CEPH_CONF and CEPH_ARGS (--id, --keyring)"));
}

// Answered by what refused it; all else leaves open what becomes of a write.
bool CertainlyUndone(int result) {
  return result == -ENOSPC || result == -EDQUOT || result == -EPERM ||
         result == -EACCES || result == -EINVAL || result == -EOPNOTSUPP;
}

using Completion = std::unique_ptr<void, void (*)(void*)>;

// That an operation is over; told by a thread of librados, and waited for by
// the clock that only goes forward.
class Ending {
 public:
  void Tell() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  // `end`: of MonotonicNow(). Returns whether it was told.
  bool WaitUntil(absl::Time end) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(
        lock,
        std::chrono::steady_clock::time_point(
            absl::ToChronoNanoseconds(end - absl::UnixEpoch())),
        [this] { return over_; });
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};

// Starts an operation and waits for its end, or for that of the call; what it
// reads into is no longer touched after that.
int Run(rados_ioctx_t io, const Call& call,
        const std::function<int(rados_completion_t)>& start) {
  const auto notify = [](rados_completion_t, void* user) {
    static_cast<Ending*>(user)->Tell();
  };
  Ending ending;
  rados_completion_t raw = nullptr;
  base::Require(rados_aio_create_completion2(&ending, notify, &raw) == 0,
                "a completion of librados");
  const Completion completion(raw, rados_aio_release);
  if (const int failed = start(raw); failed != 0) return failed;
  {
    const std::stop_callback on_stop(call.cancelled,
                                     [io, raw] { rados_aio_cancel(io, raw); });
    if (!ending.WaitUntil(call.deadline)) rados_aio_cancel(io, raw);
    ending.Wait();
  }
  return rados_aio_get_return_value(raw);
}

class RadosStore : public ObjectStore {
 public:
  RadosStore(std::string address, rados_t cluster, rados_ioctx_t io)
      : address_(std::move(address)),
        process_(getpid()),
        cluster_(cluster),
        io_(io) {}

  ~RadosStore() override {
    // Its threads stayed with the parent: a child would wait for them for ever.
    if (getpid() != process_) return;
    rados_ioctx_destroy(io_);
    rados_shutdown(cluster_);
  }

  const std::string& address() const override { return address_; }

  absl::StatusOr<PutAnswer> PutIfAbsent(const std::string& name,
                                        std::string_view bytes,
                                        const std::string& write_id,
                                        const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckConditionalPut(name, bytes, write_id));
    const std::string what = What("creating", name);
    CKPTREE_RETURN_IF_ERROR(Begin(call, what));
    const int result = Write(name, bytes, About{bytes.size(), write_id, {}},
                             /*exclusive=*/true, call);
    if (result == 0) return PutAnswer{PutOutcome::kCreated, absl::OkStatus()};
    if (result == -EEXIST) {
      return PutAnswer{PutOutcome::kExists, absl::OkStatus()};
    }
    absl::Status error = Error(result, call, what);
    if (CertainlyUndone(result)) return error;
    return PutAnswer{PutOutcome::kUnknown, std::move(error)};
  }

  absl::Status Put(const std::string& name, const ObjectSource& source,
                   const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    const std::string what = What("writing", name);
    CKPTREE_RETURN_IF_ERROR(Begin(call, what));
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<About> before,
                             AboutOf(name, call));
    const About about{source.size(), NewWriteId(), {}};
    std::string bytes;
    // The first piece makes the others visible.
    for (std::uint64_t i = PieceCount(about.size); i-- > 0;) {
      bytes.resize(
          static_cast<std::size_t>(std::min(kPiece, about.size - i * kPiece)));
      CKPTREE_RETURN_IF_ERROR(
          source.Read(i * kPiece, std::as_writable_bytes(std::span(bytes))));
      CKPTREE_RETURN_IF_ERROR(CheckCall(call, what));
      const int result = Write(PieceName(name, about.id, i), bytes,
                               i == 0 ? std::optional(about) : std::nullopt,
                               /*exclusive=*/false, call);
      if (result != 0) return Error(result, call, what);
    }
    if (!before.has_value()) return absl::OkStatus();
    // Where that fails they are seen by ListUploads.
    RemovePieces(name, *before, call).IgnoreError();
    return absl::OkStatus();
  }

  absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                       std::uint64_t offset,
                                       std::span<std::byte> into,
                                       const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    const std::string what = What("reading", name);
    CKPTREE_RETURN_IF_ERROR(Begin(call, what));
    // One request does where all of it is in the first piece.
    const std::span<std::byte> first =
        offset < kPiece
            ? into.first(static_cast<std::size_t>(
                  std::min<std::uint64_t>(into.size(), kPiece - offset)))
            : into.first(0);
    std::size_t have = 0;
    CKPTREE_ASSIGN_OR_RETURN(
        const std::optional<About> about,
        ReadFirst(name, std::min(offset, kPiece), first, &have, call));
    if (!about.has_value()) {
      return absl::NotFoundError(absl::StrCat(what, ": it is not there"));
    }
    const std::uint64_t end = std::min(
        about->size, offset > about->size ? offset : offset + into.size());
    const std::size_t wanted =
        end > offset ? static_cast<std::size_t>(end - offset) : 0;
    while (have < wanted) {
      const std::uint64_t at = offset + have;
      const std::uint64_t number = at / kPiece;
      if (number == 0) break;  // The first piece is shorter than it says.
      const std::span<std::byte> some =
          into.subspan(have, static_cast<std::size_t>(std::min<std::uint64_t>(
                                 wanted - have, (number + 1) * kPiece - at)));
      const std::string piece = PieceName(name, about->id, number);
      const int got = Run(io_, call, [&](rados_completion_t completion) {
        return rados_aio_read(io_, piece.c_str(), completion,
                              reinterpret_cast<char*>(some.data()), some.size(),
                              at % kPiece);
      });
      if (got < 0 && got != -ENOENT) return Error(got, call, what);
      if (got != static_cast<int>(some.size())) break;
      have += some.size();
    }
    if (have >= wanted) return wanted;
    return absl::DataLossError(
        absl::StrCat(what,
                     ": a piece of it is gone or too short; it was replaced or "
                     "deleted in the meantime, or is damaged"));
  }

  absl::StatusOr<std::optional<ObjectInfo>> Head(const std::string& name,
                                                 const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
    CKPTREE_RETURN_IF_ERROR(Begin(call, What("asking of", name)));
    CKPTREE_ASSIGN_OR_RETURN(std::optional<About> about, AboutOf(name, call));
    if (!about.has_value()) return std::nullopt;
    return ObjectInfo{name, about->size, about->modified, std::move(about->id)};
  }

  absl::StatusOr<ObjectPage> List(const std::string& prefix,
                                  const std::string& after,
                                  const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectPrefix(prefix));
    CKPTREE_ASSIGN_OR_RETURN(std::vector<std::string> names,
                             Names(prefix, call));
    std::erase_if(names, [](const std::string& name) {
      return name.find(':') != std::string::npos;
    });
    return PageOf(names, prefix, after,
                  [&](const std::string& name) { return Head(name, call); });
  }

  absl::Status Delete(std::span<const std::string> names,
                      const Call& call) override {
    for (const std::string& name : names) {
      CKPTREE_RETURN_IF_ERROR(CheckObjectName(name));
      CKPTREE_RETURN_IF_ERROR(Begin(call, What("deleting", name)));
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<About> about,
                               AboutOf(name, call));
      CKPTREE_RETURN_IF_ERROR(Remove(name, call));
      if (about.has_value()) {
        CKPTREE_RETURN_IF_ERROR(RemovePieces(name, *about, call));
      }
    }
    return absl::OkStatus();
  }

  // Pieces of an id that the first one does not have.
  absl::StatusOr<std::vector<Upload>> ListUploads(const std::string& prefix,
                                                  const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectPrefix(prefix));
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             Names(prefix, call));
    std::vector<Upload> uploads;
    for (const std::string& piece : names) {
      const std::vector<std::string> parts = absl::StrSplit(piece, ':');
      if (parts.size() != 3 ||
          (!uploads.empty() && uploads.back().name == parts[0] &&
           uploads.back().id == parts[1])) {
        continue;
      }
      CKPTREE_ASSIGN_OR_RETURN(const std::optional<About> about,
                               AboutOf(parts[0], call));
      if (!about.has_value() || about->id != parts[1]) {
        uploads.push_back({parts[0], parts[1]});
      }
    }
    return uploads;
  }

  absl::Status AbortUpload(const Upload& upload, const Call& call) override {
    CKPTREE_RETURN_IF_ERROR(CheckObjectName(upload.name));
    CKPTREE_RETURN_IF_ERROR(CheckWriteId(upload.id));
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<About> about,
                             AboutOf(upload.name, call));
    if (about.has_value() && about->id == upload.id) {
      return absl::OkStatus();  // It was finished: it is an object now.
    }
    const std::string begin = absl::StrCat(upload.name, ":", upload.id, ":");
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             Names(upload.name, call));
    for (const std::string& piece : names) {
      if (!piece.starts_with(begin)) continue;
      CKPTREE_RETURN_IF_ERROR(Remove(piece, call));
    }
    return absl::OkStatus();
  }

 private:
  std::string What(const std::string& doing, const std::string& name) const {
    return absl::StrCat(doing, " ", name, " in ", address_);
  }

  absl::Status Begin(const Call& call, const std::string& what) const {
    if (getpid() != process_) {
      return absl::FailedPreconditionError(
          "an object store is dead in a forked child: open it there");
    }
    return CheckCall(call, what);
  }

  // The call's end, if that is what ended the operation.
  static absl::Status Error(int result, const Call& call,
                            const std::string& what) {
    if (result == -ECANCELED || result == -ETIMEDOUT) {
      CKPTREE_RETURN_IF_ERROR(CheckCall(call, what));
    }
    return RadosError(result, what);
  }

  // All of one piece, and in the same operation what it says of the object.
  int Write(const std::string& name, std::string_view bytes,
            const std::optional<About>& about, bool exclusive,
            const Call& call) {
    const std::unique_ptr<void, void (*)(void*)> op(rados_create_write_op(),
                                                    rados_release_write_op);
    if (exclusive) {
      rados_write_op_create(op.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
    }
    rados_write_op_write_full(op.get(), bytes.data(), bytes.size());
    const std::string text = about.has_value() ? TextOf(*about) : "";
    if (about.has_value()) {
      rados_write_op_setxattr(op.get(), kAbout, text.data(), text.size());
    }
    return Run(io_, call, [&](rados_completion_t completion) {
      // A full pool says so; without this it would be waited for.
      return rados_aio_write_op_operate(op.get(), io_, completion, name.c_str(),
                                        nullptr, LIBRADOS_OPERATION_FULL_TRY);
    });
  }

  absl::Status Remove(const std::string& name, const Call& call) {
    const std::unique_ptr<void, void (*)(void*)> op(rados_create_write_op(),
                                                    rados_release_write_op);
    rados_write_op_remove(op.get());
    const int result = Run(io_, call, [&](rados_completion_t completion) {
      return rados_aio_write_op_operate(op.get(), io_, completion, name.c_str(),
                                        nullptr, LIBRADOS_OPERATION_FULL_TRY);
    });
    if (result == 0 || result == -ENOENT) return absl::OkStatus();
    return Error(result, call, What("deleting", name));
  }

  absl::Status RemovePieces(const std::string& name, const About& about,
                            const Call& call) {
    for (std::uint64_t i = 1; i < PieceCount(about.size); ++i) {
      CKPTREE_RETURN_IF_ERROR(Remove(PieceName(name, about.id, i), call));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<About>> AboutOf(const std::string& name,
                                               const Call& call) {
    std::size_t have = 0;
    return ReadFirst(name, 0, {}, &have, call);
  }

  // What the first piece says of the object, and some of its bytes.
  absl::StatusOr<std::optional<About>> ReadFirst(const std::string& name,
                                                 std::uint64_t offset,
                                                 std::span<std::byte> into,
                                                 std::size_t* have,
                                                 const Call& call) {
    const std::string what = What("reading", name);
    const std::unique_ptr<void, void (*)(void*)> op(rados_create_read_op(),
                                                    rados_release_read_op);
    std::uint64_t size = 0;
    std::time_t modified = 0;
    int stat_result = 0, attributes_result = 0, read_result = 0;
    rados_xattrs_iter_t attributes = nullptr;
    rados_read_op_stat(op.get(), &size, &modified, &stat_result);
    rados_read_op_getxattrs(op.get(), &attributes, &attributes_result);
    if (!into.empty()) {
      rados_read_op_read(op.get(), offset, into.size(),
                         reinterpret_cast<char*>(into.data()), have,
                         &read_result);
    }
    const int result = Run(io_, call, [&](rados_completion_t completion) {
      return rados_aio_read_op_operate(op.get(), io_, completion, name.c_str(),
                                       LIBRADOS_OPERATION_NOFLAG);
    });
    const Completion end(attributes, [](void* iterator) {
      if (iterator != nullptr) rados_getxattrs_end(iterator);
    });
    if (result == -ENOENT) return std::nullopt;
    if (result < 0) return Error(result, call, what);
    const char *key = nullptr, *value = nullptr;
    std::size_t length = 0;
    while (attributes != nullptr &&
           rados_getxattrs_next(attributes, &key, &value, &length) == 0 &&
           key != nullptr) {
      if (std::string_view(key) != kAbout) continue;
      const std::vector<std::string> words =
          absl::StrSplit(std::string(value, length), ' ');
      About about;
      if (words.size() == 2 && ParseNumber(words[0], &about.size) &&
          CheckWriteId(words[1]).ok() && size == std::min(about.size, kPiece)) {
        about.id = words[1];
        about.modified = absl::FromTimeT(modified);
        return about;
      }
    }
    return absl::DataLossError(absl::StrCat(
        what, ": it was not written by this engine, or is damaged"));
  }

  // All names that begin with `prefix`, also of pieces, in order.
  absl::StatusOr<std::vector<std::string>> Names(const std::string& prefix,
                                                 const Call& call) {
    const std::string what = absl::StrCat("listing ", address_);
    CKPTREE_RETURN_IF_ERROR(Begin(call, what));
    rados_list_ctx_t list = nullptr;
    if (const int failed = rados_nobjects_list_open(io_, &list); failed != 0) {
      return RadosError(failed, what);
    }
    const Completion close(list, rados_nobjects_list_close);
    std::vector<std::string> names;
    const char *name = nullptr, *locator = nullptr, *space = nullptr;
    std::size_t name_size = 0, locator_size = 0, space_size = 0;
    while (true) {
      CKPTREE_RETURN_IF_ERROR(CheckCall(call, what));
      const int result =
          rados_nobjects_list_next2(list, &name, &locator, &space, &name_size,
                                    &locator_size, &space_size);
      if (result == -ENOENT) break;
      if (result != 0) return RadosError(result, what);
      const std::string_view found(name, name_size);
      // What is not of this engine is passed over.
      if (found.starts_with(prefix) &&
          CheckObjectName(found.substr(0, found.find(':'))).ok()) {
        names.emplace_back(found);
      }
    }
    std::ranges::sort(names);
    return names;
  }

  const std::string address_;
  const pid_t process_;
  const rados_t cluster_;
  const rados_ioctx_t io_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenRadosStore(
    const std::string& address, const ObjectAddress& parsed,
    const ObjectStoreOptions& options, const Call& call) {
  CKPTREE_RETURN_IF_ERROR(CheckCall(call, absl::StrCat("opening ", address)));
  rados_t cluster = nullptr;
  if (const int failed = rados_create(&cluster, nullptr); failed != 0) {
    return RadosError(failed, absl::StrCat("opening ", address));
  }
  std::unique_ptr<void, void (*)(void*)> owner(cluster, rados_shutdown);
  const char* conf =
      options.ceph_conf.empty() ? nullptr : options.ceph_conf.c_str();
  if (const int failed = rados_conf_read_file(cluster, conf); failed != 0) {
    return Unconfigured(
        failed,
        absl::StrCat("reading ",
                     conf != nullptr ? conf : "the configuration of Ceph",
                     " for ", address));
  }
  rados_conf_parse_env(cluster, nullptr);
  const std::string patience = absl::StrCat(std::max<std::int64_t>(
      1, absl::ToInt64Seconds(call.deadline - MonotonicNow())));
  for (const auto& [name, value] :
       {std::pair<const char*, const char*>{"rados_osd_op_timeout",
                                            kTimeoutSeconds},
        {"rados_mon_op_timeout", kTimeoutSeconds},
        {"client_mount_timeout", patience.c_str()}}) {
    if (const int failed = rados_conf_set(cluster, name, value); failed != 0) {
      return RadosError(failed, absl::StrCat("setting ", name));
    }
  }
  if (const int failed = rados_connect(cluster); failed != 0) {
    return Unconfigured(failed, absl::StrCat("connecting to ", address));
  }
  rados_ioctx_t io = nullptr;
  if (const int failed = rados_ioctx_create(cluster, parsed.place.c_str(), &io);
      failed != 0) {
    if (failed != -ENOENT) {
      return RadosError(failed, absl::StrCat("opening ", address));
    }
    return absl::FailedPreconditionError(absl::StrCat(
        address, ": there is no pool '", parsed.place,
        "'; make it first (ceph osd pool create), or correct the address"));
  }
  rados_ioctx_set_namespace(io, parsed.path.c_str());
  owner.release();
  return std::make_unique<RadosStore>(address, cluster, io);
}

}  // namespace ckptree::kv
