// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
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
#include "schema/checkpoint.pb.h"
#include "schema/column.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/keys.h"
#include "schema/limits.h"
#include "schema/segment_record.h"

namespace ckptree::schema {
namespace {

using base::kDigestBytes;

absl::Status TableFault(std::string_view what) {
  return Fault(RecordKind::kSegmentTable, what);
}

base::Digest DigestAt(const std::string& digests, int i) {
  return base::Digest::FromBytes(std::string_view(digests).substr(
      kDigestBytes * static_cast<std::size_t>(i), kDigestBytes));
}

// Reads the slices of a table one after the other.
class SliceReader {
 public:
  explicit SliceReader(const pb::SegmentTable& in)
      : in_(in), count_(in.digests().size() / kDigestBytes) {}

  const char* ColumnsFault() const {
    const auto count = static_cast<int>(count_);
    if (in_.digests().size() % kDigestBytes != 0 ||
        in_.paths().size() != in_.digests().size() ||
        !ColumnFits(in_.length(), count) || !ColumnFits(in_.offset(), count) ||
        !ColumnFits(in_.rank(), count)) {
      return "columns of unequal length";
    }
    return nullptr;
  }

  std::size_t left() const { return count_ - static_cast<std::size_t>(at_); }
  bool done() const { return left() == 0 && dim_ == in_.dims_size(); }

  // REQUIRES: left() > 0.
  const char* Read(TableSlice* slice) {
    const int i = at_++;
    slice->path = DigestAt(in_.paths(), i);
    slice->digest = DigestAt(in_.digests(), i);
    slice->length = ColumnAt(in_.length(), i, 0u);
    slice->offset = ColumnAt(in_.offset(), i, 0u);
    const std::uint32_t rank = ColumnAt(in_.rank(), i, 0u);
    // A record of a leaf, which has no box, is longer than any chunk may be
    // where the leaf has very many.
    const std::int64_t most = rank == 0 ? kMaxRecordBytes : kMaxChunkBytes;
    if (slice->length == 0 ||
        std::int64_t{slice->offset} + slice->length > most) {
      return "a slice has lengths that cannot be";
    }
    if (rank > static_cast<std::uint32_t>(kMaxDims) ||
        2 * static_cast<int>(rank) > in_.dims_size() - dim_) {
      return "more dimensions than there are";
    }
    for (auto* dims : {&slice->start, &slice->shape}) {
      const auto begin = in_.dims().begin() + dim_;
      dims->assign(begin, begin + static_cast<int>(rank));
      dim_ += static_cast<int>(rank);
      for (const std::int64_t dim : *dims) {
        if (dim < 0 || dim > kMaxArrayBytes) return "a dimension out of range";
      }
    }
    if (!ElementCount(slice->shape).has_value()) return "too many elements";
    return nullptr;
  }

 private:
  const pb::SegmentTable& in_;
  std::size_t count_;
  int at_ = 0;
  int dim_ = 0;
};

}  // namespace

void SegmentTableBuilder::Add(std::uint32_t n,
                              std::span<const TableSlice> slices) {
  n_.push_back(n - last_);
  last_ = n;
  slices_.push_back(static_cast<std::uint32_t>(slices.size()));
  for (const TableSlice& slice : slices) {
    const std::string_view path = slice.path.view();
    const std::string_view digest = slice.digest.view();
    paths_.insert(paths_.end(), path.begin(), path.end());
    digests_.insert(digests_.end(), digest.begin(), digest.end());
    length_.push_back(slice.length);
    offset_.push_back(slice.offset);
    rank_.push_back(static_cast<std::uint32_t>(slice.shape.size()));
    for (const auto* dims : {&slice.start, &slice.shape}) {
      for (const std::int64_t dim : *dims) {
        dims_.push_back(static_cast<std::uint64_t>(dim));
      }
    }
  }
}

std::string SegmentTableBuilder::Encode() && {
  pb::SegmentTable out;
  // Each column goes when it was copied.
  const auto same = [](std::uint32_t value) { return value; };
  FillColumn(std::exchange(slices_, {}), same, 1u, out.mutable_slices());
  FillColumn(std::exchange(length_, {}), same, 0u, out.mutable_length());
  FillColumn(std::exchange(offset_, {}), same, 0u, out.mutable_offset());
  FillColumn(std::exchange(rank_, {}), same, 0u, out.mutable_rank());
  const auto append = [](const auto& values, auto* column) {
    column->Add(values.begin(), values.end());
  };
  append(std::exchange(n_, {}), out.mutable_n());
  append(std::exchange(dims_, {}), out.mutable_dims());
  const auto assign = [](const auto& bytes, std::string* column) {
    column->assign(bytes.begin(), bytes.end());
  };
  assign(std::exchange(paths_, {}), out.mutable_paths());
  assign(std::exchange(digests_, {}), out.mutable_digests());
  return EnvelopeOf(RecordKind::kSegmentTable, out);
}

std::string EncodeSegmentTable(const SegmentTable& table) {
  SegmentTableBuilder builder;
  for (const TableEntry& entry : table.entries) {
    builder.Add(entry.n, entry.slices);
  }
  return std::move(builder).Encode();
}

absl::StatusOr<SegmentTable> DecodeSegmentTable(std::string_view bytes) {
  pb::SegmentTable in;
  if (absl::Status status =
          ParseEnvelope(RecordKind::kSegmentTable, bytes, &in);
      !status.ok()) {
    return status;
  }
  const int count = in.n_size();
  if (!ColumnFits(in.slices(), count)) {
    return TableFault("columns of unequal length");
  }
  SliceReader slices(in);
  if (const char* fault = slices.ColumnsFault()) return TableFault(fault);
  SegmentTable table;
  table.entries.resize(static_cast<std::size_t>(count));
  std::uint64_t n = 0;
  for (int i = 0; i < count; ++i) {
    TableEntry& entry = table.entries[static_cast<std::size_t>(i)];
    if (i > 0 && in.n(i) == 0) return TableFault("entries do not ascend");
    n += in.n(i);
    entry.n = static_cast<std::uint32_t>(n);
    if (n > 0xffffffff || SequenceOf(entry.n) == kHeaderSequence ||
        SequenceOf(entry.n) > kMaxSequence) {
      return TableFault("an entry has a number that is not of a block");
    }
    const std::size_t of_entry = ColumnAt(in.slices(), i, 1u);
    if (of_entry == 0 || of_entry > slices.left()) {
      return TableFault(absl::StrFormat("entry %d has %d slices of %d", i,
                                        of_entry, slices.left()));
    }
    entry.slices.resize(of_entry);
    for (TableSlice& slice : entry.slices) {
      if (const char* fault = slices.Read(&slice)) {
        return TableFault(absl::StrFormat("entry %d: %s", i, fault));
      }
    }
  }
  if (!slices.done()) {
    return TableFault("columns are longer than the entries need");
  }
  return table;
}

}  // namespace ckptree::schema
