// SPDX-License-Identifier: Apache-2.0

#include "core/repair/step_copy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "core/array/chunk_grid.h"
#include "core/engine/step_builder.h"
#include "core/engine/step_reader.h"
#include "core/process/out_of_reach.h"
#include "core/save/save.h"
#include "core/version/step_health.h"
#include "schema/limits.h"

namespace ckptree::internal {

struct StepOriginPeer {
  static void TakeAsStored(StepBuilder* builder) {
    builder->impl_->content.TakeAsStored();
  }
  static void Set(StepBuilder* builder, SaveOrigin origin) {
    const std::shared_ptr<Save>& save = builder->impl_->save;
    if (save != nullptr) save->origin = std::move(origin);
  }
};

namespace {

using Buffer = std::vector<std::byte>;

struct ItemName {
  std::string_view name;
  ItemType type;
};
constexpr ItemName kItems[] = {
    {"json", ItemType::kJson},
    {"proto", ItemType::kProto},
    {"files", ItemType::kFiles},
};

// A box of an array that is read again when the save asks for it, and kept
// until all of it was taken. Thread-safe.
class BoxOnDemand {
 public:
  BoxOnDemand(const Step& step, Path path, BoxSpec box, std::size_t bytes)
      : step_(step),
        path_(std::move(path)),
        box_(std::move(box)),
        bytes_(bytes) {}

  absl::Status Copy(std::uint64_t offset, std::span<std::byte> destination) {
    // Held over I/O: all that ask at once want the same read.
    const absl::MutexLock lock(&mu_);
    if (buffer_.empty()) {
      buffer_.resize(bytes_);
      if (absl::Status read = step_.ReadBox(path_, box_, buffer_); !read.ok()) {
        failed_ = read;
        return read;
      }
    }
    std::memcpy(destination.data(), buffer_.data() + offset,
                destination.size());
    taken_ += destination.size();
    if (taken_ >= bytes_) {
      taken_ = 0;
      buffer_ = Buffer();
    }
    return absl::OkStatus();
  }

  // Why it could not be read again; OK: it could.
  absl::Status failed() const {
    const absl::MutexLock lock(&mu_);
    return failed_;
  }

 private:
  const Step& step_;
  const Path path_;
  const BoxSpec box_;
  const std::size_t bytes_;
  mutable absl::Mutex mu_;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  Buffer buffer_ ABSL_GUARDED_BY(mu_);
  std::size_t taken_ ABSL_GUARDED_BY(mu_) = 0;
};

std::string ReasonOf(const absl::Status& status) {
  return std::string(status.message());
}

// `text` cut to `most` bytes at the end of a character.
std::string CutText(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return std::string(text.substr(0, end));
}

// Confined to one thread.
class StepCopier {
 public:
  StepCopier(const Step& from, StepBuilder builder,
             const StepCopyOptions& options)
      : from_(from), builder_(std::move(builder)), options_(options) {
    StepOriginPeer::TakeAsStored(&builder_);
    result_.branch = from.info().branch;
    result_.step = from.step();
  }

  absl::StatusOr<RecoveredStep> Run() {
    absl::StatusOr<std::vector<LeafInfo>> leaves = from_.Leaves();
    if (!leaves.ok()) return NotSaved(ReasonOf(leaves.status()));
    for (const LeafInfo& leaf : *leaves) {
      if (options_.cancelled()) return absl::CancelledError("interrupted");
      if (IsOutOfReach()) break;
      if (leaf.is_leaf()) {
        AddLeaf(leaf);
      } else if (!leaf.tie_to.has_value()) {
        AddNode(leaf);
      }
    }
    if (IsOutOfReach() && absl::IsCancelled(*options_.out_of_reach)) {
      return *options_.out_of_reach;
    }
    for (const LeafInfo& leaf : *leaves) {
      if (leaf.tie_to.has_value()) AddTie(leaf);
    }
    if (!options_.whole && result_.leaves_saved == 0 &&
        result_.leaves_lost > 0) {
      return NotSaved("none of its leaves can be read");
    }
    AddWhatIsSaid();
    if (options_.whole && !result_.lost.empty()) {
      const LostLeaf& first = result_.lost.front();
      return NotSaved(first.name + ": " + first.why);
    }
    if (absl::Status status = builder_.status(); !status.ok()) {
      return NotSaved(ReasonOf(status));
    }
    return Commit();
  }

 private:
  RecoveredStep NotSaved(std::string why) {
    result_.saved = false;
    result_.why = std::move(why);
    result_.leaves_lost = std::max(result_.leaves_lost + result_.leaves_saved,
                                   from_.info().leaf_count);
    result_.leaves_saved = 0;
    result_.bytes = 0;
    return std::move(result_);
  }

  // Nothing more of it is asked for.
  bool IsOutOfReach() const {
    return options_.out_of_reach != nullptr && !options_.out_of_reach->ok();
  }
  void NoteReach(const absl::Status& status) {
    if (options_.out_of_reach != nullptr && OutOfReach(status).has_value()) {
      options_.out_of_reach->Update(status);
    }
  }

