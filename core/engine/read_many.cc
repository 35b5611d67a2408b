// SPDX-License-Identifier: Apache-2.0

// Hot path: per leaf. What StepReader does for many leaves at once, on all
// lanes of the arena.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "ckptree/path.h"
#include "core/engine/step_reader.h"
#include "core/process/arena.h"
#include "core/process/disk_threads.h"
#include "core/process/first_error.h"
#include "core/version/leaf_reader.h"
#include "core/version/read_plan.h"
#include "schema/leaf_record.h"

namespace ckptree::internal {
namespace {

// So few are read one after the other by the straight way: a history asks for
// one of each step, and to begin an iterator and to enter the arena takes
// longer.
constexpr std::size_t kFewLeaves = 8;

// A lane takes so many leaves at a time.
constexpr std::size_t kLeafBatch = 1024;
// From here on leaves are read by batches: while some threads wait for the
// disk, others look up what is read next.
constexpr std::size_t kManyBatches = 4;

// Which of the requests comes when, in the order of their paths, which is that
// of the bytes of a step that one save wrote; empty where they are in it. Else
// what stands together would be in several batches.
std::vector<std::size_t> OrderOf(std::span<const ReadRequest> requests) {
  std::string before;
  std::size_t ascending = 0;
  for (; ascending < requests.size(); ++ascending) {
    std::string path = requests[ascending].path.Encode();
    if (path < before) break;
    before = std::move(path);
  }
  if (ascending == requests.size()) return {};
  std::vector<std::pair<std::string, std::size_t>> paths;
  paths.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    paths.emplace_back(requests[i].path.Encode(), i);
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::size_t> order;
  order.reserve(paths.size());
  for (const auto& [path, i] : paths) order.push_back(i);
  return order;
}

// Calls work(b) for each b below `count`, on all lanes, and returns the first
// error in that order, not in time: the same however many lanes there are.
template <typename Work>
absl::Status OnLanes(std::size_t count, Work work) {
  absl::Mutex mu;
  absl::Status first;
  std::atomic<std::size_t> failed = count;  // The one that `first` is of.
  ForEach(0, count, [&](std::size_t b) {
    if (b > failed.load(std::memory_order_relaxed)) return;
    absl::Status status = work(b);
    if (status.ok()) return;
    const absl::MutexLock lock(&mu);
    if (b > failed.load(std::memory_order_relaxed)) return;
    failed.store(b, std::memory_order_relaxed);
    first = std::move(status);
  });
  return first;
}

// The same with work(b, begin, end) for `kLeafBatch` of `count` at a time.
template <typename Work>
absl::Status InBatches(std::size_t count, Work work) {
  return OnLanes((count + kLeafBatch - 1) / kLeafBatch, [&](std::size_t b) {
    return work(b, b * kLeafBatch, std::min(count, (b + 1) * kLeafBatch));
  });
}

// Whether the box is all of an array of this shape: `leaf[:]`.
bool IsWhole(const BoxSpec& box, std::span<const std::int64_t> shape) {
  return std::ranges::equal(box.shape, shape) &&
         box.start.size() == shape.size() &&
         std::ranges::all_of(box.start,
                             [](std::int64_t at) { return at == 0; });
}

}  // namespace

absl::StatusOr<std::vector<LeafInfo>> StepReader::LeavesOf(
    const StepTree& tree, std::size_t begin, std::size_t end,
    std::string_view glob) const {
  const std::span<const schema::TreePageRef> pages =
      std::span(tree.root().pages).subspan(begin, end - begin);
  std::vector<std::size_t> first(pages.size() + 1);  // Entry of each page.
  for (std::size_t p = 0; p < pages.size(); ++p) {
    first[p + 1] = first[p] + pages[p].entry_count;
  }
  std::vector<LeafInfo> leaves(glob.empty() ? first.back() : 0);
  std::vector<std::vector<LeafInfo>> matching(glob.empty() ? 0 : pages.size());
  const auto look = [&](std::size_t p) {
    std::size_t at = first[p];
    return tree.ForEachOfPage(begin + p, [&](const StepTree::Entry& entry) {
      LeafInfo info = InfoOf(*entry.entry);
      if (glob.empty()) {
        leaves[at++] = std::move(info);
      } else if (MatchesGlob(glob, info.name)) {
        matching[p].push_back(std::move(info));
      }
    });
  };
  absl::Status status;
  if (pages.size() == 1) {
    status = look(0);  // Not worth waking the arena.
  } else {
    engine_->arena().execute([&] { status = OnLanes(pages.size(), look); });
  }
  CKPTREE_RETURN_IF_ERROR(Annotate(status));
  for (std::vector<LeafInfo>& of_page : matching) {
    std::move(of_page.begin(), of_page.end(), std::back_inserter(leaves));
  }
  return leaves;
}

absl::StatusOr<std::vector<LeafInfo>> StepReader::LeavesOfPages(
    std::size_t begin, std::size_t end) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  return LeavesOf(*parts_[0].tree, begin, end, "");
}

