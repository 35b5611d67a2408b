// SPDX-License-Identifier: Apache-2.0

// Reading: one step, its leaves, any box of any of them.
//
//   absl::StatusOr<ckptree::Step> step = store.OpenStep(ckptree::Latest());
//   absl::StatusOr<std::vector<float>> w =
//       step->Read<std::vector<float>>("params/w");
//   absl::Status status = step->Read("opt/mu", destination);  // Own memory.

#ifndef CKPTREE_STEP_H_
#define CKPTREE_STEP_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/entry_kind.h"
#include "ckptree/export.h"
#include "ckptree/path.h"
#include "ckptree/statistics.h"
#include "ckptree/tensor.h"

namespace ckptree {

namespace internal {
class StepReader;
struct StepInside;

template <typename T, typename... Others>
concept AnyOfTypes = (std::same_as<T, Others> || ...);

// What Step::Read<T>() can return.
template <typename T>
concept ReadableValue =
    AnyOfTypes<T, bool, std::int64_t, double, std::string, std::vector<float>,
               std::vector<double>, std::vector<std::int8_t>,
               std::vector<std::int16_t>, std::vector<std::int32_t>,
               std::vector<std::int64_t>, std::vector<std::uint8_t>,
               std::vector<std::uint16_t>, std::vector<std::uint32_t>,
               std::vector<std::uint64_t>>;
}  // namespace internal

// True where an operation failed with kNotFound because the step was deleted or
// overwritten while it was being opened or read. A reader that wants "the
// latest, whichever that is" asks again.
CKPTREE_EXPORT bool IsStepGone(const absl::Status& status);

// What a step is, from its records alone. No array is read for any of it.
struct StepInfo {
  std::string branch = {};  // Empty: the main branch.
  std::int64_t step = 0;
  std::uint64_t version = 0;  // The store's own number of the save.
  std::uint64_t base = 0;     // Version it was compared with; 0: a full save.
  absl::Time begun = absl::UnixEpoch();      // Wall clock, as all three.
  absl::Time staged = absl::UnixEpoch();     // The trainer could go on.
  absl::Time committed = absl::UnixEpoch();  // The step was durable.
  std::vector<std::pair<std::string, double>> metrics = {};
  std::vector<std::string> tags = {};
  bool pinned = false;
  std::uint64_t leaf_count = 0;
  std::uint64_t changed_leaves = 0;  // Against the base.
  std::uint64_t logical_bytes = 0;   // Of all values.
  std::uint64_t new_bytes = 0;       // Of values written by this save.
  std::uint64_t nan_count = 0;       // Elements, over all arrays.
  std::uint64_t inf_count = 0;
  std::uint64_t nonfinite_leaves = 0;  // Arrays with a NaN or an Inf.
  // Arrays of floats or complex numbers that were saved without
  // StoreOptions::statistics: whether they have a NaN or an Inf is not known,
  // and the step is not healthy as long as it has one of them.
  std::uint64_t unknown_leaves = 0;
  std::string digest = {};  // 32 hexadecimal digits, over all names and values.
  std::string saved_by = {};  // Version of the engine.
  std::string note = {};
};

// What one rank saved of a step of several processes (ckptree/ranks.h).
struct PartInfo {
  int rank = 0;
  std::string host = {};
  std::int64_t pid = 0;
  std::uint64_t bytes = 0;      // Of its values.
  std::uint64_t new_bytes = 0;  // Of those that this save wrote.
  // From when it came to the save, told what to build, until its part was
  // whole: what it came late by is not in it.
  absl::Duration duration = absl::ZeroDuration();
};

// The larger things said of a step, in a record of their own that is read on
// demand. `lineage` says where the step comes from: host, process, command and
// whatever the caller added (StepBuilder::SetLineage). Of the command, values
// of options whose name says key, secret, token, password or credential are
// `***`, and so is what stands before the `@` of an address; secrets that stand
// elsewhere in it are kept: replace it by SetLineage("command", ...).
struct StepMetadata {
  // Name and kind ("tree", "json", "proto", "files") of top-level subtrees.
  std::vector<std::pair<std::string, std::string>> items = {};
  std::string custom = {};  // JSON text, or empty.
  std::vector<std::pair<std::string, std::string>> lineage = {};
  std::vector<PartInfo> parts =
      {};  // By rank; none where one process saved it.
};

// A leaf or node of a step, from records alone. The leaves are the values; the
// nodes are what is not said by the paths of the leaves (see EntryKind).
struct LeafInfo {
  Path path = {};
  std::string name = {};  // path.Text()
  EntryKind kind = EntryKind::kArray;
  DType dtype = DType::kNone;  // Of arrays.
  bool packed = false;         // See Tensor::packed.
  Shape shape = {};            // Of the whole array.
  std::string tag = {};
  std::optional<Path> tie_to = {};  // Of ties: the leaf that has the value.

