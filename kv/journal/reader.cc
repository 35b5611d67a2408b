// SPDX-License-Identifier: Apache-2.0

#include "kv/journal/reader.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "base/status_text.h"
#include "kv/file_system.h"
#include "kv/files/status.h"
#include "kv/journal/file_pair.h"
#include "kv/journal/replay.h"
#include "kv/journal/rows_file.h"
#include "kv/store_directory.h"

namespace ckptree::kv {
namespace {

// Far above every file that the writer makes: the largest batch and its blocks.
constexpr std::size_t kMostFileBytes = std::size_t{600} << 20;
// A file has some of them made ahead; one that was damaged may have no end of
// them. More than the blocks of any record, which may be zeros.
constexpr std::size_t kMostZeros = std::size_t{32} << 20;

// The files of the journal, by what they say of themselves: a name may be
// wrong where files were moved about.
struct Files {
  std::map<JournalFileId, CopyBytes> copies;
  std::optional<TipNote> tip;
  bool tip_damaged = false;
};

class Reader {
 public:
  Reader(const Options& options, const std::string& directory,
         std::uint64_t from, bool beside_writer, WhereUnreadable unreadable)
      : options_(options),
        directory_(Join(directory, kJournalName)),
        from_(from),
        beside_writer_(beside_writer),
        where_unreadable_(unreadable) {}

  absl::StatusOr<JournalContent> Run() {
    CKPTREE_RETURN_IF_ERROR(List());
    CKPTREE_RETURN_IF_ERROR(ReadPairs());
    CKPTREE_RETURN_IF_ERROR(JudgeUnreadable());
    ChooseChain();
    if (from_ <= 1 && !beside_writer_) TellBlocks();
    TakeFollows();
    JudgeTip();
    return std::move(content_);
  }

 private:
  absl::StatusOr<std::string> Read(const std::string& name,
                                   std::size_t max_bytes) {
    absl::StatusOr<std::string> bytes = ReadWhatIsThere(name, max_bytes);
    if (!IsUnreadable(bytes.status())) return bytes;
    // What the disk cannot give is as good as damaged: the other copy has it.
    unreadable_.try_emplace(name, bytes.status());
    return std::string();
  }

  absl::StatusOr<std::string> ReadWhatIsThere(const std::string& name,
                                              std::size_t max_bytes) {
    const std::string path = Join(directory_, name);
    CKPTREE_ASSIGN_OR_RETURN(const std::uint64_t size,
                             FileSize(options_, path));
    if (size > kMostFileBytes) {
      content_.damage.push_back(absl::StrFormat(
          "journal/%s has %d bytes, which no file of a journal has", name,
          size));
    }
    return ReadFile(options_, path, std::min<std::size_t>(size, max_bytes),
                    kMostZeros);
  }

  // A first copy has blocks that may be nowhere else, and records of the last
  // second after a power cut. The disk may give it tomorrow: who went on
  // without it today would let them go.
  absl::Status JudgeUnreadable() {
    for (const auto& [name, why] : unreadable_) {
      const auto id = ParseJournalFileName(name);
      if (where_unreadable_ == WhereUnreadable::kFirstCopyIsRefused &&
          id.has_value() && id->copy == Copy::kA) {
        return base::WithText(
            why, absl::StrFormat("%s; where the disk gives it no more `ckptree "
                                 "repair` goes on with what there is",
                                 why.message()));
      }
      if (beside_writer_) continue;
      content_.damage.push_back(absl::StrFormat("journal/%s cannot be read: %s",
                                                name, why.message()));
    }
    return absl::OkStatus();
  }