absl::Status StepReader::ReadMany(std::span<const ReadRequest> requests,
                                  const ReadOptions& options) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  if (requests.size() == 1) {
    return ReadOne(requests[0].path, requests[0].box, requests[0].destination,
                   options);
  }
  ReadPlan plan(engine_->database(), options);
  CKPTREE_RETURN_IF_ERROR(plan.Ask());
  absl::Status status;
  engine_->arena().execute([&] {
    status = AreManySmall(requests) ? ReadInBatches(requests, &plan)
                                    : ReadAll(requests, &plan);
  });
  engine_->CountRead(plan.bytes_read());
  return status;
}

absl::Status StepReader::ReadOne(const Path& path,
                                 const std::optional<BoxSpec>& box,
                                 std::span<std::byte> destination,
                                 const ReadOptions& options) const {
  CKPTREE_ASSIGN_OR_RETURN(Found found, LookupValue(path));
  PackGuesses::Trial trial;
  const bool whole = !box.has_value() || (!found.entry->packed &&
                                          IsWhole(*box, found.entry->shape));
  // Who watches is told by a plan.
  if (whole && !options.cancelled && !options.on_progress &&
      ReadProved(found, destination, &trial)) {
    return absl::OkStatus();
  }
  CKPTREE_ASSIGN_OR_RETURN(const Located located,
                           LocateFound(path, std::move(found), trial));
  ReadPlan plan(engine_->database(), options);
  CKPTREE_RETURN_IF_ERROR(
      AddRead(path, box, destination, *located.entry, located.records, &plan));
  absl::Status status;
  if (destination.size() < (1 << 20)) {
    status = plan.RunHere();  // Not worth waking the arena.
  } else {
    engine_->arena().execute(
        [&] { status = plan.Run(engine_->options().threads); });
  }
  engine_->CountRead(plan.bytes_read());
  return Annotate(status);
}

absl::StatusOr<std::vector<std::vector<schema::LeafRecord>>>
StepReader::RecordsOf(std::span<Found> found, bool here) const {
  std::vector<std::vector<std::uint32_t>> ordinals(parts_.size());
  for (Found& leaf : found) {
    for (Place& place : leaf.places) {
      place.read = ordinals[place.part].size();
      ordinals[place.part].push_back(place.ordinal);
    }
  }
  std::vector<std::vector<schema::LeafRecord>> read(parts_.size());
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (ordinals[p].empty()) continue;
    auto records = ReadRecords(engine_->database(), parts_[p].part,
                               parts_[p].map, ordinals[p], here);
    if (!records.ok()) return Annotate(records.status());
    read[p] = *std::move(records);
  }
  return read;
}

absl::Status StepReader::AddAll(std::span<const ReadRequest* const> requests,
                                std::span<Found> found, bool here,
                                ReadPlan* plan) const {
  CKPTREE_ASSIGN_OR_RETURN(std::vector<std::vector<schema::LeafRecord>> read,
                           RecordsOf(found, here));
  std::vector<schema::LeafRecord> records;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    records.clear();
    for (const Place& place : found[i].places) {
      records.push_back(std::move(read[place.part][place.read]));
    }
    const ReadRequest& request = *requests[i];
    CKPTREE_RETURN_IF_ERROR(AddRead(request.path, request.box,
                                    request.destination, *found[i].entry,
                                    records, plan));
  }
  return absl::OkStatus();
}

absl::Status StepReader::ReadAll(std::span<const ReadRequest> requests,
                                 ReadPlan* plan) const {
  std::vector<Found> found(requests.size());
  const auto look = [&](std::size_t, std::size_t begin,
                        std::size_t end) -> absl::Status {
    for (std::size_t i = begin; i < end; ++i) {
      CKPTREE_ASSIGN_OR_RETURN(found[i], Lookup(requests[i].path));
    }
    return absl::OkStatus();
  };
  CKPTREE_RETURN_IF_ERROR(InBatches(requests.size(), look));
  CKPTREE_RETURN_IF_ERROR(Annotate(plan->Ask()));
  std::vector<const ReadRequest*> all;
  all.reserve(requests.size());
  for (const ReadRequest& request : requests) all.push_back(&request);
  CKPTREE_RETURN_IF_ERROR(AddAll(all, found, /*here=*/false, plan));
  return Annotate(plan->Run(engine_->options().threads));
}

