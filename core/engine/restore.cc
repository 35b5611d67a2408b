// SPDX-License-Identifier: Apache-2.0

// The public face of one step.

#include "ckptree/restore.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/array/chunk_grid.h"
#include "core/engine/step_reader.h"
#include "schema/keys.h"

namespace ckptree {

using internal::StepReader;

// ---- LeafValue ----

namespace {

absl::Status WrongKind(const LeafInfo& info, const char* wanted) {
  return absl::FailedPreconditionError(
      absl::StrFormat("%s is a %s, not a %s", info.name, info.kind, wanted));
}

}  // namespace

absl::StatusOr<bool> LeafValue::Bool() const {
  if (info.kind != "bool" || bytes.size() != 1) return WrongKind(info, "bool");
  return bytes[0] != std::byte{0};
}

absl::StatusOr<std::int64_t> LeafValue::Int() const {
  std::int64_t value = 0;
  if (info.kind != "int" || bytes.size() != sizeof(value)) {
    return WrongKind(info, "int");
  }
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

absl::StatusOr<double> LeafValue::Float() const {
  double value = 0;
  if (info.kind != "float" || bytes.size() != sizeof(value)) {
    return WrongKind(info, "float");
  }
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

absl::StatusOr<std::string> LeafValue::String() const {
  for (const char* kind : {"str", "bytes", "json", "proto", "file"}) {
    if (info.kind == kind) {
      return std::string(reinterpret_cast<const char*>(bytes.data()),
                         bytes.size());
    }
  }
  return WrongKind(info, "str");
}

// ---- LeafView ----

struct LeafView::Impl {
  std::vector<kv::Value> blocks;
  std::vector<std::vector<std::byte>> copies;
  std::vector<std::span<const std::byte>> pieces;
  bool zero_copy = true;
};

LeafView::LeafView(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LeafView::LeafView(LeafView&&) noexcept = default;
LeafView& LeafView::operator=(LeafView&&) noexcept = default;
LeafView::~LeafView() = default;

const std::vector<std::span<const std::byte>>& LeafView::pieces() const {
  return impl_->pieces;
}

bool LeafView::zero_copy() const { return impl_->zero_copy; }

bool IsStepGone(const absl::Status& status) {
  return internal::HasStepGone(status);
}

// ---- Step ----

Step::Step(std::unique_ptr<StepReader> reader) : reader_(std::move(reader)) {}
Step::Step(Step&&) noexcept = default;
Step& Step::operator=(Step&&) noexcept = default;
Step::~Step() = default;

std::int64_t Step::step() const { return reader_->info().step; }
const StepInfo& Step::info() const { return reader_->info(); }

absl::StatusOr<StepMetadata> Step::Metadata() const {
  return reader_->Metadata();
}

absl::StatusOr<std::vector<LeafInfo>> Step::Leaves(
    std::string_view glob) const {
  return reader_->Leaves(glob);
}

absl::StatusOr<LeafInfo> Step::Find(const Path& path) const {
  return reader_->Find(path);
}

absl::StatusOr<LeafDetail> Step::Detail(const Path& path) const {
  CKPTREE_ASSIGN_OR_RETURN(LeafInfo leaf, reader_->Find(path));
  std::vector<LeafInfo> leaves;
  leaves.push_back(std::move(leaf));
  CKPTREE_ASSIGN_OR_RETURN(std::vector<LeafDetail> details,
                           reader_->Details(leaves));
  return std::move(details.front());
}

absl::StatusOr<std::vector<LeafDetail>> Step::Details(
    const std::vector<LeafInfo>& leaves) const {
  return reader_->Details(leaves);
}

absl::Status Step::Read(const Path& path,
                        std::span<std::byte> destination) const {
  const ReadRequest request{path, std::nullopt, destination};
  return reader_->ReadMany(std::span(&request, 1));
}

absl::Status Step::Read(std::string_view path,
                        std::span<std::byte> destination) const {
  CKPTREE_ASSIGN_OR_RETURN(const Path parsed, Path::Parse(path));
  return Read(parsed, destination);
}

absl::Status Step::ReadBox(const Path& path, const BoxSpec& box,
                           std::span<std::byte> destination) const {
  const ReadRequest request{path, box, destination};
  return reader_->ReadMany(std::span(&request, 1));
}

absl::Status Step::ReadMany(std::span<const ReadRequest> requests) const {
  if (requests.empty()) return absl::OkStatus();
  return reader_->ReadMany(requests);
}

absl::StatusOr<LeafValue> Step::Value(const Path& path) const {
  return reader_->Value(path);
}

absl::StatusOr<LeafValue> Step::Value(std::string_view path) const {
  CKPTREE_ASSIGN_OR_RETURN(const Path parsed, Path::Parse(path));
  return Value(parsed);
}

absl::StatusOr<LeafView> Step::View(const Path& path) const {
  CKPTREE_ASSIGN_OR_RETURN(StepReader::Located located, reader_->Locate(path));
  auto impl = std::make_unique<LeafView::Impl>();
  const auto copy = [&impl](std::string_view bytes) {
    const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
    // Over-allocated by a cache line, so that the copy is aligned as well.
    auto& buffer = impl->copies.emplace_back(bytes.size() + 64);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.data());
    std::byte* aligned = buffer.data() + (64 - address % 64) % 64;
    std::memcpy(aligned, begin, bytes.size());
    impl->pieces.emplace_back(aligned, bytes.size());
    impl->zero_copy = false;
  };
  for (const schema::LeafRecord& record : located.records) {
    if (record.is_inline) {
      copy(record.inline_value);
      continue;
    }
    for (const schema::ChunkRef& ref : record.chunks) {
      absl::StatusOr<kv::Value> block =
          reader_->engine().database().View(ref.place, internal::ChunkKey(ref));
      absl::StatusOr<std::string_view> bytes =
          block.ok() ? internal::CheckedSlice(ref, block->view())
                     : absl::StatusOr<std::string_view>(block.status());
      if (!bytes.ok()) {
        absl::StatusOr<kv::Value> found = internal::SearchBlock(
            reader_->engine().database(), ref, bytes.status());
        if (found.ok()) {
          CKPTREE_ASSIGN_OR_RETURN(const std::string_view whole,
                                   internal::CheckedSlice(ref, found->view()));
          copy(whole);
          continue;
        }
        const auto code = absl::IsNotFound(bytes.status())
                              ? absl::StatusCode::kDataLoss
                              : bytes.status().code();
        return reader_->Annotate(absl::Status(
            code, absl::StrFormat(
                      "%s (%s): %s", path.Text(),
                      schema::DescribeKey(ref.place, internal::ChunkKey(ref)),
                      bytes.status().message())));
      }
      const auto* begin = reinterpret_cast<const std::byte*>(bytes->data());
      if (reinterpret_cast<std::uintptr_t>(begin) % 64 != 0) {
        copy(*bytes);
        continue;
      }
      impl->pieces.emplace_back(begin, bytes->size());
      impl->blocks.push_back(*std::move(block));
    }
  }
  return LeafView(std::move(impl));
}

absl::Status Step::Expect(const std::vector<LeafInfo>& expected) const {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> actual,
                           reader_->Leaves(""));
  std::map<std::string_view, const LeafInfo*> stored;
  for (const LeafInfo& leaf : actual) stored[leaf.name] = &leaf;
  const auto describe = [](const LeafInfo& leaf) {
    if (leaf.kind != "array") return leaf.kind;
    return std::string(Name(leaf.dtype)) + ShapeText(leaf.shape);
  };
  std::string differences;
  for (const LeafInfo& leaf : expected) {
    const std::string name = leaf.name.empty() ? leaf.path.Text() : leaf.name;
    const auto it = stored.find(name);
    if (it == stored.end()) {
      absl::StrAppendFormat(&differences, "\n  %s: missing in the step", name);
      continue;
    }
    const LeafInfo& found = *it->second;
    const bool tie = found.tie_to.has_value();
    if (!tie && (found.kind != leaf.kind || found.dtype != leaf.dtype ||
                 found.packed != leaf.packed || found.shape != leaf.shape)) {
      absl::StrAppendFormat(&differences, "\n  %s: saved as %s, expected %s",
                            name, describe(found), describe(leaf));
    }
    stored.erase(it);
  }
  for (const auto& [name, leaf] : stored) {
    // Nodes may be left out: what matters of them follows from the leaves.
    if (!leaf->is_leaf && !leaf->tie_to.has_value()) continue;
    absl::StrAppendFormat(&differences, "\n  %s: not expected", name);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "step %d is not what was expected:%s", step(), differences));
}

}  // namespace ckptree