  bool is_leaf() const { return IsLeaf(kind); }
};

// What the leaf's record adds, at the cost of a look-up for each leaf. Of a
// tie: that of the leaf whose value it shares.
struct LeafDetail {
  std::uint64_t bytes = 0;
  std::int64_t since_step = 0;  // The save that last changed the value.
  std::uint64_t since_version = 0;
  // 32 hexadecimal digits, of the value: equal for equal values that are cut
  // into boxes and chunks alike.
  std::string digest = {};
  // Nothing for leaves that are not arrays of numbers, and where the store was
  // opened without StoreOptions::statistics.
  std::optional<Statistics> statistics = {};
  std::uint64_t chunk_count = 0;
  // Of arrays that are more than 256 bytes: others stand in their record. Where
  // boxes are cut differently, that of the largest.
  Shape chunk_shape = {};
  std::vector<BoxSpec> boxes = {};  // As they were put.
  // Where boxes are cut differently, of each of them; else empty.
  std::vector<Shape> chunk_shapes = {};
  // Of an array of several ranks, how many of the boxes each put; else empty.
  std::vector<std::uint64_t> rank_boxes = {};
  std::uint64_t stored_bytes = 0;  // On disk.
};

// A read into the caller's memory, of a whole leaf or one box of an array.
struct ReadRequest {
  Path path = {};
  // Nothing: the whole array. Of a packed array (Tensor::packed) that alone.
  std::optional<BoxSpec> box = {};
  // Filled densely, row-major; exactly the bytes of the box.
  std::span<std::byte> destination = {};
};

// How Step::ReadMany() is watched and stopped. Both functions are called one
// at a time, on the thread of the call or on one that reads for it, before the
// first chunk and between chunks. They must not wait for the store; what one of
// them throws ends the read as kInternal.
struct ReadOptions {
  // True stops with kCancelled. Not asked once all is read.
  std::function<bool()> cancelled = {};
  // In bytes of chunks, now and then, and once all is read: 0 of 0 where small
  // values lie in records. Of many leaves `total` may fall, by such values.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
};

// A value as a copy.
struct CKPTREE_EXPORT LeafValue {
  LeafInfo info = {};
  std::vector<std::byte> bytes = {};  // Arrays: row-major.

  // Each is kFailedPrecondition where the leaf is of another kind.
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<std::int64_t> Int() const;
  absl::StatusOr<double> Float() const;
  absl::StatusOr<std::string> String() const;  // str, bytes, json, proto, file
};

// Bytes of a leaf that stand in the store's own file: nothing is copied. Every
// piece is aligned to 64 bytes and was checked against its digest: a chunk of
// 64 KiB or more once in a process, when a store that it has open looks at it
// first; a later view compares nothing while the file stays where it is, and
// does not see what another program did to it since. Valid while
// the view lives, whatever becomes of the rest: the step may be removed and its
// bytes collected, Step and Store may be gone. It holds neither of them up; the
// file takes its place on the disk until the view goes. In a child made by
// fork() it can be read and destroyed as well. The memory cannot be written to.
class CKPTREE_EXPORT LeafView {
 public:
  // One chunk of the array: a box of it, dense and row-major. What is no array
  // is one piece without a box; so are the pieces of a packed array, which may
  // end within a byte.
  struct Piece {
    BoxSpec box = {};
    std::span<const std::byte> bytes = {};
  };

  struct CKPTREE_LOCAL Impl;
  explicit LeafView(std::unique_ptr<Impl> impl);
  LeafView(LeafView&&) noexcept;
  LeafView& operator=(LeafView&&) noexcept;
  ~LeafView();