absl::Status StepReader::DetailsHere(std::span<const LeafInfo> leaves,
                                     std::span<LeafDetail> details) const {
  std::vector<Found> found(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].is_leaf() && !leaves[i].tie_to.has_value()) continue;
    CKPTREE_ASSIGN_OR_RETURN(found[i], Lookup(leaves[i].path));
  }
  std::vector<std::vector<schema::LeafRecord>> read;
  if (leaves.size() > kFewLeaves) {
    CKPTREE_ASSIGN_OR_RETURN(read, RecordsOf(found, /*here=*/true));
  }
  std::vector<schema::LeafRecord> records;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    records.clear();
    for (const Place& place : found[i].places) {
      if (!read.empty()) {
        records.push_back(std::move(read[place.part][place.read]));
        continue;
      }
      const Part& part = parts_[place.part];
      absl::StatusOr<schema::LeafRecord> record =
          ReadLeaf(engine_->database(), part.part, part.map.At(place.ordinal));
      if (!record.ok()) return Annotate(record.status());
      records.push_back(*std::move(record));
    }
    const bool is_array = leaves[i].kind == EntryKind::kArray;
    details[i] = internal::DetailOf(engine_->database(), records,
                                    is_array ? &leaves[i].shape : nullptr);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LeafDetail>> StepReader::Details(
    const std::vector<LeafInfo>& leaves) const {
  CKPTREE_RETURN_IF_ERROR(engine_->CheckUsable());
  std::vector<LeafDetail> details(leaves.size());
  const auto look = [&](std::size_t, std::size_t begin, std::size_t end) {
    return DetailsHere(std::span(leaves).subspan(begin, end - begin),
                       std::span(details).subspan(begin, end - begin));
  };
  absl::Status status;
  if (leaves.size() <= kLeafBatch) {
    status = look(0, 0, leaves.size());
  } else {
    engine_->arena().execute([&] { status = InBatches(leaves.size(), look); });
  }
  CKPTREE_RETURN_IF_ERROR(status);
  return details;
}

bool StepReader::AreManySmall(std::span<const ReadRequest> requests) {
  if (requests.size() < kManyBatches * kLeafBatch) return false;
  // Of a box the same chunk may be asked for by one in another batch.
  return std::none_of(
      requests.begin(), requests.end(),
      [](const ReadRequest& request) { return request.box.has_value(); });
}

absl::Status StepReader::ReadInBatches(std::span<const ReadRequest> requests,
                                       ReadPlan* plan) const {
  std::uint64_t bytes = 0;
  for (const ReadRequest& request : requests) {
    bytes += request.destination.size();
  }
  plan->Expect(bytes);
  CKPTREE_RETURN_IF_ERROR(Annotate(plan->Tell()));
  const int asked = engine_->options().threads;
  const std::size_t threads = ReadPlan::SmallReaders(bytes, asked);
  // Some for each thread, so that none is left with the last one; and as large
  // as may be, for what lanes of a save wrote is in as many files.
  const std::size_t size =
      std::clamp(requests.size() / (4 * threads), kLeafBatch, 8 * kLeafBatch);
  FirstError error;
  const std::thread::id asking = std::this_thread::get_id();
  std::atomic<std::size_t> next = 0;
  const std::vector<std::size_t> order = OrderOf(requests);
  const auto read = [&](ReadPlan* part, std::size_t begin) -> absl::Status {
    const bool asks = std::this_thread::get_id() == asking;
    if (asks) CKPTREE_RETURN_IF_ERROR(Annotate(plan->Ask()));
    const std::size_t count = std::min(size, requests.size() - begin);
    std::vector<const ReadRequest*> batch(count);
    std::vector<Found> found(count);
    for (std::size_t i = 0; i < count; ++i) {
      batch[i] = &requests[order.empty() ? begin + i : order[begin + i]];
      CKPTREE_ASSIGN_OR_RETURN(found[i], Lookup(batch[i]->path));
    }
    CKPTREE_RETURN_IF_ERROR(AddAll(batch, found, /*here=*/true, part));
    CKPTREE_RETURN_IF_ERROR(Annotate(part->RunSmall(asks)));
    plan->Take(part);
    return absl::OkStatus();
  };
  RunOnDiskThreads(threads, [&] {
    try {
      ReadPlan part(plan);
      while (!error.any()) {
        const std::size_t begin =
            size * next.fetch_add(1, std::memory_order_relaxed);
        if (begin >= requests.size()) return;
        error.Note(read(&part, begin));
      }
    } catch (const std::bad_alloc&) {
      error.Note(absl::ResourceExhaustedError("no memory to read into"));
    }
  });
  if (error.any()) return error.status();
  return Annotate(plan->Run(asked));
}

}  // namespace ckptree::internal