  absl::Status List() {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                             ListDirectory(options_, directory_));
    std::map<JournalFileId, std::string> named;
    std::optional<Preface> in_tip;  // Files may have changed their names.
    for (const std::string& name : names) {
      if (const auto id = ParseJournalFileName(name)) named[*id] = name;
      covered_ = std::max(covered_, OrdinalOfRowsFile(name).value_or(0));
      if (name != kTipName) continue;
      tip_is_there_ = true;
      const absl::StatusOr<std::string> bytes = Read(name, kPrefaceBytes);
      if (absl::IsNotFound(bytes.status())) continue;
      CKPTREE_RETURN_IF_ERROR(bytes.status());
      tip_ = DecodeTip(*bytes);
      if (!tip_.has_value()) in_tip = DecodePreface(*bytes);
      // Zeros are of one that was never written, or not synced before a crash:
      // what is checked stands in one sector. A writer may be about to write.
      if (!tip_.has_value() && !in_tip.has_value() && !beside_writer_ &&
          !unreadable_.contains(name)) {
        tip_is_zeros_ = bytes->find_first_not_of('\0') == std::string::npos;
        if (!tip_is_zeros_) TellTip();
      }
    }
    if (named.empty() && !tip_.has_value()) {
      if (covered_ > 0) {
        return absl::DataLossError(absl::StrFormat(
            "both copies of the journal in %s are gone", directory_));
      }
      return absl::NotFoundError(
          absl::StrFormat("there is no journal in %s", directory_));
    }
    std::map<JournalFileId, std::pair<std::string, Preface>> claimed;
    for (const auto& [id, name] : named) {
      content_.files.push_back(id);
      content_.highest_file = std::max(content_.highest_file, id.file);
      absl::StatusOr<std::string> bytes = Read(name, kPrefaceBytes);
      if (absl::IsNotFound(bytes.status())) {
        if (beside_writer_) continue;  // It was dropped since.
      }
      CKPTREE_RETURN_IF_ERROR(bytes.status());
      prefaces_[id] = DecodePreface(*bytes);
      if (!prefaces_[id].has_value() && !tip_.has_value()) {
        tip_ = DecodeTip(*bytes);
      }
    }
    // Of this store: a file of another one does not belong to its journal.
    std::map<std::array<std::uint8_t, 16>, int> votes;
    if (tip_.has_value()) ++votes[tip_->uuid];
    for (const auto& [id, preface] : prefaces_) {
      if (preface.has_value()) ++votes[preface->uuid];
    }
    for (const auto& [uuid, count] : votes) {
      if (count > votes[uuid_]) uuid_ = uuid;
    }
    if (tip_.has_value() && tip_->uuid != uuid_) tip_.reset();
    std::optional<std::uint64_t> begins_behind;
    for (const auto& [id, preface] : prefaces_) {
      JournalFileId is = id;
      if (preface.has_value() && preface->uuid != uuid_) {
        content_.damage.push_back(
            absl::StrFormat("journal/%s belongs to another store", named[id]));
        continue;
      }
      if (preface.has_value()) is = {preface->copy, preface->file};
      if (is != id) {
        content_.damage.push_back(
            absl::StrFormat("journal/%s is %s under another name", named[id],
                            JournalFileName(is.copy, is.file)));
      }
      if (preface.has_value()) {
        begins_behind = std::min(begins_behind.value_or(preface->follows),
                                 preface->follows);
      }
      // A file under its own name goes before another that says the same.
      const auto [it, fresh] = names_.try_emplace(is, named[id]);
      if (!fresh && is == id) it->second = named[id];
      content_.highest_file = std::max(content_.highest_file, is.file);
    }
    content_.begins_behind = begins_behind.value_or(0);
    if (in_tip.has_value() && in_tip->uuid == uuid_) {
      const JournalFileId is = {in_tip->copy, in_tip->file};
      content_.in_tip = JournalFileName(is.copy, is.file);
      content_.damage.push_back(
          absl::StrFormat("journal/%s is %s under another name",
                          std::string(kTipName), content_.in_tip));
      // What has its name has no preface of it.
      if (!prefaces_[is].has_value()) {
        names_[is] = kTipName;
        prefaces_[is] = in_tip;
      }
      content_.highest_file = std::max(content_.highest_file, is.file);
    }
    return absl::OkStatus();
  }

