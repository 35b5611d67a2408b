// SPDX-License-Identifier: Apache-2.0

#include "schema/tree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "ckptree/dtype.h"
#include "ckptree/path.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/limits.h"
#include "schema/path_encoding.h"
#include "schema/tree_entry.h"

namespace ckptree::schema {
namespace {

using base::kDigestBytes;

// A path as an error names it.
std::string TextOf(std::string_view path) {
  const absl::StatusOr<Path> decoded = Path::Decode(path);
  if (!decoded.ok()) return "(no path)";
  return decoded->empty() ? "(the root)" : decoded->Text();
}

absl::Status EntryError(const NamedEntry& entry, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrFormat("tree: %s: %s", TextOf(entry.path), what));
}

bool PathLess(const NamedEntry& entry, std::string_view path) {
  return entry.path < path;
}

absl::Status CheckEntries(std::span<const NamedEntry> entries) {
  if (static_cast<std::int64_t>(entries.size()) > kMaxTreeEntries) {
    return absl::InvalidArgumentError(
        absl::StrFormat("tree: %d entries, at most %d are allowed",
                        entries.size(), kMaxTreeEntries));
  }
  std::int64_t leaves = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const NamedEntry& entry = entries[i];
    if (const char* fault = ReadPathBytes(entry.path, nullptr)) {
      return EntryError(entry, absl::StrFormat("entry %d: %s", i, fault));
    }
    // Neighbours often have one entry between them.
    if (i == 0 || entry.entry != entries[i - 1].entry) {
      if (const char* fault = EntryFault(*entry.entry)) {
        return EntryError(entry, fault);
      }
    }
    if (IsLeaf(entry.entry->kind)) ++leaves;
    if (i == 0) continue;
    const NamedEntry& before = entries[i - 1];
    const int order = before.path.compare(entry.path);
    if (order >= 0) {
      return EntryError(
          entry, order == 0
                     ? std::string("it is there twice")
                     : absl::StrFormat("it stands after %s, which is greater",
                                       TextOf(before.path)));
    }
    // What is below an entry follows it at once.
    const EntryKind kind = before.entry->kind;
    const bool is_none = kind == EntryKind::kNone;
    if ((IsLeaf(kind) || kind == EntryKind::kTie || is_none) &&
        entry.path.starts_with(before.path)) {
      // A reader of the tree would get None there, and nothing of this.
      return EntryError(
          entry,
          absl::StrFormat(
              "it is below %s, which is %s", TextOf(before.path),
              is_none ? "None" : absl::StrFormat("a leaf (%s)", Name(kind))));
    }
  }
  if (leaves > kMaxLeaves) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "tree: %d leaves, at most %d are allowed", leaves, kMaxLeaves));
  }
  for (const NamedEntry& entry : entries) {
    if (entry.entry->kind != EntryKind::kTie) continue;
    const std::string& tie_to = entry.entry->tie_to;
    const auto target = std::lower_bound(entries.begin(), entries.end(),
                                         std::string_view(tie_to), PathLess);
    if (target == entries.end() || target->path != tie_to ||
        !IsLeaf(target->entry->kind)) {
      return EntryError(entry,
                        absl::StrFormat("it is tied to %s, which is no leaf",
                                        TextOf(tie_to)));
    }
  }
  return absl::OkStatus();
}

absl::Status RootFault(std::string_view what) {
  return Fault(RecordKind::kTreeRoot, what);
}

}  // namespace

const char* EntryFault(const TreeEntry& entry) {
  if (Name(entry.kind) == "unknown") return "an unknown kind";
  if (entry.kind == EntryKind::kArray) {
    if (!IsKnown(entry.dtype)) return "an unknown element type";
    if (entry.packed && !IsSubByte(entry.dtype)) {
      return "packed, but its elements have whole bytes";
    }
    if (!ArrayBytes(entry.dtype, entry.packed, entry.shape).has_value()) {
      return "its shape breaks a limit";
    }
    for (const std::int64_t dim : entry.shape) {
      if (dim > kMaxArrayBytes) return "its shape breaks a limit";
    }
  } else if (entry.dtype != DType::kNone || entry.packed ||
             !entry.shape.empty()) {
    return "fields of an array, which it is not";
  }
  if (entry.kind != EntryKind::kTie && !entry.tie_to.empty()) {
    return "tied, but no tie";
  }
  if (entry.kind == EntryKind::kTie && entry.tie_to.empty()) {
    return "a tie without a target";
  }
  if (!entry.tag.empty() &&
      (entry.kind == EntryKind::kTie || entry.kind == EntryKind::kNone)) {
    return "a tag on what can have none";
  }
  if (static_cast<std::int64_t>(entry.tag.size()) > kMaxEntryTagBytes) {
    return "its tag is too long";
  }
  return nullptr;
}

