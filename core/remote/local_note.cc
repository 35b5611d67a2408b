// SPDX-License-Identifier: Apache-2.0

#include "core/remote/local_note.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "kv/conditional_put.h"
#include "kv/file_system.h"
#include "kv/object_store.h"
#include "kv/store_directory.h"

namespace ckptree::internal {
namespace {

constexpr std::size_t kMostBytes = 16 << 10;
// The lines of every note; then `from`, and one for each address.
constexpr std::size_t kFirstLines = 4;
// More addresses than a store is ever shipped to.
constexpr std::size_t kMostAddresses = 32;
constexpr std::size_t kIdDigits = 32;
constexpr char kNoId[] = "-";
// Of the last line, of notes that have one: the digest of all before it.
constexpr std::string_view kDigest = "digest ";

std::string TextOf(const NotedShip& ship) {
  return absl::StrFormat("%d %s", ship.at,
                         ship.write_id.empty() ? kNoId : ship.write_id);
}

bool ParseShip(const std::string& at, const std::string& id, NotedShip* ship) {
  if (!absl::SimpleAtoi(at, &ship->at)) return false;
  if (id == kNoId) return true;
  ship->write_id = id;
  return id.size() == kIdDigits;
}

bool ParseShips(const std::string& line, NotedShips* ships) {
  // The address is the last: it may have spaces.
  const std::vector<std::string> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 4));
  if (parts.size() != 5) return false;
  ships->address = parts[4];
  return ParseShip(parts[0], parts[1], &ships->shipped) &&
         ParseShip(parts[2], parts[3], &ships->announced);
}

std::string OneLine(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\n", " "}});
}

// A copy of a directory is another one.
absl::StatusOr<std::string> PlaceOf(const std::string& directory) {
  struct stat found;
  if (stat(directory.c_str(), &found) != 0) {
    return absl::ErrnoToStatus(errno, "asking of " + directory);
  }
  return absl::StrFormat("%d:%d", found.st_dev, found.st_ino);
}

std::string DigestLine(std::string_view text) {
  return absl::StrFormat("%s%s\n", kDigest, base::DigestOf(text).Hex());
}

// Takes the digest of a note off its end. False: it is another one's. Notes of
// engines before it have none.
bool TakeDigest(std::string* text) {
  const std::size_t size = kDigest.size() + 2 * base::kDigestBytes + 1;
  if (text->size() < size) return true;
  const std::string last = text->substr(text->size() - size);
  if (!last.starts_with(kDigest)) return true;
  text->resize(text->size() - size);
  return last == DigestLine(*text);
}

// Nothing: it is not a note.
std::optional<LocalNote> Parse(std::string text, std::string* place) {
  if (!TakeDigest(&text)) return std::nullopt;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() < kFirstLines + 1 || !text.starts_with(kv::kRemoteHead) ||
      lines[1].size() != kIdDigits || !lines.back().empty()) {
    return std::nullopt;
  }
  *place = lines[2];
  LocalNote note;
  note.local = lines[1];
  note.fenced = lines[3];
  note.tracks = lines.size() > kFirstLines + 1;
  if (!note.tracks) return note;
  note.from = lines[kFirstLines];
  if (!note.from.empty() && note.from.size() != kIdDigits) return std::nullopt;
  for (std::size_t i = kFirstLines + 1; i + 1 < lines.size(); ++i) {
    NotedShips ships;
    if (!ParseShips(lines[i], &ships)) return std::nullopt;
    ships.address = kv::PlainAddress(ships.address);
    note.ships.push_back(std::move(ships));
  }
  return note;
}

}  // namespace

NotedShips& LocalNote::ShipsTo(const std::string& address) {
  const std::string line = OneLine(address);
  const auto found = std::ranges::find(
      ships, line, [](const NotedShips& one) { return one.address; });
  if (found != ships.end()) {
    // The last one is the one that is used.
    std::rotate(found, found + 1, ships.end());
    return ships.back();
  }
  if (ships.size() >= kMostAddresses) ships.erase(ships.begin());
  return ships.emplace_back(NotedShips{line, {}, {}});
}

const NotedShips* LocalNote::FindShipsTo(const std::string& address) const {
  const auto found =
      std::ranges::find(ships, OneLine(address),
                        [](const NotedShips& one) { return one.address; });
  return found == ships.end() ? nullptr : &*found;
}

absl::StatusOr<LocalNote> ReadLocalNote(const kv::Options& options,
                                        const std::string& directory) {
  const std::string path = kv::Join(directory, kv::kRemoteName);
  const absl::StatusOr<std::string> text =
      kv::ReadFile(options, path, kMostBytes);
  LocalNote fresh;
  fresh.local = kv::NewWriteId();
  if (absl::IsNotFound(text.status())) return fresh;
  CKPTREE_RETURN_IF_ERROR(text.status());
  std::string noted_place;
  std::optional<LocalNote> note = Parse(*text, &noted_place);
  if (!note.has_value()) {
    return absl::DataLossError(absl::StrFormat(
        "%s is damaged, or not what this engine writes there: where nothing of "
        "the store waits to be shipped remove it; else do so and open the "
        "directory with another, empty address, which all of it is shipped to",
        path));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::string place, PlaceOf(directory));
  if (noted_place == place) return *std::move(note);
  if (note->tracks) {
    fresh.from = note->from.empty() ? note->local : note->from;
    fresh.ships = std::move(note->ships);
  }
  return fresh;
}

absl::Status WriteLocalNote(const kv::Options& options,
                            const std::string& directory,
                            const LocalNote& note) {
  const std::string path = kv::Join(directory, kv::kRemoteName);
  CKPTREE_ASSIGN_OR_RETURN(const std::string place, PlaceOf(directory));
  const std::string temporary = kv::Join(directory, kv::kRemoteTemporaryName);
  std::string text = absl::StrFormat("%s%s\n%s\n%s\n", kv::kRemoteHead,
                                     note.local, place, OneLine(note.fenced));
  if (note.tracks) {
    absl::StrAppend(&text, note.from, "\n");
    for (const NotedShips& ships : note.ships) {
      absl::StrAppend(&text, TextOf(ships.shipped), " ",
                      TextOf(ships.announced), " ", ships.address, "\n");
    }
  }
  text += DigestLine(text);
  CKPTREE_RETURN_IF_ERROR(kv::WriteFile(options, temporary, text));
  CKPTREE_RETURN_IF_ERROR(kv::RenameFile(options, temporary, path));
  return kv::SyncDirectory(options, directory);
}

}  // namespace ckptree::internal
