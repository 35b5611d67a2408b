// SPDX-License-Identifier: Apache-2.0

#include "core/version/step_rows.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "core/process/arena.h"
#include "core/version/row_scan.h"
#include "schema/spaces.h"

namespace ckptree::internal {
namespace {

// So few rows are decoded faster by one thread.
constexpr std::size_t kRowsOfTask = 512;
// And so few pieces take less than to begin the threads of an arena, in a
// process that needs none for anything else.
constexpr std::size_t kPiecesOfOneThread = 4;

// Rows as they stand in the database, and what they are.
class RowPiece {
 public:
  void Add(std::string_view key, std::string_view value) {
    const std::size_t begin = bytes_.size();
    bytes_.append(key).append(value);
    places_.push_back({begin, begin + key.size(), bytes_.size()});
  }
  std::size_t size() const { return places_.size(); }
  std::string_view key(std::size_t i) const {
    return Bytes(places_[i].begin, places_[i].value);
  }

  void Decode() {
    records_.reserve(size());
    for (std::size_t i = 0; i < size(); ++i) {
      records_.push_back(StepIn(schema::DecodeStepKey(key(i)),
                                Bytes(places_[i].value, places_[i].end)));
    }
  }
  // One for each row, once decoded.
  std::vector<absl::StatusOr<StepRecordPtr>>& records() { return records_; }

 private:
  struct Place {
    std::size_t begin, value, end;
  };

  std::string_view Bytes(std::size_t begin, std::size_t end) const {
    return std::string_view(bytes_).substr(begin, end - begin);
  }

  std::string bytes_;  // Keys and values, one after the other.
  std::vector<Place> places_;
  std::vector<absl::StatusOr<StepRecordPtr>> records_;
};

// How much further back the newest are looked for where too few were found.
constexpr std::uint64_t kWider = 8;

// Without overflow: numbers of steps are of the whole range.
std::uint64_t Between(std::int64_t low, std::int64_t high) {
  return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
}
std::int64_t Above(std::int64_t low, std::uint64_t by) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + by);
}
std::int64_t Below(std::int64_t high, std::uint64_t by) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(high) - by);
}

}  // namespace

absl::StatusOr<StepRecordPtr> StepIn(
    const std::optional<schema::StepKeyFields>& fields,
    std::string_view value) {
  CKPTREE_ASSIGN_OR_RETURN(schema::StepRecord record,
                           schema::DecodeStepRecord(value));
  if (!fields.has_value() || fields->step != record.step ||
      fields->branch != record.branch) {
    return absl::DataLossError("its record is of another step");
  }
  return std::make_shared<const schema::StepRecord>(std::move(record));
}

absl::StatusOr<StepRows> StepRows::Open(const kv::Database& database) {
  const schema::KeyRange range = schema::AllRows(schema::Row::kStep);
  CKPTREE_ASSIGN_OR_RETURN(
      kv::Iterator scan,
      database.Scan(schema::Space::kRecords, range.begin, range.end));
  return StepRows(std::move(scan));
}

absl::StatusOr<std::optional<std::int64_t>> StepRows::Seek(std::uint32_t branch,
                                                           std::int64_t step) {
  scan_.Seek(schema::StepKey(branch, step));
  if (!scan_.Valid()) {
    CKPTREE_RETURN_IF_ERROR(scan_.status());
    return std::nullopt;
  }
  const auto fields = schema::DecodeStepKey(scan_.key());
  if (!fields.has_value()) return absl::DataLossError("a key is of no step");
  if (fields->branch != branch) return std::nullopt;
  return fields->step;
}

absl::StatusOr<StepRecordPtr> StepRows::Find(std::uint32_t branch,
                                             std::int64_t step) {
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::int64_t> found,
                           Seek(branch, step));
  if (found != step) return StepRecordPtr();
  return StepIn(schema::DecodeStepKey(scan_.key()), scan_.value());
}

absl::StatusOr<std::int64_t> StepRows::Last(std::uint32_t branch,
                                            std::int64_t first) {
  std::int64_t low = first;                                      // There is it.
  std::int64_t high = std::numeric_limits<std::int64_t>::max();  // None above.
  // Strides that grow until one leads beyond the last; then by halves. An
  // iterator only goes forward.
  std::uint64_t stride = 1;
  bool beyond = false;
  while (low != high) {
    const std::uint64_t room = Between(low, high);
    stride = beyond ? room / 2 + room % 2 : std::min(2 * stride, room);
    const std::int64_t at = Above(low, stride);
    CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::int64_t> found,
                             Seek(branch, at));
    if (found.has_value()) {
      low = *found;
    } else {
      high = Below(at, 1);
      beyond = true;
    }
  }
  return low;
}

