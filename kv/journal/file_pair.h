// SPDX-License-Identifier: Apache-2.0

// Both copies of one file of the journal: the records that they have together,
// and what is wrong with either.

#ifndef CKPTREE_KV_JOURNAL_FILE_PAIR_H_
#define CKPTREE_KV_JOURNAL_FILE_PAIR_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/journal/preface.h"
#include "kv/journal/reader.h"
#include "kv/journal/record.h"

namespace ckptree::kv {

// One copy of one file, as it lies there.
struct CopyBytes {
  std::string name;
  std::shared_ptr<const std::string> bytes;  // Null: not there.
  std::optional<Preface> preface;
  std::uint64_t at = kPrefaceBytes;  // Up to where it was read.
  bool sealed = false;
  // Told once each.
  bool told = false;

  std::string_view view() const {
    return bytes == nullptr ? std::string_view() : std::string_view(*bytes);
  }
};

// Both copies of one file number.
class FilePair {
 public:
  FilePair(std::uint64_t file, CopyBytes a, CopyBytes b)
      : file_(file), copies_{std::move(a), std::move(b)} {}

  // Finds the records. Once, before all else.
  void Parse();

  // Whether the file was ever written to.
  bool used() const {
    if (!records_.empty()) return true;
    return copies_[0].preface.has_value() || copies_[1].preface.has_value();
  }
  std::uint64_t file() const { return file_; }
  // Of those who wrote to it; 0 where nobody did.
  std::uint64_t session() const {
    if (preface() != nullptr) return preface()->session;
    return records_.empty() ? 0 : records_.back().header.session;
  }
  bool sealed() const { return copies_[0].sealed || copies_[1].sealed; }
  // A close sealed both, and took what was made ahead from the end of a after b
  // was durable: b has no holes, and no earlier end, but by damage.
  bool closed() const {
    return copies_[0].sealed && !a_ends_in_zeros() &&
           copies_[0].view().size() <= copies_[0].at + kJournalSector;
  }
  // Behind the last record of a is nothing but what was made ahead.
  bool a_ends_in_zeros() const;
  std::uint64_t end_of_a() const { return copies_[0].at; }
  // Something was begun behind it.
  bool a_goes_on() const;
  // The same of both. A record goes to b once a is synced with all of it: what
  // was begun in both was durable.
  bool both_go_on() const;
  const Preface* preface() const {
    for (const CopyBytes& copy : copies_) {
      if (copy.preface.has_value()) return &*copy.preface;
    }
    return nullptr;
  }
  std::vector<JournalRecord>& records() { return records_; }
  const std::vector<JournalRecord>& records() const { return records_; }
  // Whether a was synced with all of it: b has it, or it was noted, or another
  // one follows. Else a crash may have left the half, of a copy of an earlier
  // record, too.
  bool IsDone(const JournalRecord& record,
              const std::optional<TipNote>& tip) const;
  std::uint64_t follows() const {
    return preface() == nullptr ? 0 : preface()->follows;
  }
  // What is wrong with a copy of a file that has records, but for its tail: a
  // may have a record that was never finished, and b may end earlier, or lack
  // what was not synced.
  //
  // `covered`: the ordinal that the file of all rows goes to. Files that end
  // there are dropped, and a crash in between may leave one copy; but not
  // `newest`, the file with the highest number. `crashed`: as for Report().
  void TellDamage(std::uint64_t covered, bool newest, bool crashed);

  // `crashed`: the session that wrote it did not seal its last file, and b may
  // have holes where it was not synced: zeros. What may be that, or the end of
  // b, goes to `ragged`.
  void Report(bool crashed, std::vector<std::string>* damage,
              std::vector<std::string>* ragged) const;
  // Takes the last record back where only a has it and a block of it is not
  // whole: it was never finished, or is not yet. Where the next one stands.
  std::uint64_t DropTorn(const std::optional<TipNote>& tip);

 private:
  static constexpr std::array<Copy, 2> kBoth = {Copy::kA, Copy::kB};

  CopyBytes& of(Copy copy) { return copies_[copy == Copy::kA ? 0 : 1]; }

  static std::uint64_t PlaceIn(Copy copy, const ParsedRecord& record) {
    return copy == Copy::kA ? record.a_place : record.b_place;
  }
  static std::uint64_t EndIn(Copy copy, const ParsedRecord& record) {
    return copy == Copy::kA ? record.a_end() : record.b_end();
  }
  // The record with the highest ordinal; end() of none.
  std::vector<JournalRecord>::const_iterator Last() const;
  bool InB(const JournalRecord& record) const {
    return record.b_place < copies_[1].at;
  }

  // The record at `offset` that belongs there.
  std::optional<ParsedRecord> RecordAt(Copy copy, std::uint64_t offset);

  void Add(Copy copy, const ParsedRecord& found);

  // As they stand in a, whole or not.
  void TakeBlocks(JournalRecord* record);

  // Reads on in both as far as one record follows the other.
  bool Advance();

  // Past a damaged record of one copy, by what the other says of it.
  bool Jump();

  // Behind damage in both: records of a stand at multiples of a sector.
  bool Search();

  void Tell(CopyBytes& copy, std::uint64_t at);

  // Where b has what no crash leaves: a byte that is neither that of its record
  // nor zero.
  std::optional<std::uint64_t> WrongByteOfB() const;

  const std::uint64_t file_;
  std::array<CopyBytes, 2> copies_;
  std::vector<JournalRecord> records_;
  std::vector<std::string> damage_;
  std::vector<std::string> damage_of_b_;
  std::string ragged_;
  bool b_is_wrong_ = false;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_JOURNAL_FILE_PAIR_H_
