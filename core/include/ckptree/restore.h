// Reading: one step, its leaves, any box of any of them.

#ifndef CKPTREE_RESTORE_H_
#define CKPTREE_RESTORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptree/export.h"
#include "ckptree/tensor.h"

namespace ckptree {

namespace internal {
class StepReader;
}

// True where a read failed (kNotFound) because the step was deleted or
// overwritten after it was opened, or on its way to being opened.
CKPTREE_EXPORT bool IsStepGone(const absl::Status& status);

// What a step is, from its records alone.
struct StepInfo {
  std::string line = {};  // Empty: the main line.
  std::int64_t step = 0;
  std::uint64_t version = 0;
  std::uint64_t base = 0;     // Version it was compared with; 0: a full save.
  std::int64_t begun_ns = 0;  // Wall clock, ns since 1970 UTC.
  std::int64_t staged_ns = 0;
  std::int64_t committed_ns = 0;
  std::vector<std::pair<std::string, double>> metrics = {};
  std::vector<std::string> tags = {};
  bool pinned = false;
  std::uint64_t leaf_count = 0;
  std::uint64_t changed_leaves = 0;
  std::uint64_t logical_bytes = 0;  // Of all values.
  std::uint64_t new_bytes = 0;      // Of values written by this save.
  std::uint64_t nan_count = 0;
  std::uint64_t inf_count = 0;
  std::uint64_t nonfinite_leaves = 0;
  std::string digest = {};  // 32 hexadecimal digits, over all names and values.
  std::string saved_by = {};
  std::string note = {};
};

// The larger things said of a step.
struct StepMetadata {
  std::vector<std::pair<std::string, std::string>> items = {};  // name, kind
  std::string custom = {};  // JSON text, or empty.
  std::vector<std::pair<std::string, std::string>> lineage = {};
};

// A leaf or node of a step, from records alone.
struct LeafInfo {
  Path path = {};
  std::string name = {};  // path.Text()
  std::string kind = {};  // "array", "int", "str", "tuple", "none", "tie", ...
  bool is_leaf = true;    // False: a node or a tie.
  DType dtype = DType::kNone;
  bool packed = false;
  Shape shape = {};
  std::string tag = {};
  std::optional<Path> tie_to = {};
};

// What the leaf's record adds (one look-up for each leaf).
struct LeafDetail {
  std::uint64_t bytes = 0;
  std::int64_t since_step = 0;  // The save that last changed the value.
  std::uint64_t since_version = 0;
  // 32 hexadecimal digits, of the value: equal for equal values that are cut
  // into boxes and chunks alike.
  std::string digest = {};
  std::optional<Statistics> statistics = {};
  std::uint64_t chunk_count = 0;
  Shape chunk_shape = {};  // Of arrays.
  std::vector<BoxSpec> boxes = {};
  std::uint64_t stored_bytes = 0;
};

// A read into the caller's memory.
struct ReadRequest {
  Path path = {};
  std::optional<BoxSpec> box = {};  // Nothing: the whole array.
  // Filled densely, row-major; exactly the bytes of the box.
  std::span<std::byte> destination = {};
};

// A value as a copy.
struct CKPTREE_EXPORT LeafValue {
  LeafInfo info = {};
  std::vector<std::byte> bytes = {};

  // kFailedPrecondition where the leaf is of another kind.
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<std::int64_t> Int() const;
  absl::StatusOr<double> Float() const;
  absl::StatusOr<std::string> String() const;  // str, bytes, json, proto, file
};

// Bytes of a leaf that stand in the store's own file: 64-byte aligned, checked
// against their digest, valid while the view lives, even if the step is
// removed. Destroy before the Store.
class CKPTREE_EXPORT LeafView {
 public:
  struct CKPTREE_LOCAL Impl;
  explicit LeafView(std::unique_ptr<Impl> impl);
  LeafView(LeafView&&) noexcept;
  LeafView& operator=(LeafView&&) noexcept;
  ~LeafView();

  // The pieces of the value in row-major order, one for each chunk.
  const std::vector<std::span<const std::byte>>& pieces() const;
  // True where the bytes are in place; false where they had to be copied.
  bool zero_copy() const;

 private:
  std::unique_ptr<Impl> impl_;
};

// One step, open for reading. Every read is checked against the digest written
// by the save: kDataLoss names step, leaf and chunk. A step that was deleted
// after it was opened stays readable in the process that has it open.
//
// kNotFound: no such path (with the closest name). kInvalidArgument: a box or
// destination that does not fit. Thread-safe. Destroy before the Store.
class CKPTREE_EXPORT Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  std::int64_t step() const;
  const StepInfo& info() const;
  absl::StatusOr<StepMetadata> Metadata() const;

  // Leaves, nodes and ties in tree order whose name matches `glob` (see
  // MatchesGlob); all where it is empty.
  absl::StatusOr<std::vector<LeafInfo>> Leaves(
      std::string_view glob = "") const;
  absl::StatusOr<LeafInfo> Find(const Path& path) const;
  absl::StatusOr<LeafDetail> Detail(const Path& path) const;
  // Of many leaves at once, in the order given: far faster than one by one.
  absl::StatusOr<std::vector<LeafDetail>> Details(
      const std::vector<LeafInfo>& leaves) const;

  // Reads the raw bytes of a leaf (array: row-major).
  absl::Status Read(const Path& path, std::span<std::byte> destination) const;
  absl::Status Read(std::string_view path,
                    std::span<std::byte> destination) const;
  absl::Status ReadBox(const Path& path, const BoxSpec& box,
                       std::span<std::byte> destination) const;
  // All in one parallel pass, ordered by place on disk.
  absl::Status ReadMany(std::span<const ReadRequest> requests) const;

  absl::StatusOr<LeafValue> Value(const Path& path) const;
  absl::StatusOr<LeafValue> Value(std::string_view path) const;
  absl::StatusOr<LeafView> View(const Path& path) const;

  // What a strict restore would trip over: compares with the leaves the caller
  // expects (kind, dtype, shape) and lists every difference, one line a path;
  // OK where there is none, kInvalidArgument otherwise. Nodes are compared
  // where they are expected and may be left out.
  absl::Status Expect(const std::vector<LeafInfo>& expected) const;

 private:
  friend class Store;
  explicit Step(std::unique_ptr<internal::StepReader> reader);
  std::unique_ptr<internal::StepReader> reader_;
};

}  // namespace ckptree

#endif  // CKPTREE_RESTORE_H_