  void TellTip() {
    content_.damage.push_back(
        absl::StrFormat("journal/%s is damaged: it says nothing; the next open "
                        "for writing makes it anew",
                        std::string(kTipName)));
  }

  // The first file that may have a record from `from_` on.
  std::uint64_t FirstFile() const {
    std::uint64_t first = 0;
    for (const auto& [id, name] : names_) {
      const auto preface = prefaces_.find(id);
      if (preface == prefaces_.end() || !preface->second.has_value()) continue;
      if (preface->second->follows < from_) {
        first = std::max(first, preface->second->file);
      }
    }
    return first;
  }

  absl::StatusOr<CopyBytes> Load(const JournalFileId& id) {
    CopyBytes copy;
    const auto it = names_.find(id);
    copy.name = JournalFileName(id.copy, id.file);
    if (it == names_.end()) return copy;
    absl::StatusOr<std::string> bytes = Read(it->second, kMostFileBytes);
    if (absl::IsNotFound(bytes.status())) {
      // Its rows are in an index that the caller may not have seen yet.
      if (beside_writer_) return absl::AbortedError("the journal was cut");
      return copy;
    }
    CKPTREE_RETURN_IF_ERROR(bytes.status());
    copy.bytes = std::make_shared<const std::string>(*std::move(bytes));
    copy.preface = DecodePreface(copy.view());
    if (copy.preface.has_value() && copy.preface->uuid != uuid_) {
      copy.preface.reset();
    }
    return copy;
  }

  absl::Status ReadPairs() {
    const std::uint64_t first = FirstFile();
    std::vector<std::uint64_t> numbers;
    for (const auto& [id, name] : names_) {
      if (id.file >= first) numbers.push_back(id.file);
    }
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    for (const std::uint64_t number : numbers) {
      // A writer appends to a and then to b. Read the other way round, whatever
      // is in b is in a as well, with its blocks.
      CKPTREE_ASSIGN_OR_RETURN(CopyBytes b, Load({Copy::kB, number}));
      CKPTREE_ASSIGN_OR_RETURN(CopyBytes a, Load({Copy::kA, number}));
      FilePair& pair = pairs_.emplace_back(number, std::move(a), std::move(b));
      pair.Parse();
    }
    // Behind the last file that was written to there may be one made ahead.
    const auto last =
        std::find_if(pairs_.rbegin(), pairs_.rend(),
                     [](const FilePair& pair) { return pair.used(); });
    // Second copies are synced once a second, and a session may have begun more
    // files in it: where it ended in a crash none of its second copies need be
    // whole. The next open has all rows written anew, and drops these files.
    std::map<std::uint64_t, bool> closed;  // By session: its last file.
    for (const FilePair& pair : pairs_) {
      if (pair.used()) closed[pair.session()] = pair.closed();
    }
    // It is made, and its name made durable, before the first record.
    if (last != pairs_.rend() && !tip_is_there_ && !beside_writer_) {
      content_.damage.push_back(absl::StrFormat(
          "journal/%s is gone; the next open for writing makes it anew",
          std::string(kTipName)));
    }
    // A close syncs it before it cuts what was made ahead.
    if (tip_is_zeros_ && std::ranges::any_of(pairs_, &FilePair::closed)) {
      TellTip();
    }
    // What the live one wrote is all there as long as the system runs.
    if (beside_writer_ && last != pairs_.rend()) {
      closed[last->session()] = true;
    }
    for (FilePair& pair : pairs_) {
      const bool crashed = pair.used() && !closed[pair.session()];
      if (!beside_writer_) {
        pair.TellDamage(covered_, &pair == &pairs_.back(), crashed);
      }
      pair.Report(crashed, &content_.damage, &content_.ragged);
    }
    if (last != pairs_.rend()) {
      content_.end_file = last->file();
      content_.end_offset = last->DropTorn(tip_);
    }
    for (FilePair& pair : pairs_) {
      for (const JournalRecord& record : pair.records()) {
        candidates_[record.header.ordinal].push_back(&record);
        content_.highest_session =
            std::max(content_.highest_session, record.header.session);
      }
      if (const Preface* preface = pair.preface()) {
        content_.highest_session =
            std::max(content_.highest_session, preface->session);
        content_.version_ceiling =
            std::max(content_.version_ceiling, preface->version_ceiling);
        content_.newest = *preface;
      }
    }
    return absl::OkStatus();
  }

