// SPDX-License-Identifier: Apache-2.0

// Which chunks a read touches, and the reading of them: sorted by place on
// disk, in parallel, each slice checked against its digest.

#ifndef CKPTREE_CORE_VERSION_READ_PLAN_H_
#define CKPTREE_CORE_VERSION_READ_PLAN_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ckptree/step.h"
#include "ckptree/tensor.h"
#include "core/coding/block_decoder.h"
#include "core/coding/coded_block.h"
#include "kv/database.h"
#include "schema/leaf_record.h"
#include "schema/tree.h"

namespace ckptree::internal {

// Collects slices, then reads them all. Confined to one thread.
class ReadPlan {
 public:
  // `options` must outlive the plan.
  ReadPlan(const kv::Database& database, const ReadOptions& options)
      : database_(database), options_(options) {}

  // For some of what `whole` reads, and counted there; on any thread.
  explicit ReadPlan(ReadPlan* whole)
      : database_(whole->database_), options_(whole->options_), whole_(whole) {}

  // The whole value of a leaf that is no array: exactly byte_length bytes.
  // `path` must outlive Run(): messages name it.
  absl::Status AddValue(const Path& path, const schema::LeafRecord& record,
                        std::span<std::byte> destination);

  // The part of `box` (of the array `entry`) that this record's boxes hold;
  // `destination` is `box`, dense and row-major. Returns the elements that were
  // found, to be added up over the parts. Packed arrays: the whole box only.
  absl::StatusOr<std::int64_t> AddArray(const Path& path,
                                        const schema::TreeEntry& entry,
                                        const schema::LeafRecord& record,
                                        const BoxSpec& box,
                                        std::span<std::byte> destination);

  // read_plan_runs.cc: takes over what another one would read, of the same
  // options. Not while Run() is called.
  void Take(ReadPlan* other) ABSL_LOCKS_EXCLUDED(taking_);
  // read_plan_runs.cc: of a plan for some: reads what stands in small blocks,
  // on this thread; Take() is for the rest. `asks`: the thread of the call that
  // the options are of.
  absl::Status RunSmall(bool asks);
  // Before plans for some of it are read: all bytes that are asked for.
  void Expect(std::uint64_t bytes) { total_ = bytes; }

  // Reads everything. kDataLoss names leaf and chunk. Spreads over the TBB
  // arena it is called in; where there is much to read, over threads that wait
  // for the disk: as many as `asked`, or by the rule of StoreOptions::threads.
  absl::Status Run(int asked);
  // Likewise, on this thread alone.
  absl::Status RunHere();

  // Asks the options whether to go on: kCancelled, or what was thrown.
  absl::Status Ask() const;
  // Says how far it is, where somebody wants to know.
  absl::Status Tell() const;

  // How many threads to read so many bytes of small leaves on.
  static std::size_t SmallReaders(std::uint64_t bytes, int asked);

  std::uint64_t bytes_read() const { return bytes_read_.load(); }

 private:
  // A chunk that does not fall into the destination as one run.
  struct Scatter {
    std::vector<std::int64_t> cell_start, cell_shape;
    std::vector<std::int64_t> box_start, box_shape;
    std::vector<std::int64_t> start, shape;  // What both share.
    std::int64_t element_bytes = 0;
  };
  struct Slice {
    schema::ChunkRef ref;
    std::byte* destination = nullptr;
    std::int32_t scatter = -1;  // Index, or -1: one run.
    std::uint32_t name = 0;     // Index of the leaf's name.
    std::uint32_t chunk = 0;    // Of the leaf, for messages.
  };

  // Memory that is used again for the next block.
  struct Scratch {
    std::vector<std::byte> bytes;  // Of payloads.
    std::vector<std::byte> copy;   // Rounded copies in them.
    std::vector<std::byte> coded;
    std::vector<std::byte> run;  // Of blocks that are read together.
    BlockDecoder decoder;
  };
  using Block = std::span<const Slice>;

