// SPDX-License-Identifier: Apache-2.0

// Fuzzes roots and pages of trees, and what is built from a page's entries.

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "ckptree/path.h"
#include "schema/envelope.h"
#include "schema/tree.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/stored_record.h"

namespace ckptree::fuzz {
namespace {

void FuzzPage(const StoredRecord& stored) {
  RequireRoundTrip(stored.bytes, schema::EncodeTreePage,
                   schema::DecodeTreePage);
  const absl::StatusOr<schema::TreePage> page =
      schema::DecodeTreePage(stored.bytes);
  if (!page.ok()) return;
  for (const schema::TreeEntry& entry : page->entries) {
    Require(Path::Decode(entry.path).ok(), "an entry has a path");
  }
  const auto tree = schema::EncodeTree(page->entries);
  if (!tree.ok()) return RequireInvalid(tree.status());
  Require(tree->digest == base::DigestOf(tree->root), "a tree's name");
  const auto root = schema::DecodeTreeRoot(tree->root);
  Require(root.ok() && root->pages.size() == 1 && tree->pages.size() == 1,
          "the entries of a page make a tree of one page");
  Require(root->entry_count == page->entries.size(), "with all of them");
  const auto again = schema::DecodeTreePage(tree->pages[0].second);
  Require(again.ok() && again->entries == page->entries, "as they were");
}

void FuzzTree(const StoredRecord& stored) {
  using schema::RecordKind;
  switch (static_cast<RecordKind>(stored.kind)) {
    case RecordKind::kTreeRoot:
      return RequireRoundTrip(stored.bytes, schema::EncodeTreeRoot,
                              schema::DecodeTreeRoot);
    case RecordKind::kTreePage:
      return FuzzPage(stored);
    default:
      return;
  }
}

}  // namespace
}  // namespace ckptree::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  ckptree::fuzz::FuzzTree(
      ckptree::fuzz::RecordOf(ckptree::fuzz::TextOf(data, size)));
  return 0;
}