absl::StatusOr<std::vector<StepRecordPtr>> StepRows::Newest(
    std::uint32_t branch, std::size_t count) {
  std::vector<StepRecordPtr> newest;
  CKPTREE_ASSIGN_OR_RETURN(
      const std::optional<std::int64_t> first,
      Seek(branch, std::numeric_limits<std::int64_t>::min()));
  if (!first.has_value() || count == 0) return newest;
  CKPTREE_ASSIGN_OR_RETURN(const std::int64_t last, Last(branch, *first));
  std::uint64_t back = count - 1;
  for (;;) {
    const std::int64_t from =
        Below(last, std::min(back, Between(*first, last)));
    std::deque<std::pair<schema::StepKeyFields, std::string>> rows;
    CKPTREE_ASSIGN_OR_RETURN(std::optional<std::int64_t> at,
                             Seek(branch, from));
    while (at.has_value()) {
      rows.emplace_back(schema::StepKeyFields{branch, *at}, scan_.value());
      if (rows.size() > count) rows.pop_front();
      if (*at == last) break;
      scan_.Next();
      if (!scan_.Valid()) {
        CKPTREE_RETURN_IF_ERROR(scan_.status());
        return absl::DataLossError("the rows of steps end before the last one");
      }
      const auto fields = schema::DecodeStepKey(scan_.key());
      if (!fields.has_value() || fields->branch != branch) {
        return absl::DataLossError("a key is of no step");
      }
      at = fields->step;
    }
    if (rows.size() == count || from == *first) {
      for (const auto& [fields, value] : rows) {
        CKPTREE_ASSIGN_OR_RETURN(newest.emplace_back(), StepIn(fields, value));
      }
      return newest;
    }
    back = back > Between(*first, last) / kWider ? Between(*first, last)
                                                 : kWider * (back + 1);
  }
}

absl::Status StepRows::ReadAll(std::vector<std::string>* problems,
                               StepsByBranch* steps, BadRows* bad,
                               Arena* arena) {
  const auto take = [&](std::string_view key,
                        absl::StatusOr<StepRecordPtr> record) {
    if (!record.ok()) {
      problems->emplace_back(NamingRow(key, record.status()).message());
      const auto fields = schema::DecodeStepKey(key);
      if (fields.has_value()) {
        const auto at = bad->try_emplace(fields->branch, fields->step).first;
        at->second = std::max(at->second, fields->step);
      }
      return;
    }
    StepsByNumber& of_branch = (*steps)[(*record)->branch];
    const std::int64_t step = (*record)->step;
    of_branch.emplace_hint(of_branch.end(), step, *std::move(record));
  };
  std::deque<RowPiece> pieces;  // None is moved as more come.
  const auto read_piece = [&]() -> RowPiece& {
    RowPiece& piece = pieces.emplace_back();
    for (; piece.size() < kRowsOfTask && scan_.Valid(); scan_.Next()) {
      piece.Add(scan_.key(), scan_.value());
    }
    return piece;
  };
  // Each piece is decoded by other threads while the next one is read.
  const auto spread = [&] {
    // A thread that waits for the others must not begin what wants a lock that
    // the caller has.
    Isolated([&] {
      TaskGroup tasks;
      for (RowPiece& piece : pieces) tasks.run([&piece] { piece.Decode(); });
      while (scan_.Valid()) {
        tasks.run([&piece = read_piece()] { piece.Decode(); });
      }
      tasks.wait();
    });
  };
  scan_.Seek(schema::AllRows(schema::Row::kStep).begin);
  while (pieces.size() < kPiecesOfOneThread && scan_.Valid()) read_piece();
  if (!scan_.Valid()) {
    for (RowPiece& piece : pieces) piece.Decode();
  } else if (arena != nullptr) {
    arena->execute(spread);
  } else {
    spread();
  }
  const absl::Status scanned = scan_.status();
  for (RowPiece& piece : pieces) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      take(piece.key(i), std::move(piece.records()[i]));
    }
  }
  if (!scanned.ok()) problems->emplace_back(scanned.message());
  return scanned;
}

}  // namespace ckptree::internal