std::string EncodeTreeRoot(const TreeRoot& root) {
  pb::TreeRoot out;
  for (std::size_t i = 0; i < root.pages.size(); ++i) {
    const TreePageRef& page = root.pages[i];
    out.mutable_digests()->append(page.digest.view());
    *out.add_first_path() = page.first_path;
    out.add_entries(page.entry_count);
    const std::uint32_t next = i + 1 < root.pages.size()
                                   ? root.pages[i + 1].first_ordinal
                                   : root.leaf_count;
    out.add_leaves(next - page.first_ordinal);
  }
  return EnvelopeOf(RecordKind::kTreeRoot, out);
}

absl::StatusOr<TreeRoot> DecodeTreeRoot(std::string_view bytes) {
  pb::TreeRoot in;
  if (absl::Status status = ParseEnvelope(RecordKind::kTreeRoot, bytes, &in);
      !status.ok()) {
    return status;
  }
  const int count = in.first_path_size();
  if (in.digests().size() != kDigestBytes * static_cast<std::size_t>(count) ||
      in.entries_size() != count || in.leaves_size() != count) {
    return RootFault("columns of unequal length");
  }
  TreeRoot root;
  root.pages.resize(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    TreePageRef& page = root.pages[static_cast<std::size_t>(i)];
    page.digest = base::Digest::FromBytes(
        std::string_view(in.digests())
            .substr(kDigestBytes * static_cast<std::size_t>(i), kDigestBytes));
    page.first_path = in.first_path(i);
    page.first_ordinal = root.leaf_count;
    page.entry_count = in.entries(i);
    if (page.entry_count == 0 ||
        page.entry_count > static_cast<std::uint32_t>(kLeavesPerTreePage) ||
        in.leaves(i) > page.entry_count) {
      return RootFault(absl::StrFormat("page %d has %d leaves in %d entries", i,
                                       in.leaves(i), page.entry_count));
    }
    if (const char* fault = ReadPathBytes(page.first_path, nullptr)) {
      return RootFault(
          absl::StrFormat("page %d: its first path: %s", i, fault));
    }
    if (i > 0 && !(in.first_path(i - 1) < page.first_path)) {
      return RootFault(absl::StrFormat("page %d does not ascend", i));
    }
    root.leaf_count += in.leaves(i);
    root.entry_count += page.entry_count;
    if (root.leaf_count > kMaxLeaves || root.entry_count > kMaxTreeEntries) {
      return RootFault("more entries than a tree may have");
    }
  }
  return root;
}

absl::StatusOr<EncodedTree> EncodeTree(const std::vector<TreeEntry>& entries) {
  std::vector<NamedEntry> all;
  all.reserve(entries.size());
  for (const TreeEntry& entry : entries) all.push_back({entry.path, &entry});
  return EncodeTreeOf(all);
}

absl::StatusOr<EncodedTree> EncodeTreeOf(std::span<const NamedEntry> entries) {
  if (absl::Status status = CheckEntries(entries); !status.ok()) return status;
  EncodedTree tree;
  TreeRoot root;
  for (std::size_t begin = 0; begin < entries.size();
       begin += static_cast<std::size_t>(kLeavesPerTreePage)) {
    const std::size_t end = std::min(
        entries.size(), begin + static_cast<std::size_t>(kLeavesPerTreePage));
    const auto page = entries.subspan(begin, end - begin);
    std::string bytes = EncodePageOf(page);
    const base::Digest digest = base::DigestOf(bytes);
    root.pages.push_back({digest, std::string(page.front().path),
                          root.leaf_count,
                          static_cast<std::uint32_t>(page.size())});
    for (const NamedEntry& entry : page) {
      if (IsLeaf(entry.entry->kind)) ++root.leaf_count;
    }
    root.entry_count += static_cast<std::uint32_t>(end - begin);
    tree.pages.emplace_back(digest, std::move(bytes));
  }
  tree.root = EncodeTreeRoot(root);
  tree.digest = base::DigestOf(tree.root);
  return tree;
}

absl::StatusOr<std::vector<TreeEntry>> DecodeTree(const EncodedTree& tree) {
  const absl::StatusOr<TreeRoot> root = DecodeTreeRoot(tree.root);
  if (!root.ok()) return root.status();
  std::map<base::Digest, std::string_view> pages;
  for (const auto& [digest, page] : tree.pages) pages[digest] = page;
  std::vector<TreeEntry> entries;
  entries.reserve(root->entry_count);
  for (std::size_t i = 0; i < root->pages.size(); ++i) {
    const TreePageRef& ref = root->pages[i];
    const auto page = pages.find(ref.digest);
    if (page == pages.end()) {
      return RootFault(absl::StrFormat("page %d is missing", i));
    }
    absl::StatusOr<TreePage> decoded = DecodeTreePage(page->second);
    if (!decoded.ok()) return decoded.status();
    if (decoded->entries.size() != ref.entry_count ||
        decoded->entries.front().path != ref.first_path) {
      return RootFault(absl::StrFormat("page %d is another one", i));
    }
    std::move(decoded->entries.begin(), decoded->entries.end(),
              std::back_inserter(entries));
  }
  return entries;
}

}  // namespace ckptree::schema
