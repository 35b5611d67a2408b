// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/preface.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/str_format.h"
#include "base/big_endian.h"
#include "base/digest.h"
#include "kv/file_system.h"

namespace ckptree::kv {
namespace {

constexpr std::string_view kPrefaceMagic = "CKPTJRNL";
constexpr std::string_view kTipMagic = "CKPTJTIP";
constexpr std::uint32_t kPrefaceLayout = 1;
constexpr std::size_t kEngineBytes = 31;
constexpr std::size_t kPrefaceCheckedBytes = 144;
constexpr std::size_t kTipCheckedBytes = 68;
constexpr std::size_t kNumberDigits = 10;

// The rest of a sector that is whole: its checksum, then zeros.
bool EndsWell(std::string_view sector, std::size_t checked) {
  constexpr std::size_t kChecksum = sizeof(std::uint64_t);
  return base::BigEndianReader(sector.substr(checked)).Read<std::uint64_t>() ==
             base::ChecksumOf(sector.substr(0, checked)) &&
         AllZero(sector.substr(checked + kChecksum));
}

}  // namespace

std::string EncodePreface(const Preface& preface) {
  std::string bytes;
  bytes.reserve(kPrefaceBytes);
  bytes.append(kPrefaceMagic);
  base::AppendBig(kPrefaceLayout, &bytes);
  base::AppendBig(static_cast<std::uint32_t>(preface.copy), &bytes);
  bytes.append(preface.uuid.begin(), preface.uuid.end());
  base::AppendBig(preface.file, &bytes);
  base::AppendBig(preface.session, &bytes);
  base::AppendBig(preface.incarnation, &bytes);
  base::AppendBig(preface.device, &bytes);
  base::AppendBig(preface.inode, &bytes);
  base::AppendBig(preface.version_ceiling, &bytes);
  base::AppendBig(preface.follows, &bytes);
  bytes.append(preface.follows_hash.view());
  base::AppendBig(static_cast<std::uint64_t>(preface.time_ns), &bytes);
  const std::string_view engine =
      std::string_view(preface.engine).substr(0, kEngineBytes);
  base::AppendBig(static_cast<std::uint8_t>(engine.size()), &bytes);
  bytes.append(engine);
  bytes.resize(kPrefaceCheckedBytes, '\0');
  base::AppendBig(base::ChecksumOf(bytes), &bytes);
  bytes.resize(kPrefaceBytes, '\0');
  return bytes;
}

std::optional<Preface> DecodePreface(std::string_view bytes) {
  if (bytes.size() < kPrefaceBytes || !bytes.starts_with(kPrefaceMagic)) {
    return std::nullopt;
  }
  bytes = bytes.substr(0, kPrefaceBytes);
  base::BigEndianReader reader(bytes);
  reader.Skip(kPrefaceMagic.size());
  if (reader.Read<std::uint32_t>() != kPrefaceLayout) return std::nullopt;
  const auto copy = reader.Read<std::uint32_t>();
  if (copy != static_cast<std::uint32_t>(Copy::kA) &&
      copy != static_cast<std::uint32_t>(Copy::kB)) {
    return std::nullopt;
  }
  Preface preface;
  preface.copy = static_cast<Copy>(copy);
  reader.ReadBytes(preface.uuid);
  preface.file = reader.Read<std::uint64_t>();
  preface.session = reader.Read<std::uint64_t>();
  preface.incarnation = reader.Read<std::uint64_t>();
  preface.device = reader.Read<std::uint64_t>();
  preface.inode = reader.Read<std::uint64_t>();
  preface.version_ceiling = reader.Read<std::uint64_t>();
  preface.follows = reader.Read<std::uint64_t>();
  reader.ReadBytes(preface.follows_hash.bytes);
  preface.time_ns = static_cast<std::int64_t>(reader.Read<std::uint64_t>());
  const std::size_t engine_bytes = reader.Read<std::uint8_t>();
  if (engine_bytes > kEngineBytes || !EndsWell(bytes, kPrefaceCheckedBytes)) {
    return std::nullopt;
  }
  preface.engine = bytes.substr(reader.position(), engine_bytes);
  return preface;
}

std::string EncodeTip(const TipNote& tip) {
  std::string bytes;
  bytes.reserve(kPrefaceBytes);
  bytes.append(kTipMagic);
  base::AppendBig(kPrefaceLayout, &bytes);
  bytes.append(tip.uuid.begin(), tip.uuid.end());
  base::AppendBig(tip.session, &bytes);
  base::AppendBig(tip.file, &bytes);
  base::AppendBig(tip.ordinal, &bytes);
  bytes.append(tip.hash.view());
  base::AppendBig(base::ChecksumOf(bytes), &bytes);
  bytes.resize(kPrefaceBytes, '\0');
  return bytes;
}

std::optional<TipNote> DecodeTip(std::string_view bytes) {
  if (bytes.size() != kPrefaceBytes || !bytes.starts_with(kTipMagic)) {
    return std::nullopt;
  }
  base::BigEndianReader reader(bytes);
  reader.Skip(kTipMagic.size());
  if (reader.Read<std::uint32_t>() != kPrefaceLayout) return std::nullopt;
  TipNote tip;
  reader.ReadBytes(tip.uuid);
  tip.session = reader.Read<std::uint64_t>();
  tip.file = reader.Read<std::uint64_t>();
  tip.ordinal = reader.Read<std::uint64_t>();
  reader.ReadBytes(tip.hash.bytes);
  if (!EndsWell(bytes, kTipCheckedBytes)) return std::nullopt;
  return tip;
}

std::string JournalFileName(Copy copy, std::uint64_t file) {
  return absl::StrFormat("%c-%0*d", static_cast<char>(copy),
                         static_cast<int>(kNumberDigits), file);
}

std::optional<JournalFileId> ParseJournalFileName(std::string_view name) {
  if (name.size() < 2 + kNumberDigits || name[1] != '-' ||
      (name[0] != 'a' && name[0] != 'b')) {
    return std::nullopt;
  }
  JournalFileId id;
  id.copy = static_cast<Copy>(name[0]);
  const char* const end = name.data() + name.size();
  const auto [ptr, error] = std::from_chars(name.data() + 2, end, id.file);
  if (error != std::errc() || ptr != end || id.file == 0 ||
      JournalFileName(id.copy, id.file) != name) {
    return std::nullopt;
  }
  return id;
}

}  // namespace ckptree::kv