  // The pieces of the value. They are disjoint and make up the whole value.
  // Put one behind the other they are the row-major array only where the array
  // was saved as one box and is cut along its first dimension: see Piece::box.
  const std::vector<Piece>& pieces() const;
  // False where some bytes had to be copied: small values, and chunks that
  // stand in a file that cannot be mapped.
  bool zero_copy() const;

 private:
  std::unique_ptr<Impl> impl_;
};

// One step, open for reading. Opening reads no array; each read takes what it
// needs by key. Every byte is checked against the digest that the save wrote:
// kDataLoss names step, leaf and chunk, and the destination is unspecified
// then.
//
// Reads of a path that is not there are kNotFound and name the closest one,
// which takes a look at all names: ask Find() where absence is expected.
// kInvalidArgument: a box or a destination that does not fit.
//
// A step that is deleted after it was opened stays readable, whichever process
// has it open, where that can make files in the store (else a read may find it
// gone: IsStepGone()); of a store that is read by its address until Refresh().
// Thread-safe. Destroy it before the Store. One that was moved from can only be
// destroyed and assigned to; so a LeafView.
class CKPTREE_EXPORT Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  std::int64_t step() const;
  // As it was when the step was opened; valid as long as this object.
  const StepInfo& info() const;
  // Reads one record.
  absl::StatusOr<StepMetadata> Metadata() const;

  // Leaves, nodes and ties in tree order whose name matches `glob` (see
  // MatchesGlob); all where it is empty.
  absl::StatusOr<std::vector<LeafInfo>> Leaves(
      std::string_view glob = "") const;
  // Nothing where the step has no such path: microseconds, whatever its size.
  absl::StatusOr<std::optional<LeafInfo>> Find(PathRef path) const;
  // The leaf whose value `leaf` has: the one that it is tied to, or itself.
  // kDataLoss where that is missing.
  absl::StatusOr<LeafInfo> Holder(const LeafInfo& leaf) const;
  // What the record of a leaf says. Of a node: nothing but zeros.
  absl::StatusOr<LeafDetail> Detail(PathRef path) const;
  // Of many leaves at once, in the order given: far faster than one by one.
  absl::StatusOr<std::vector<LeafDetail>> Details(
      const std::vector<LeafInfo>& leaves) const;

  // Reads the raw bytes of a leaf (array: row-major) into the caller's memory,
  // which must have exactly the size of the value.
  absl::Status Read(PathRef path, std::span<std::byte> destination) const;
  // The elements of one box of an array, densely and row-major. Reads only the
  // chunks that the box touches.
  absl::Status ReadBox(PathRef path, const BoxSpec& box,
                       std::span<std::byte> destination) const;
  // All in one parallel pass, ordered by place on disk: the fast way to restore
  // a whole step. After an error the destinations are unspecified.
  absl::Status ReadMany(std::span<const ReadRequest> requests,
                        const ReadOptions& options = {}) const;

  // The value as a T, which is bool, std::int64_t, double or std::string for
  // small values, or a std::vector of float, double, std::int8_t to
  // std::int64_t, std::uint8_t to std::uint64_t for arrays of exactly that
  // element type, row-major. kFailedPrecondition where the leaf is of another
  // kind or element type: nothing is converted.
  template <internal::ReadableValue T>
  absl::StatusOr<T> Read(PathRef path) const;

  // The value and what is known of it, as a copy: for small values, and for
  // whoever does not know the type.
  absl::StatusOr<LeafValue> Value(PathRef path) const;
  // The value in place, without a copy, where the store's files can be mapped.
  // Every byte was checked when this returns, by this view or an earlier one:
  // see LeafView. kFailedPrecondition where the
  // boxes that were saved do not make up the whole array.
  absl::StatusOr<LeafView> View(PathRef path) const;

  // What a strict restore would trip over: compares with the leaves the caller
  // expects (kind, dtype, shape) and lists every difference, one line a path;
  // OK where there is none, kInvalidArgument otherwise. Nodes are compared
  // where they are expected and may be left out.
  absl::Status Expect(const std::vector<LeafInfo>& expected) const;

 private:
  friend class Store;
  friend struct internal::StepInside;
  explicit Step(std::unique_ptr<internal::StepReader> reader);
  std::unique_ptr<internal::StepReader> reader_;
};

}  // namespace ckptree

#endif  // CKPTREE_STEP_H_
