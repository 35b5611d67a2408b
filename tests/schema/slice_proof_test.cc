// SPDX-License-Identifier: Apache-2.0

#include "schema/slice_proof.h"

#include <set>
#include <string>

#include "base/digest.h"
#include "gtest/gtest.h"

namespace ckptree::schema {
namespace {

TEST(SliceProof, IsTheDigestThatTheFormatSays) {
  const ProvedLeaf leaf = {.version = 0x0102030405060708,
                           .part = 0x090a,
                           .ordinal = 0x0b0c0d0e,
                           .tree = base::DigestOf("tree"),
                           .step = base::DigestOf("step")};
  const base::Digest value = base::DigestOf("value");
  std::string bytes("v\1\2\3\4\5\6\7\10\11\12\13\14\15\16");
  bytes += leaf.tree.view();
  bytes += leaf.step.view();
  bytes += value.view();
  ASSERT_EQ(bytes.size(), 63u);
  EXPECT_EQ(SliceProof(leaf, value), base::DigestOf(bytes));
}

TEST(SliceProof, IsOfAllThatItSays) {
  ProvedLeaf leaf;
  leaf.version = 7;
  leaf.ordinal = 3;
  const base::Digest value = base::DigestOf("value");
  std::set<base::Digest> proofs = {SliceProof(leaf, value)};
  ProvedLeaf other = leaf;
  other.version = 8;
  proofs.insert(SliceProof(other, value));
  other = leaf;
  other.part = 1;
  proofs.insert(SliceProof(other, value));
  other = leaf;
  other.ordinal = 4;
  proofs.insert(SliceProof(other, value));
  other = leaf;
  other.tree = base::DigestOf("tree");
  proofs.insert(SliceProof(other, value));
  other = leaf;
  other.step = base::DigestOf("step");
  proofs.insert(SliceProof(other, value));
  proofs.insert(SliceProof(leaf, base::DigestOf("another")));
  EXPECT_EQ(proofs.size(), 7u);
}

}  // namespace
}  // namespace ckptree::schema
