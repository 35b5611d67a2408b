// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/payload.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "tests/judge/kinds.h"

namespace ckptree::testing {
namespace {

// Every kStride bytes of a content a word of it is looked for, so that no piece
// of kShortest bytes is missed.
constexpr std::size_t kStride = 16;
constexpr std::size_t kShortest = kStride + 8;
constexpr std::size_t kSeenBits = std::size_t{1} << 22;

std::uint64_t WordAt(const std::string& bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

std::size_t SeenBit(std::uint64_t word) {
  return static_cast<std::size_t>((word * 0x9e3779b97f4a7c15u) >> 42);
}

}  // namespace

PayloadMap::PayloadMap(const StoreFiles& files, const Acknowledged& known)
    : seen_(kSeenBits) {
  std::map<std::string_view, std::size_t> numbers;
  for (const auto& [key, step] : known.state.steps) {
    for (const auto& [name, leaf] : step->leaves) {
      if (leaf.kind == ModelLeaf::Kind::kTie) {
        ties_[{key, leaf.target}].push_back(name);
      }
      if (leaf.kind != ModelLeaf::Kind::kArray ||
          leaf.bytes.size() < kPayloadBytes) {
        continue;
      }
      const auto [number, is_new] =
          numbers.try_emplace(leaf.bytes, contents_.size());
      if (is_new) contents_.push_back({.bytes = leaf.bytes, .leaves = {}});
      contents_[number->second].leaves.insert({key, name});
    }
  }
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    const std::string& bytes = contents_[i].bytes;
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += kStride) {
      const std::uint64_t word = WordAt(bytes, at);
      words_.insert({word, {i, at}});
      seen_[SeenBit(word)] = true;
    }
  }
  for (const auto& [file, bytes] : files.bytes) Find(file, bytes);
  CountUnfound();
  words_.clear();
  seen_.clear();
}

void PayloadMap::Find(const std::string& file, const std::string& bytes) {
  std::vector<Place> found;
  // By content: behind its last place, nothing before is looked at again.
  std::map<std::size_t, std::uint64_t> done;
  for (std::size_t at = 0; at + 8 <= bytes.size(); ++at) {
    const std::uint64_t word = WordAt(bytes, at);
    if (!seen_[SeenBit(word)]) continue;
    const auto [first, last] = words_.equal_range(word);
    for (auto it = first; it != last; ++it) {
      const auto [content, in_content] = it->second;
      if (at < done[content]) continue;
      const std::string& whole = contents_[content].bytes;
      std::size_t before = 0;
      while (before < at && before < in_content &&
             bytes[at - before - 1] == whole[in_content - before - 1]) {
        ++before;
      }
      std::size_t length = 8;
      while (at + length < bytes.size() && in_content + length < whole.size() &&
             bytes[at + length] == whole[in_content + length]) {
        ++length;
      }
      done[content] = at + length;
      found.push_back({.begin = at - before,
                       .end = at + length,
                       .content = content,
                       .at = in_content - before});
    }
  }
  if (found.empty()) return;
  std::ranges::sort(found, {}, &Place::begin);
  places_[file] = std::move(found);
}

void PayloadMap::CountUnfound() {
  std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> covered(
      contents_.size());
  for (const auto& [file, places] : places_) {
    for (const Place& place : places) {
      covered[place.content].push_back(
          {place.at, place.at + place.end - place.begin});
    }
  }
  for (std::size_t i = 0; i < contents_.size(); ++i) {
    std::ranges::sort(covered[i]);
    // A log cuts what it holds; a short rest is not found behind a cut.
    std::uint64_t to = 0;
    for (const auto& [begin, end] : covered[i]) {
      if (begin < to + kShortest) to = std::max(to, end);
    }
    if (to + kShortest <= contents_[i].bytes.size()) ++unfound_;
  }
}

bool PayloadMap::HasPayload(const std::string& file) const {
  return places_.contains(file);
}

bool PayloadMap::IsPayload(const std::string& file, std::uint64_t at) const {
  const auto places = places_.find(file);
  if (places == places_.end()) return false;
  return std::ranges::any_of(places->second, [at](const Place& place) {
    return place.begin <= at && at < place.end;
  });
}

std::uint64_t PayloadMap::PayloadBytes(const std::string& file) const {
  const auto places = places_.find(file);
  if (places == places_.end()) return 0;
  std::uint64_t sum = 0;
  std::uint64_t to = 0;
  for (const Place& place : places->second) {
    const std::uint64_t from = std::max(to, place.begin);
    if (place.end > from) sum += place.end - from;
    to = std::max(to, place.end);
  }
  return sum;
}

bool PayloadMap::ElseWhere(
    const std::string& hit_file, std::size_t content, std::uint64_t begin,
    std::uint64_t end,
    const std::map<std::string, std::vector<Hit>>& hits) const {
  int in_tables = 0;
  int others = 0;
  for (const auto& [file, places] : places_) {
    // No file has a block twice: the same bytes there are those of another
    // save, which wrote a pack again.
    if (file == hit_file) continue;
    const auto hit = hits.find(file);
    for (const Place& place : places) {
      const std::uint64_t length = place.end - place.begin;
      if (place.content != content || place.at > begin ||
          place.at + length < end) {
        continue;
      }
      const std::uint64_t from = place.begin + begin - place.at;
      const std::uint64_t to = from + end - begin;
      if (hit == hits.end() ||
          std::ranges::none_of(hit->second, [&](const Hit& h) {
            return h.begin < to && from < h.end;
          })) {
        (file.ends_with(".sst") ? in_tables : others) += 1;
      }
    }
  }
  // Two saves may have the same bytes: a table and a record of the journal that
  // are whole may be of the other one. One more of the other kind is of this.
  if (in_tables == 0 || others == 0) return in_tables + others > 0;
  return hit_file.ends_with(".sst") ? others > in_tables : in_tables > others;
}

std::set<LeafOfStep> PayloadMap::MayBeLost(const std::vector<Hit>& hits) const {
  std::map<std::string, std::vector<Hit>> by_file;
  for (const Hit& hit : hits) by_file[hit.file].push_back(hit);
  std::set<LeafOfStep> lost;
  for (const auto& [file, file_hits] : by_file) {
    const auto found = places_.find(file);
    if (found == places_.end()) continue;
    // Places that touch each other are one pack.
    const std::vector<Place>& places = found->second;
    for (std::size_t first = 0, last; first < places.size(); first = last) {
      std::uint64_t to = places[first].end;
      bool gone = false;
      for (last = first; last < places.size() && places[last].begin <= to;
           ++last) {
        const Place& place = places[last];
        to = std::max(to, place.end);
        for (const Hit& hit : file_hits) {
          const std::uint64_t begin = std::max(hit.begin, place.begin);
          const std::uint64_t end = std::min(hit.end, place.end);
          if (begin >= end) continue;
          const std::uint64_t at = place.at + begin - place.begin;
          gone = gone ||
                 !ElseWhere(file, place.content, at, at + end - begin, by_file);
        }
      }
      for (std::size_t i = first; gone && i < last; ++i) {
        const auto& leaves = contents_[places[i].content].leaves;
        lost.insert(leaves.begin(), leaves.end());
      }
    }
  }
  for (const auto& [target, names] : ties_) {
    if (!lost.contains(target)) continue;
    for (const std::string& name : names) lost.insert({target.first, name});
  }
  return lost;
}

}  // namespace ckptree::testing