  // What an open did not see when it began its first file is not there, even
  // should it show up later.
  bool IsVoid(const RecordHeader& header) const {
    return std::any_of(
        pairs_.begin(), pairs_.end(), [&header](const FilePair& pair) {
          const Preface* const preface = pair.preface();
          return preface != nullptr && preface->session > header.session &&
                 preface->follows < header.ordinal;
        });
  }

  void ChooseChain() {
    for (auto it = candidates_.begin(); it != candidates_.end();) {
      std::erase_if(it->second, [this](const JournalRecord* record) {
        return IsVoid(record->header);
      });
      it = it->second.empty() ? candidates_.erase(it) : std::next(it);
    }
    if (candidates_.empty()) return;
    const auto& [ordinal, last] = *candidates_.rbegin();
    const JournalRecord* record = last.front();
    for (const JournalRecord* other : last) {
      if (other->hash == record->hash) {
        if (record->blocks.empty()) record = other;
        continue;
      }
      content_.doubt = absl::DataLossError(
          absl::StrFormat("there are two different commits %d", ordinal));
    }
    content_.tip = record->point();
    std::uint64_t next = ordinal;
    std::optional<base::Digest> wanted = record->hash;  // Of the record `next`.
    for (auto it = candidates_.rbegin(); it != candidates_.rend(); ++it) {
      if (it->first < next) {
        content_.lost.push_back({it->first + 1, next});
        wanted.reset();
        next = it->first;
      }
      const JournalRecord* found = nullptr;
      for (const JournalRecord* other : it->second) {
        if (wanted.has_value() && other->hash != *wanted) continue;
        if (found == nullptr || found->blocks.size() < other->blocks.size()) {
          found = other;  // One with its blocks goes before one without.
        }
      }
      --next;
      if (found == nullptr) {
        // One that belongs to another chain has its place.
        content_.lost.push_back({it->first, it->first});
        wanted.reset();
        continue;
      }
      wanted = found->header.previous;
      content_.version_ceiling =
          std::max({content_.version_ceiling, found->header.version_ceiling,
                    found->header.version});
      if (it->first >= from_) content_.records[it->first] = *found;
    }
    std::reverse(content_.lost.begin(), content_.lost.end());
    // What was not asked for may be damaged, and hurts nobody here.
    std::erase_if(content_.lost, [this](const LostCommits& lost) {
      return lost.last < from_;
    });
  }

  // Blocks, which no hash of a record is over. For whoever asks for all of the
  // journal.
  void TellBlocks() {
    for (const FilePair& pair : pairs_) {
      for (const JournalRecord& record : pair.records()) {
        const auto chosen = content_.records.find(record.header.ordinal);
        if (chosen == content_.records.end() ||
            chosen->second.hash != record.hash || !pair.IsDone(record, tip_)) {
          continue;
        }
        if (const auto at = PlaceOfWrongBlock(record)) {
          content_.damage.push_back(absl::StrFormat(
              "journal/%s is damaged at byte %d, in array bytes of commit %d, "
              "which are read in db/ where it has them",
              JournalFileName(Copy::kA, record.file), *at,
              record.header.ordinal));
        }
      }
    }
  }

  // An open that began a file knew the commit before it, and had it durable.
  void TakeFollows() {
    const Preface* newest = nullptr;
    if (tip_.has_value()) content_.durable = tip_->ordinal;
    for (const FilePair& pair : pairs_) {
      const Preface* const preface = pair.preface();
      if (preface == nullptr) continue;
      content_.durable = std::max(content_.durable, preface->follows);
      if (newest == nullptr || preface->session >= newest->session) {
        newest = preface;
      }
    }
    if (newest == nullptr || newest->follows <= content_.tip.ordinal) return;
    const std::uint64_t first =
        std::max(content_.tip.ordinal, content_.begins_behind) + 1;
    if (first <= newest->follows && newest->follows >= from_) {
      content_.lost.push_back({first, newest->follows});
    }
    content_.tip = {newest->follows, newest->follows_hash};
  }

