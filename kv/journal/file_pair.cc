// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/file_pair.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kv/file_system.h"
#include "kv/journal/replay.h"

namespace ckptree::kv {
void FilePair::Parse() {
  while (Advance() || Jump() || Search()) {
  }
  // Where header or rows of a record are damaged in a, b says where its blocks
  // stand; their digests say which are whole.
  for (JournalRecord& record : records_) {
    if (record.blocks.empty()) TakeBlocks(&record);
  }
}

void FilePair::TellDamage(std::uint64_t covered, bool newest, bool crashed) {
  if (records_.empty()) return;
  std::uint64_t ends_at = 0;
  for (const JournalRecord& record : records_) {
    ends_at = std::max(ends_at, record.header.ordinal);
  }
  const bool dropped = !newest && ends_at <= covered;
  for (const Copy copy : kBoth) {
    CopyBytes& from = of(copy);
    if (from.preface.has_value()) continue;
    if (from.bytes == nullptr) {
      // A crash may leave a new file without its second copy; whatever was
      // written to it later was written to both.
      if (dropped || (copy == Copy::kB && ends_at <= follows())) continue;
      damage_.push_back(absl::StrFormat(
          "journal/%s is missing; its other copy is read", from.name));
    } else if (copy == Copy::kA || !crashed ||
               (from.view().size() >= kPrefaceBytes &&
                !AllZero(from.view().substr(0, kPrefaceBytes)))) {
      Tell(from, 0);
    } else {
      ragged_ = absl::StrFormat(
          "journal/%s lacks its first bytes, as a crash may leave it: the next "
          "open for writing mends it",
          from.name);
    }
  }
  CopyBytes& a = of(Copy::kA);
  for (const JournalRecord& record : records_) {
    if (a.bytes != nullptr && record.a_place >= a.at) {
      Tell(a, a.at);
    }
    const std::uint64_t end = record.a_blocks() + record.header.block_bytes;
    if (end < std::min<std::uint64_t>(record.a_end(), a.view().size()) &&
        !AllZero(a.view().substr(end, record.a_end() - end))) {
      damage_.push_back(absl::StrFormat(
          "journal/%s is damaged behind byte %d, where there are no zeros "
          "between two records; nothing is missing",
          a.name, end));
    }
    CopyBytes& b = of(Copy::kB);
    if (b.bytes != nullptr && record.b_place >= b.at && ragged_.empty()) {
      if (closed()) {
        Tell(b, b.at);
      } else if (crashed || b.preface.has_value()) {
        // Also where the session ended well: a write of b may have failed, and
        // the session have gone on in the next file.
        ragged_ = absl::StrFormat(
            "journal/%s ends at byte %d, before its first copy does, as a "
            "crash "
            "may leave it: the next open for writing mends it",
            b.name, std::min<std::uint64_t>(b.at, b.view().size()));
      }
    }
  }
  CopyBytes& b = of(Copy::kB);
  if (closed() && b.bytes != nullptr && !b.sealed) Tell(b, b.at);
  if (!crashed || (damage_of_b_.empty() && ragged_.empty())) return;
  if (const auto wrong = WrongByteOfB(); wrong.has_value()) {
    b_is_wrong_ = true;
    ragged_.clear();
    Tell(b, *wrong);
  }
}

std::optional<std::uint64_t> FilePair::WrongByteOfB() const {
  const CopyBytes& b = copies_[1];
  if (b.bytes == nullptr) return std::nullopt;
  // What is checked of it stands in one sector.
  if (!b.preface.has_value() && b.view().size() >= kPrefaceBytes &&
      !AllZero(b.view().substr(0, kPrefaceBytes))) {
    return 0;
  }
  for (const JournalRecord& record : records_) {
    if (record.b_place >= b.view().size()) continue;
    const std::string right = EncodeRecord(record.header, record.rows);
    const std::string_view there =
        b.view().substr(record.b_place, right.size());
    for (std::size_t i = 0; i < there.size(); ++i) {
      if (there[i] != right[i] && there[i] != '\0') return record.b_place + i;
    }
  }
  return std::nullopt;
}

void FilePair::Report(bool crashed, std::vector<std::string>* damage,
                      std::vector<std::string>* ragged) const {
  damage->insert(damage->end(), damage_.begin(), damage_.end());
  std::vector<std::string>* const of_b =
      crashed && !b_is_wrong_ ? ragged : damage;
  of_b->insert(of_b->end(), damage_of_b_.begin(), damage_of_b_.end());
  if (!ragged_.empty()) ragged->push_back(ragged_);
}

std::vector<JournalRecord>::const_iterator FilePair::Last() const {
  return std::max_element(records_.begin(), records_.end(),
                          [](const auto& x, const auto& y) {
                            return x.header.ordinal < y.header.ordinal;
                          });
}

bool FilePair::IsDone(const JournalRecord& record,
                      const std::optional<TipNote>& tip) const {
  if (InB(record) || &record != &*Last()) return true;
  // Of a copy it was the original.
  const bool copied = record.header.file != file_;
  return !copied && tip.has_value() && tip->hash == record.hash;
}

std::uint64_t FilePair::DropTorn(const std::optional<TipNote>& tip) {
  if (records_.empty()) return end_of_a();
  const auto last = Last();
  if (last->header.block_bytes == 0 || InB(*last) ||
      (tip.has_value() && tip->hash == last->hash) || BlocksAreWhole(*last)) {
    return end_of_a();
  }
  const std::uint64_t place = last->a_place;
  records_.erase(last);
  return place;
}

std::optional<ParsedRecord> FilePair::RecordAt(Copy copy,
                                               std::uint64_t offset) {
  std::optional<ParsedRecord> record = ParseRecord(of(copy).view(), offset);
  if (!record.has_value()) return std::nullopt;
  const RecordHeader& header = record->header;
  if (header.file == file_ && PlaceIn(copy, *record) == offset) {
    return record;
  }
  // The copy of the record before, which an open put first.
  const Preface* const front = preface();
  if (offset == kPrefaceBytes && front != nullptr &&
      header.ordinal == front->follows && record->hash == front->follows_hash) {
    record->a_place = kPrefaceBytes;
    record->b_place = kPrefaceBytes;
    return record;
  }
  return std::nullopt;
}

void FilePair::Add(Copy copy, const ParsedRecord& found) {
  if (found.header.kind == CommitKind::kSeal) {
    of(copy).sealed = true;
    return;
  }
  const CopyBytes& from = of(copy);
  JournalRecord* record = nullptr;
  for (JournalRecord& known : records_) {
    if (known.hash == found.hash) record = &known;
  }
  if (record == nullptr) {
    record = &records_.emplace_back();
    static_cast<ParsedRecord&>(*record) = found;
    record->file = file_;
    record->held[1] = from.bytes;
  }
  if (copy == Copy::kA) TakeBlocks(record);
}

void FilePair::TakeBlocks(JournalRecord* record) {
  const CopyBytes& a = of(Copy::kA);
  const RecordHeader& header = record->header;
  const std::uint64_t begin = record->a_blocks();
  if (header.block_bytes == 0 || begin > a.view().size() ||
      header.block_bytes > a.view().size() - begin) {
    return;
  }
  record->blocks = a.view().substr(begin, header.block_bytes);
  record->held[0] = a.bytes;
}

bool FilePair::Advance() {
  bool any = false;
  for (const Copy copy : kBoth) {
    CopyBytes& from = of(copy);
    while (!from.sealed) {
      const auto record = RecordAt(copy, from.at);
      if (!record.has_value()) break;
      Add(copy, *record);
      from.at = EndIn(copy, *record);
      any = true;
    }
  }
  return any;
}

bool FilePair::Jump() {
  for (const Copy copy : kBoth) {
    CopyBytes& from = of(copy);
    if (from.sealed || from.bytes == nullptr) continue;
    std::optional<std::uint64_t> next;
    for (const JournalRecord& record : records_) {
      const std::uint64_t at = PlaceIn(copy, record);
      const std::uint64_t to = at == from.at ? EndIn(copy, record) : at;
      if (at >= from.at && to > from.at && to < from.view().size()) {
        next = std::min(next.value_or(to), to);
      }
    }
    if (!next.has_value()) continue;
    Tell(from, from.at);
    from.at = *next;
    return true;
  }
  return false;
}

bool FilePair::Search() {
  const auto found = [this](Copy copy, std::uint64_t at) {
    if (!RecordAt(copy, at).has_value()) return false;
    Tell(of(copy), of(copy).at);
    of(copy).at = at;
    return true;
  };
  const CopyBytes& a = of(Copy::kA);
  if (a.sealed) return false;
  for (std::uint64_t at = a.at + kJournalSector;
       at + kRecordHeaderBytes <= a.view().size(); at += kJournalSector) {
    if (!a.view().substr(at).starts_with(kRecordMagic)) continue;
    if (found(Copy::kA, at)) return true;
  }
  // Records stand close together there. It is behind a as long as a goes on.
  const CopyBytes& b = of(Copy::kB);
  if (b.sealed) return false;
  for (std::size_t at = b.view().find(kRecordMagic, b.at + 1);
       at != std::string_view::npos; at = b.view().find(kRecordMagic, at + 1)) {
    if (found(Copy::kB, at)) return true;
  }
  return false;
}

void FilePair::Tell(CopyBytes& copy, std::uint64_t at) {
  if (copy.told) return;
  copy.told = true;
  std::string text = absl::StrFormat(
      "journal/%s is damaged at byte %d; its other copy is read", copy.name,
      at);
  (&copy == &of(Copy::kB) ? damage_of_b_ : damage_).push_back(std::move(text));
}

bool FilePair::a_ends_in_zeros() const {
  const CopyBytes& a = copies_[0];
  return a.view().size() >= a.at + kJournalSector &&
         AllZero(a.view().substr(a.at, kJournalSector));
}

bool FilePair::a_goes_on() const {
  const CopyBytes& a = copies_[0];
  return a.view().size() > a.at && !AllZero(a.view().substr(a.at));
}

bool FilePair::both_go_on() const {
  const CopyBytes& b = copies_[1];
  // b.at may be before the end of a record that a crash left the half of.
  const std::uint64_t end = records_.empty() ? kPrefaceBytes : Last()->b_end();
  return a_goes_on() && b.view().size() > end && !AllZero(b.view().substr(end));
}

}  // namespace ckptree::kv
