// HEAD, as it stands on disk. All integers are big-endian.
//
// The file has kHeadSlots slots of kHeadSlotBytes each; the slot with write
// count w stands at slot w mod kHeadSlots. A slot that was never written is all
// zeros. A slot:
//
//   offset  bytes  field
//        0      8  "CKPTHEAD"
//        8      4  layout, 1
//       12      8  write count
//       20      8  ordinal
//       28     16  hash of the commit record's stored bytes
//       44     16  uuid
//       60      8  incarnation
//       68      8  version ceiling
//       76      8  device
//       84      8  inode
//       92      8  XXH3-64 of the 92 bytes before
//      100   3996  zeros

#include "kv/head.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "kv/file_system.h"
#include "kv/hash.h"
#include "kv/options.h"
#include "kv/status.h"
#include "kv/status_macros.h"
#include "rocksdb/file_system.h"

namespace ckptree::kv {
namespace {

constexpr std::string_view kMagic = "CKPTHEAD";
constexpr std::uint32_t kLayout = 1;
constexpr std::size_t kFieldBytes = 92;
constexpr std::size_t kFileBytes = kHeadSlotBytes * kHeadSlots;
constexpr const char* kHeadName = "/HEAD";
constexpr const char* kTemporaryName = "/HEAD.tmp";

std::size_t OffsetOf(std::uint64_t write_count) {
  return static_cast<std::size_t>(write_count % kHeadSlots) * kHeadSlotBytes;
}

}  // namespace

std::string EncodeHeadSlot(const HeadSlot& slot) {
  std::string bytes;
  bytes.reserve(kHeadSlotBytes);
  bytes.append(kMagic);
  AppendBigEndian(kLayout, &bytes);
  AppendBigEndian(slot.write_count, &bytes);
  AppendBigEndian(slot.ordinal, &bytes);
  bytes.append(slot.hash.begin(), slot.hash.end());
  bytes.append(slot.uuid.begin(), slot.uuid.end());
  AppendBigEndian(slot.incarnation, &bytes);
  AppendBigEndian(slot.version_ceiling, &bytes);
  AppendBigEndian(slot.device, &bytes);
  AppendBigEndian(slot.inode, &bytes);
  AppendBigEndian(Checksum(bytes), &bytes);
  bytes.resize(kHeadSlotBytes, '\0');
  return bytes;
}

std::optional<HeadSlot> DecodeHeadSlot(std::string_view bytes) {
  if (bytes.size() != kHeadSlotBytes || !bytes.starts_with(kMagic)) {
    return std::nullopt;
  }
  if (bytes.find_first_not_of('\0', kFieldBytes + sizeof(std::uint64_t)) !=
      std::string_view::npos) {
    return std::nullopt;
  }
  BigEndianReader reader(bytes);
  reader.Skip(kMagic.size());
  if (reader.Read<std::uint32_t>() != kLayout) return std::nullopt;
  HeadSlot slot;
  slot.write_count = reader.Read<std::uint64_t>();
  slot.ordinal = reader.Read<std::uint64_t>();
  reader.ReadBytes(slot.hash);
  reader.ReadBytes(slot.uuid);
  slot.incarnation = reader.Read<std::uint64_t>();
  slot.version_ceiling = reader.Read<std::uint64_t>();
  slot.device = reader.Read<std::uint64_t>();
  slot.inode = reader.Read<std::uint64_t>();
  if (reader.Read<std::uint64_t>() != Checksum(bytes.substr(0, kFieldBytes))) {
    return std::nullopt;
  }
  return slot;
}

std::optional<HeadSlot> NewestSlot(std::string_view file) {
  std::optional<HeadSlot> newest;
  for (std::size_t i = 0; i < kHeadSlots; ++i) {
    if (file.size() < (i + 1) * kHeadSlotBytes) break;
    const std::optional<HeadSlot> slot =
        DecodeHeadSlot(file.substr(i * kHeadSlotBytes, kHeadSlotBytes));
    if (slot.has_value() && (!newest.has_value() ||
                             slot->write_count > newest->write_count)) {
      newest = slot;
    }
  }
  return newest;
}

struct HeadFile::Impl {
  std::unique_ptr<rocksdb::FSRandomRWFile> file;
  std::string path;
};

absl::StatusOr<std::unique_ptr<HeadFile>> HeadFile::Create(
    const Options& options, const std::string& directory, HeadSlot slot) {
  slot.write_count = 1;
  std::string content(kFileBytes, '\0');
  content.replace(OffsetOf(slot.write_count), kHeadSlotBytes,
                  EncodeHeadSlot(slot));
  const std::string temporary = directory + kTemporaryName;
  CKPTREE_RETURN_IF_ERROR(WriteFile(options, temporary, content));
  CKPTREE_RETURN_IF_ERROR(
      RenameFile(options, temporary, directory + kHeadName));
  CKPTREE_RETURN_IF_ERROR(SyncDirectory(options, directory));
  return Open(options, directory);
}

absl::StatusOr<std::unique_ptr<HeadFile>> HeadFile::Open(
    const Options& options, const std::string& directory) {
  CKPTREE_ASSIGN_OR_RETURN(const HeadSlot slot, Read(options, directory));
  auto impl = std::make_unique<Impl>();
  impl->path = directory + kHeadName;
  const rocksdb::IOStatus status = FileSystemOf(options)->NewRandomRWFile(
      impl->path, rocksdb::FileOptions(), &impl->file, nullptr);
  if (!status.ok()) {
    return ToStatus(status, absl::StrFormat("opening %s", impl->path));
  }
  return std::unique_ptr<HeadFile>(new HeadFile(std::move(impl), slot));
}

absl::StatusOr<HeadSlot> HeadFile::Read(const Options& options,
                                        const std::string& directory) {
  const std::string path = directory + kHeadName;
  CKPTREE_ASSIGN_OR_RETURN(const std::string content,
                           ReadFile(options, path, kFileBytes));
  const std::optional<HeadSlot> slot = NewestSlot(content);
  if (!slot.has_value()) {
    return absl::DataLossError(
        absl::StrFormat("%s: none of its slots is whole", path));
  }
  return *slot;
}

HeadFile::HeadFile(std::unique_ptr<Impl> impl, HeadSlot slot)
    : impl_(std::move(impl)), slot_(slot) {}

HeadFile::~HeadFile() {
  if (impl_->file != nullptr) {
    impl_->file->Close(rocksdb::IOOptions(), nullptr).PermitUncheckedError();
  }
}

absl::Status HeadFile::Write(HeadSlot slot) {
  slot.write_count = slot_.write_count + 1;
  const std::string bytes = EncodeHeadSlot(slot);
  rocksdb::IOStatus status =
      impl_->file->Write(OffsetOf(slot.write_count), bytes,
                         rocksdb::IOOptions(), nullptr);
  if (status.ok()) status = impl_->file->Sync(rocksdb::IOOptions(), nullptr);
  if (!status.ok()) {
    return ToStatus(status, absl::StrFormat("writing %s", impl_->path));
  }
  slot_ = slot;
  return absl::OkStatus();
}

}  // namespace ckptree::kv