  void JudgeTip() {
    if (beside_writer_) return;
    const FilePair* last = nullptr;
    for (const FilePair& pair : pairs_) {
      if (pair.used()) last = &pair;
    }
    if (tip_.has_value()) {
      content_.noted = ChainPoint{tip_->ordinal, tip_->hash};
      content_.highest_session =
          std::max(content_.highest_session, tip_->session);
    }
    const bool noted = content_.noted == content_.tip;
    if (tip_.has_value() && tip_->ordinal > content_.tip.ordinal) {
      content_.lost.push_back({content_.tip.ordinal + 1, tip_->ordinal});
    } else if (tip_.has_value() && tip_->ordinal == content_.tip.ordinal &&
               !noted) {
      content_.doubt = absl::DataLossError(absl::StrFormat(
          "commit %d is not the one that was acknowledged", tip_->ordinal));
    }
    if (last == nullptr) {
      if (tip_.has_value()) content_.newest.uuid = tip_->uuid;
      content_.doubt =
          absl::DataLossError("both copies of the journal are gone");
      return;
    }
    content_.sealed = last->sealed();
    if (!content_.sealed && !tip_.has_value() && last->both_go_on()) {
      content_.open_end = absl::StrFormat(
          "behind commit %d both copies of journal/%s go on with what is no "
          "record",
          content_.tip.ordinal, JournalFileName(Copy::kA, last->file()));
      return;
    }
    if (content_.sealed || noted || last->a_ends_in_zeros() ||
        last->a_goes_on()) {
      return;
    }
    content_.open_end =
        absl::StrFormat("journal/%s is gone or cut short",
                        JournalFileName(Copy::kA, last->file()));
  }

  const Options& options_;
  const std::string directory_;
  const std::uint64_t from_;
  const bool beside_writer_;
  const WhereUnreadable where_unreadable_;
  std::map<std::string, absl::Status> unreadable_;  // By name.
  JournalContent content_;
  std::optional<TipNote> tip_;
  bool tip_is_there_ = false;  // The file, whatever it says.
  bool tip_is_zeros_ = false;
  std::uint64_t covered_ = 0;  // By a file of all rows.
  std::array<std::uint8_t, 16> uuid_{};
  std::map<JournalFileId, std::optional<Preface>> prefaces_;  // By name.
  std::map<JournalFileId, std::string> names_;  // By what they are.
  std::vector<FilePair> pairs_;
  std::map<std::uint64_t, std::vector<const JournalRecord*>> candidates_;
};

}  // namespace

std::string Text(const LostCommits& lost) {
  return lost.first == lost.last
             ? absl::StrFormat("commit %d was acknowledged and is missing",
                               lost.first)
             : absl::StrFormat(
                   "commits %d to %d were acknowledged and are missing",
                   lost.first, lost.last);
}

std::optional<base::Digest> HashAt(const JournalContent& journal,
                                   std::uint64_t ordinal) {
  if (const auto it = journal.records.find(ordinal);
      it != journal.records.end()) {
    return it->second.hash;
  }
  if (const auto it = journal.records.find(ordinal + 1);
      it != journal.records.end()) {
    return it->second.header.previous;
  }
  if (journal.tip.ordinal == ordinal) return journal.tip.hash;
  if (journal.noted.has_value() && journal.noted->ordinal == ordinal) {
    return journal.noted->hash;
  }
  return std::nullopt;
}

absl::StatusOr<JournalContent> ReadJournal(const Options& options,
                                           const std::string& directory,
                                           std::uint64_t from,
                                           bool beside_writer,
                                           WhereUnreadable unreadable) {
  return Reader(options, directory, from, beside_writer, unreadable).Run();
}

}  // namespace ckptree::kv