  void Lose(const LeafInfo& leaf, const absl::Status& status) {
    NoteReach(status);
    ++result_.leaves_lost;
    std::string why = ReasonOf(status);
    // The result names both already.
    for (const std::string& known :
         {absl::StrFormat("step %s: ", StepText(result_.branch, result_.step)),
          leaf.name + ": ", leaf.name + ", "}) {
      if (why.starts_with(known)) why.erase(0, known.size());
    }
    result_.lost.push_back({leaf.name, std::move(why)});
    lost_.insert(leaf.path.Encode());
  }

  void AddLeaf(const LeafInfo& leaf) {
    const auto added =
        leaf.dtype == DType::kNone ? AddValue(leaf) : AddArray(leaf);
    if (!added.ok()) return Lose(leaf, added.status());
    ++result_.leaves_saved;
    result_.bytes += *added;
    options_.on_read(*added);
  }

  // The bytes of the value.
  absl::StatusOr<std::uint64_t> AddValue(const LeafInfo& leaf) {
    CKPTREE_ASSIGN_OR_RETURN(const LeafValue value, from_.Value(leaf.path));
    const EntryKind kind = leaf.kind;
    const Path& path = leaf.path;
    if (kind == EntryKind::kBool) {
      CKPTREE_ASSIGN_OR_RETURN(const bool truth, value.Bool());
      builder_.PutBool(path, truth);
    } else if (kind == EntryKind::kInt) {
      CKPTREE_ASSIGN_OR_RETURN(const std::int64_t number, value.Int());
      builder_.PutInt(path, number);
    } else if (kind == EntryKind::kFloat) {
      CKPTREE_ASSIGN_OR_RETURN(const double number, value.Float());
      builder_.PutFloat(path, number);
    } else if (kind == EntryKind::kComplex) {
      std::array<double, 2> number{};
      if (value.bytes.size() != sizeof(number)) {
        return absl::DataLossError("a complex number of another size");
      }
      std::memcpy(number.data(), value.bytes.data(), sizeof(number));
      builder_.PutComplex(path, number[0], number[1]);
    } else {
      CKPTREE_ASSIGN_OR_RETURN(std::string text, value.String());
      if (kind == EntryKind::kStr) {
        builder_.PutString(path, std::move(text));
      } else if (kind == EntryKind::kBytes) {
        builder_.PutBytes(path, std::move(text));
      } else if (kind == EntryKind::kJson) {
        builder_.PutJson(path, std::move(text));
      } else if (kind == EntryKind::kProto) {
        builder_.PutProto(path, leaf.tag, std::move(text));
      } else {
        builder_.PutFile(path, std::move(text));
      }
    }
    return value.bytes.size();
  }

  // Every box of an array, or none: an array of which a part is lost is lost.
  absl::StatusOr<std::uint64_t> AddArray(const LeafInfo& leaf) {
    CKPTREE_ASSIGN_OR_RETURN(const LeafDetail detail, from_.Detail(leaf.path));
    // Ranks may have had nothing of it. A box without elements would clash
    // with one that is all of the array.
    std::vector<std::pair<BoxSpec, Shape>> boxes;  // With the chunks' shapes.
    for (std::size_t i = 0; i < detail.boxes.size(); ++i) {
      if (ElementCount(detail.boxes[i].shape) == 0) continue;
      boxes.emplace_back(detail.boxes[i], ChunkShapeOf(detail, i));
    }
    if (boxes.empty()) {
      boxes.emplace_back(BoxSpec{Shape(leaf.shape.size(), 0), leaf.shape},
                         detail.boxes.empty() ? detail.chunk_shape : Shape());
    }
    std::vector<Tensor> tensors;
    std::uint64_t total = 0;
    for (const auto& [box, chunk_shape] : boxes) {
      const auto bytes = ArrayBytes(leaf.dtype, leaf.packed, box.shape);
      if (!bytes.has_value()) return absl::DataLossError("an impossible box");
      Tensor tensor;
      tensor.dtype = leaf.dtype;
      tensor.packed = leaf.packed;
      tensor.tag = leaf.tag;
      tensor.shape = box.shape;
      if (box.shape != leaf.shape) {
        tensor.start = box.start;
        tensor.global_shape = leaf.shape;
      }
      const bool cut = !leaf.packed && !box.shape.empty() &&
                       chunk_shape.size() == box.shape.size() &&
                       std::all_of(chunk_shape.begin(), chunk_shape.end(),
                                   [](std::int64_t d) { return d >= 1; });
      if (cut) tensor.chunk_shape = chunk_shape;
      CKPTREE_RETURN_IF_ERROR(
          Read(leaf, box, static_cast<std::size_t>(*bytes), &tensor));
      total += static_cast<std::uint64_t>(*bytes);
      tensors.push_back(std::move(tensor));
    }
    for (Tensor& tensor : tensors) {
      builder_.Put(leaf.path, std::move(tensor), Ownership::kBorrow);
    }
    return total;
  }

