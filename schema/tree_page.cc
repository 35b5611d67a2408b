// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "ckptree/dtype.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/limits.h"
#include "schema/path_encoding.h"
#include "schema/tree.h"
#include "schema/tree_entry.h"

namespace ckptree::schema {
namespace {

constexpr unsigned char kPackedBit = 0x80;

absl::Status PageFault(std::string_view what) {
  return Fault(RecordKind::kTreePage, what);
}

std::size_t SharedLength(std::string_view a, std::string_view b) {
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < most && a[i] == b[i]) ++i;
  return i;
}

// Reads the columns of a page from their front.
class PageReader {
 public:
  explicit PageReader(const pb::TreePage& in) : in_(in) {}

  absl::StatusOr<TreePage> Run() {
    const std::size_t count = in_.kinds().size();
    if (count == 0 || count > static_cast<std::size_t>(kLeavesPerTreePage)) {
      return PageFault(absl::StrFormat("%d entries", count));
    }
    if (static_cast<std::size_t>(in_.shared_size()) != count ||
        static_cast<std::size_t>(in_.suffix_length_size()) != count ||
        in_.dtypes().size() != in_.ranks().size() ||
        in_.tagged_size() != in_.tag_size()) {
      return PageFault("columns of unequal length");
    }
    TreePage page;
    page.entries.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      at_ = static_cast<int>(i);
      TreeEntry& entry = page.entries[i];
      const char* fault = ReadPath(
          i == 0 ? std::string_view() : page.entries[i - 1].path, &entry.path);
      if (fault == nullptr) fault = ReadFields(&entry);
      if (fault != nullptr) {
        return PageFault(absl::StrFormat("entry %d: %s", i, fault));
      }
    }
    if (suffix_at_ != in_.suffixes().size() || array_ != in_.dtypes().size() ||
        dim_ != in_.dims_size() || tie_ != in_.tie_to_size() ||
        tagged_ != in_.tagged_size()) {
      return PageFault("columns are longer than the entries need");
    }
    return page;
  }

 private:
  const char* ReadPath(std::string_view before, std::string* path) {
    const std::size_t shared = in_.shared(at_);
    const std::size_t suffix = in_.suffix_length(at_);
    const auto most = static_cast<std::size_t>(kMaxPathBytes);
    if (shared > before.size() || suffix > most || shared + suffix > most ||
        suffix > in_.suffixes().size() - suffix_at_) {
      return "the path has lengths out of range";
    }
    const std::string_view tail =
        std::string_view(in_.suffixes()).substr(suffix_at_, suffix);
    suffix_at_ += suffix;
    // Ascending, and no byte shared that is not said to be.
    if (at_ > 0 &&
        (tail.empty() || (shared < before.size() &&
                          static_cast<unsigned char>(tail[0]) <=
                              static_cast<unsigned char>(before[shared])))) {
      return "the path does not ascend";
    }
    path->reserve(shared + suffix);
    path->append(before.substr(0, shared));
    path->append(tail);
    return ReadPathBytes(*path, nullptr);
  }

  const char* ReadFields(TreeEntry* entry) {
    entry->kind =
        static_cast<EntryKind>(in_.kinds()[static_cast<std::size_t>(at_)]);
    if (entry->kind == EntryKind::kArray) {
      if (const char* fault = ReadArray(entry)) return fault;
    } else if (entry->kind == EntryKind::kTie) {
      if (tie_ == in_.tie_to_size()) return "a tie without a target";
      entry->tie_to = in_.tie_to(tie_++);
      if (ReadPathBytes(entry->tie_to, nullptr) != nullptr) {
        return "the target of a tie is no path";
      }
    }
    if (tagged_ < in_.tagged_size() &&
        in_.tagged(tagged_) == static_cast<std::uint32_t>(at_)) {
      const std::uint32_t tag = in_.tag(tagged_++);
      if (tag >= static_cast<std::uint32_t>(in_.tag_table_size())) {
        return "a tag that is not in the table";
      }
      entry->tag = in_.tag_table(static_cast<int>(tag));
      if (entry->tag.empty()) return "an empty tag";
    }
    return EntryFault(*entry);
  }

  const char* ReadArray(TreeEntry* entry) {
    if (array_ == in_.dtypes().size()) return "an array without a type";
    const auto dtype = static_cast<unsigned char>(in_.dtypes()[array_]);
    const int rank = static_cast<unsigned char>(in_.ranks()[array_]);
    ++array_;
    entry->packed = (dtype & kPackedBit) != 0;
    entry->dtype =
        static_cast<DType>(static_cast<unsigned char>(dtype & ~kPackedBit));
    if (rank > kMaxDims || rank > in_.dims_size() - dim_) {
      return "more dimensions than there are";
    }
    const auto begin = in_.dims().begin() + dim_;
    entry->shape.assign(begin, begin + rank);
    dim_ += rank;
    return nullptr;
  }

  const pb::TreePage& in_;
  int at_ = 0;
  std::size_t suffix_at_ = 0;
  std::size_t array_ = 0;
  int dim_ = 0;
  int tie_ = 0;
  int tagged_ = 0;
};

}  // namespace

std::string EncodeTreePage(const TreePage& page) {
  std::vector<NamedEntry> entries;
  entries.reserve(page.entries.size());
  for (const TreeEntry& entry : page.entries) {
    entries.push_back({entry.path, &entry});
  }
  return EncodePageOf(entries);
}

std::string EncodePageOf(std::span<const NamedEntry> entries) {
  pb::TreePage out;
  std::unordered_map<std::string_view, std::uint32_t> tags;
  std::string_view before;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [path, of] = entries[i];
    const TreeEntry& entry = *of;
    const std::size_t shared = SharedLength(before, path);
    out.add_shared(static_cast<std::uint32_t>(shared));
    out.add_suffix_length(static_cast<std::uint32_t>(path.size() - shared));
    out.mutable_suffixes()->append(path.substr(shared));
    before = path;
    out.mutable_kinds()->push_back(static_cast<char>(entry.kind));
    if (entry.kind == EntryKind::kArray) {
      const auto dtype = static_cast<unsigned char>(entry.dtype);
      out.mutable_dtypes()->push_back(
          static_cast<char>(entry.packed ? dtype | kPackedBit : dtype));
      out.mutable_ranks()->push_back(static_cast<char>(entry.shape.size()));
      for (const std::int64_t dim : entry.shape) {
        out.add_dims(static_cast<std::uint64_t>(dim));
      }
    }
    if (entry.kind == EntryKind::kTie) *out.add_tie_to() = entry.tie_to;
    if (!entry.tag.empty()) {
      const auto [tag, added] =
          tags.try_emplace(entry.tag, static_cast<std::uint32_t>(tags.size()));
      if (added) *out.add_tag_table() = entry.tag;
      out.add_tagged(static_cast<std::uint32_t>(i));
      out.add_tag(tag->second);
    }
  }
  return EnvelopeOf(RecordKind::kTreePage, out);
}

absl::StatusOr<TreePage> DecodeTreePage(std::string_view bytes) {
  pb::TreePage message;
  if (absl::Status status =
          ParseEnvelope(RecordKind::kTreePage, bytes, &message);
      !status.ok()) {
    return status;
  }
  return PageReader(message).Run();
}

}  // namespace ckptree::schema