  // Where in their block they begin and end.
  static std::pair<std::uint64_t, std::uint64_t> Extent(
      std::span<const Slice> slices);
  static std::uint64_t BytesOf(std::span<const Slice> slices);
  // True where `bytes` are those of `ref`.
  static bool IsSaved(const schema::ChunkRef& ref, const std::byte* bytes);
  // Begins to read a block.
  void Prefetch(std::span<const Slice> slices) const;
  // Remembers that chunks fall into this memory in many runs.
  void NoteScattered(std::span<std::byte> destination);
  // Of each run what it is read into, or a piece of what several are; of runs
  // of several blocks, and where there is no one place, nothing.
  std::vector<std::span<std::byte>> Destinations(
      std::span<const std::span<const Block>> runs) const;
  // All slices, by the block that they are in.
  std::vector<Block> Blocks();
  // read_plan_runs.cc: the same in pieces, each for one thread: a block, or
  // small ones that may stand behind each other.
  std::vector<std::span<const Block>> Runs(std::span<const Block> blocks) const;
  // read_plan_runs.cc: whether some of them are elsewhere: a read of these is a
  // request, so they are read together, and many at once.
  bool AnyFar(std::span<const Block> blocks) const;
  // Reads them together where that can be.
  absl::Status ReadRun(std::span<const Block> blocks, Scratch* scratch);
  // How many threads of its own to read on; 1: those of the arena will do.
  std::size_t DiskThreads(int asked) const;
  // All slices in that order.
  void Sort();
  // What was asked for is there; it is in the record itself.
  void CountDone(std::uint64_t bytes);
  void CountInline(std::uint64_t bytes);
  void CountRead(std::uint64_t bytes);
  // Reads a block and counts it.
  absl::Status ReadBlock(std::span<const Slice> slices, Scratch* scratch);
  absl::Status DeliverBlock(std::span<const Slice> slices, Scratch* scratch);
  // Reads only the bytes that were asked for, straight from the file. False
  // where that is not possible, or where they are not the bytes that were
  // saved: the whole block, as the database reads and checks it, tells why.
  bool ReadStraight(std::span<const Slice> slices, Scratch* scratch);
  // What was read of a block, from `begin` on, into its places; false where it
  // is not what was saved.
  bool DeliverChecked(std::span<const Slice> slices, const std::byte* read,
                      std::uint64_t begin) const;
  // A value that was read as a whole, coded or not; likewise.
  bool DeliverRead(Block block, std::span<const std::byte> value,
                   Scratch* scratch) const;
  // The same of a block that is coded; only the cells that were asked for where
  // the head vouches for what the slices are of.
  bool ReadCoded(std::span<const Slice> slices, Scratch* scratch);
  // The same of a coded value that was read as a whole.
  bool DeliverWholeCoded(std::span<const Slice> slices, std::string_view value,
                         Scratch* scratch) const;
  // The cells [first, second) of its block that the slices need.
  std::pair<std::size_t, std::size_t> CellsOf(std::span<const Slice> slices,
                                              BlockCoding coding) const;
  // From the cells [from, to), to where the slices belong.
  bool DeliverCoded(std::span<const Slice> slices, const CodedHead& head,
                    std::size_t from, std::size_t to, std::string_view cells,
                    Scratch* scratch) const;
  // A chunk into its place, where it is compared with its digest: after it was
  // read, or as it comes.
  bool ReadAndCheck(const std::string& key, const schema::ChunkRef& ref,
                    std::span<std::byte> to) const;
  bool ReadInPieces(const std::string& key, const schema::ChunkRef& ref,
                    std::span<std::byte> to) const;
  // The bytes of `slice` at the beginning of `bytes`, to where they belong.
  void Deliver(const Slice& slice, const std::byte* bytes) const;
  absl::Status Place(const Slice& slice, std::string_view payload);
  std::string Describe(const Slice& slice) const;

  const kv::Database& database_;
  const ReadOptions& options_;
  ReadPlan* const whole_ = nullptr;
  Scratch small_scratch_;
  absl::Mutex taking_;
  std::vector<const Path*> names_;
  std::vector<Slice> slices_;
  std::vector<std::span<std::byte>> scattered_;  // In pieces.
  std::vector<Scatter> scatters_;
  std::atomic<std::uint64_t> bytes_read_{0};
  // Of all slices, in bytes; so `done_`.
  std::atomic<std::uint64_t> total_{0};
  bool far_ = false;  // As AnyFar() says of the blocks of this run.
  std::atomic<std::uint64_t> done_{0};
};

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_VERSION_READ_PLAN_H_