  // Reads the box, to keep it or only to know that it can be read.
  absl::Status Read(const LeafInfo& leaf, const BoxSpec& box, std::size_t bytes,
                    Tensor* tensor) {
    auto buffer = std::make_unique<Buffer>(bytes);
    CKPTREE_RETURN_IF_ERROR(from_.ReadBox(leaf.path, box, *buffer));
    // Chunks that are no whole rows cannot be taken from a copy function.
    const bool whole_rows =
        tensor->chunk_shape.empty() ||
        ChunkGrid({box.start, box.shape, tensor->chunk_shape}).contiguous();
    if (kept_bytes_ + bytes <= options_.memory_bytes || !whole_rows) {
      kept_bytes_ += bytes;
      tensor->data = buffer->data();
      tensor->size_bytes = bytes;
      kept_.push_back(std::move(buffer));
      return absl::OkStatus();
    }
    auto again = std::make_shared<BoxOnDemand>(from_, leaf.path, box, bytes);
    again_.push_back(again);
    tensor->copy = [again](std::uint64_t offset, std::span<std::byte> to) {
      return again->Copy(offset, to);
    };
    return absl::OkStatus();
  }

  void AddNode(const LeafInfo& node) {
    builder_.PutNode(node.path, node.kind, node.tag);
  }

  void AddTie(const LeafInfo& tie) {
    if (lost_.contains(tie.tie_to->Encode())) {
      return Lose(tie,
                  absl::DataLossError(absl::StrFormat(
                      "it is tied to %s, which is lost", tie.tie_to->Text())));
    }
    builder_.Tie(tie.path, *tie.tie_to);
  }

  void AddWhatIsSaid() {
    const StepInfo& info = from_.info();
    for (const auto& [name, value] : info.metrics) {
      builder_.SetMetric(name, value);
    }
    SaveOrigin origin;
    origin.begun_ns = absl::ToUnixNanos(info.begun);
    origin.staged_ns = absl::ToUnixNanos(info.staged);
    origin.committed_ns = absl::ToUnixNanos(info.committed);
    const absl::StatusOr<StepMetadata> metadata = from_.Metadata();
    if (metadata.ok()) {
      origin.lineage = metadata->lineage;
      for (const auto& [name, text] : options_.lineage) {
        std::erase_if(origin.lineage, [&name = name](const auto& entry) {
          return entry.first == name;
        });
        origin.lineage.emplace_back(name, text);
      }
      if (!metadata->custom.empty()) {
        builder_.SetCustomMetadata(metadata->custom);
      }
      for (const auto& [name, kind] : metadata->items) {
        for (const ItemName& known : kItems) {
          if (known.name == kind) builder_.SetItemType(name, known.type);
        }
      }
    } else {
      result_.lost.push_back({"(metadata)", ReasonOf(metadata.status())});
    }
    StepOriginPeer::Set(&builder_, std::move(origin));
    std::string note = info.note;
    if (result_.leaves_lost == 0 && !result_.lost.empty()) {
      note = absl::StrFormat("%sits metadata is lost]%s%s", kRecoveredNote,
                             info.note.empty() ? "" : " ", info.note);
    } else if (!result_.lost.empty()) {
      note = absl::StrFormat(
          "%s%d of %d%s]%s%s", kRecoveredNote, result_.leaves_lost,
          result_.leaves_lost + result_.leaves_saved, kLeavesLost,
          info.note.empty() ? "" : " ", info.note);
    }
    if (!note.empty()) {
      builder_.SetNote(
          CutText(note, static_cast<std::size_t>(schema::kMaxNoteBytes)));
    }
  }

  absl::StatusOr<RecoveredStep> Commit() {
    result_.saved = true;
    if (!options_.save) return std::move(result_);
    SaveHandle save = std::move(builder_).Commit();
    absl::Status status;
    do {
      status = save.WaitCommitted(absl::Milliseconds(100));
      if (options_.cancelled()) save.Cancel();
    } while (absl::IsDeadlineExceeded(status));
    if (status.ok()) return std::move(result_);
    for (const auto& box : again_) NoteReach(box->failed());
    if (IsOutOfReach() && absl::IsCancelled(*options_.out_of_reach)) {
      return *options_.out_of_reach;
    }
    if (IsOutOfReach()) return NotSaved(ReasonOf(*options_.out_of_reach));
    // The step is what cannot be saved: others can.
    if (absl::IsInvalidArgument(status)) return NotSaved(ReasonOf(status));
    return status;
  }

  const Step& from_;
  StepBuilder builder_;
  const StepCopyOptions& options_;
  RecoveredStep result_;
  std::set<std::string> lost_;  // Encoded paths.
  std::vector<std::unique_ptr<Buffer>> kept_;
  std::vector<std::shared_ptr<BoxOnDemand>> again_;
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace

absl::StatusOr<RecoveredStep> CopyStep(const Step& from, Store* to,
                                       const StepCopyOptions& options) {
  SaveOptions saving;
  saving.branch = from.info().branch;
  saving.overwrite = saving.tagged = options.overwrite;
  return StepCopier(from, to->Begin(from.step(), saving), options).Run();
}

}  // namespace ckptree::internal
