// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tests/fault/random.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, kShapes> kNames = {
    "flip", "zero512", "zero4k", "foreign512", "foreign4k", "old4k",
    "old",  "cut",     "grown",  "missing",    "swapped",   "duplicated"};

[[noreturn]] void Die(const std::string& path) {
  std::perror(path.c_str());
  std::abort();
}

std::string ReadWhole(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about = {};
  if (fd < 0 || fstat(fd, &about) != 0) Die(path);
  std::string bytes(static_cast<std::size_t>(about.st_size), '\0');
  if (read(fd, bytes.data(), bytes.size()) !=
      static_cast<ssize_t>(bytes.size())) {
    Die(path);
  }
  close(fd);
  return bytes;
}

void WriteWhole(const std::string& path, std::string_view bytes) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes.data(), bytes.size()) !=
                    static_cast<ssize_t>(bytes.size())) {
    Die(path);
  }
  close(fd);
}

std::uint64_t LengthOf(DamageShape shape) {
  switch (shape) {
    case DamageShape::kFlip:
      return 1;
    case DamageShape::kZero512:
    case DamageShape::kForeign512:
      return 512;
    default:
      return 4096;
  }
}

// The bytes that come in the place of [change.at, + length) of the file.
std::string Replacement(const Change& change, const StoreFiles& files,
                        const StoreFiles& earlier, std::string_view there) {
  std::string bytes(there);
  switch (change.shape) {
    case DamageShape::kFlip:
      bytes[0] = static_cast<char>(bytes[0] ^ (1 << change.bit));
      break;
    case DamageShape::kZero512:
    case DamageShape::kZero4k:
      std::ranges::fill(bytes, '\0');
      break;
    case DamageShape::kOld4k: {
      const auto old = earlier.bytes.find(change.file);
      if (old == earlier.bytes.end()) break;
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const std::uint64_t at = change.at + i;
        bytes[i] = at < old->second.size() ? old->second[at] : '\0';
      }
      break;
    }
    default: {
      const auto from = files.bytes.find(change.other);
      if (from == files.bytes.end() || from->second.empty()) {
        FaultRandom(change.seed).Fill(std::as_writable_bytes(std::span(bytes)));
      } else {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = from->second[(change.at + i) % from->second.size()];
        }
      }
    }
  }
  return bytes;
}

class Applier {
 public:
  Applier(const StoreFiles& files, const StoreFiles& earlier)
      : files_(files), earlier_(earlier) {}

  void Add(const Change& change) {
    switch (change.shape) {
      case DamageShape::kOldFile: {
        const auto old = earlier_.bytes.find(change.file);
        if (old != earlier_.bytes.end()) Set(change.file, old->second);
        break;
      }
      case DamageShape::kCut:
        Set(change.file, Now(change.file).substr(0, change.at));
        break;
      case DamageShape::kGrown:
        Set(change.file, Now(change.file) + Growth(change));
        break;
      case DamageShape::kMissing:
        Hits(change.file, 0);
        result_.files[change.file] = std::nullopt;
        break;
      case DamageShape::kSwapped: {
        const std::string one = Now(change.file);
        Set(change.file, Now(change.other));
        Set(change.other, one);
        break;
      }
      case DamageShape::kDuplicated:
        result_.files[change.other] = Now(change.file);
        break;
      default: {
        std::string bytes = Now(change.file);
        if (change.at >= bytes.size()) break;
        const std::uint64_t length = std::min<std::uint64_t>(
            LengthOf(change.shape), bytes.size() - change.at);
        bytes.replace(change.at, length,
                      Replacement(change, files_, earlier_,
                                  bytes.substr(change.at, length)));
        Set(change.file, std::move(bytes));
      }
    }
  }

  Damaged Take() {
    for (const auto& [name, bytes] : result_.files) {
      const auto old = files_.bytes.find(name);
      if (old == files_.bytes.end() || !bytes || *bytes != old->second) {
        result_.fired = true;
      }
    }
    return std::move(result_);
  }

 private:
  static std::string Growth(const Change& change) {
    const std::size_t size = change.bit % 2 == 0 ? 1 : 4096;
    std::string bytes(size, '\0');
    if (change.bit / 2 % 2 == 1) {
      FaultRandom(change.seed).Fill(std::as_writable_bytes(std::span(bytes)));
    }
    return bytes;
  }

  std::string Now(const std::string& file) const {
    const auto changed = result_.files.find(file);
    if (changed != result_.files.end()) return changed->second.value_or("");
    const auto old = files_.bytes.find(file);
    return old == files_.bytes.end() ? std::string() : old->second;
  }

  // What differs from the file as it was, run by run.
  void Hits(const std::string& file, std::uint64_t from) {
    const auto old = files_.bytes.find(file);
    if (old == files_.bytes.end()) return;
    if (from < old->second.size()) {
      result_.hits.push_back({file, from, old->second.size()});
    }
  }
  void Set(const std::string& file, std::string bytes) {
    const auto old = files_.bytes.find(file);
    if (old != files_.bytes.end()) {
      const std::string& was = old->second;
      const std::size_t both = std::min(was.size(), bytes.size());
      for (std::size_t at = 0; at < both; ++at) {
        if (was[at] == bytes[at]) continue;
        // Bytes that are equal by chance are hit, too.
        std::size_t end = at + 1;
        for (std::size_t i = end; i < both && i < end + 32; ++i) {
          if (was[i] != bytes[i]) end = i + 1;
        }
        result_.hits.push_back({file, at, end});
        at = end;
      }
      Hits(file, both);
    }
    result_.files[file] = std::move(bytes);
  }

  const StoreFiles& files_;
  const StoreFiles& earlier_;
  Damaged result_;
};

}  // namespace

StoreFiles ReadFiles(const std::string& store) {
  StoreFiles files;
  for (const auto& entry : fs::recursive_directory_iterator(store)) {
    const std::string name = fs::relative(entry.path(), store).string();
    if (entry.is_directory()) files.directories.insert(name);
    if (entry.is_regular_file()) {
      files.bytes[name] = ReadWhole(entry.path().string());
    }
  }
  return files;
}

void WriteFiles(const StoreFiles& files, const ChangedFiles& changed,
                const std::string& store) {
  std::error_code ignored;
  fs::create_directories(store);
  for (const auto& entry : fs::directory_iterator(store)) {
    fs::remove_all(entry.path(), ignored);
  }
  for (const std::string& name : files.directories) {
    fs::create_directories(store + "/" + name);
  }
  for (const auto& [name, bytes] : files.bytes) {
    if (!changed.contains(name)) WriteWhole(store + "/" + name, bytes);
  }
  for (const auto& [name, bytes] : changed) {
    if (bytes) WriteWhole(store + "/" + name, *bytes);
  }
}

std::uint64_t InodeOf(const std::string& path) {
  struct stat about = {};
  return stat(path.c_str(), &about) == 0 ? about.st_ino : 0;
}

void PutBack(const std::string& folder, std::uint64_t inode) {
  const std::string store = folder + "/store";
  const std::string aside = folder + "/aside";
  std::error_code ignored;
  std::string kept;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory() && InodeOf(entry.path().string()) == inode) {
      kept = entry.path().string();
    }
  }
  if (!kept.empty() && kept != aside) fs::rename(kept, aside, ignored);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path() != aside) fs::remove_all(entry.path(), ignored);
  }
  fs::create_directory(aside, ignored);
  fs::rename(aside, store, ignored);
}

std::string NamePattern(std::string_view file) {
  std::string pattern;
  for (std::size_t at = 0; at < file.size();) {
    std::size_t end = at;
    while (end < file.size() &&
           std::isxdigit(static_cast<unsigned char>(file[end])) != 0) {
      ++end;
    }
    const std::string_view word = file.substr(at, end - at);
    // A number, or a word of hexadecimal digits as a name of random bits is.
    if (word.size() > 3 || std::ranges::any_of(word, [](unsigned char c) {
          return std::isdigit(c) != 0;
        })) {
      pattern += '#';
      at = end;
    } else {
      pattern += file[at++];
    }
  }
  return pattern;
}

std::string_view ShapeName(DamageShape shape) {
  return kNames[static_cast<std::size_t>(shape)];
}

std::optional<DamageShape> ShapeNamed(std::string_view name) {
  for (int i = 0; i < kShapes; ++i) {
    if (kNames[static_cast<std::size_t>(i)] == name) {
      return static_cast<DamageShape>(i);
    }
  }
  return std::nullopt;
}

std::string Change::Text() const {
  std::string text = absl::StrFormat("shape=%s file=%s at=%d bit=%d seed=%d",
                                     ShapeName(shape), file, at, bit, seed);
  if (!other.empty()) absl::StrAppend(&text, " other=", other);
  return text;
}

std::optional<Change> ParseChange(std::string_view text) {
  Change change;
  const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name == "shape") {
      const std::optional<DamageShape> shape = ShapeNamed(value);
      if (!shape) return std::nullopt;
      change.shape = *shape;
    } else if (name == "file") {
      change.file = value;
    } else if (name == "other") {
      change.other = value;
    } else if (name == "at") {
      change.at = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "seed") {
      change.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "bit") {
      change.bit = std::atoi(value.c_str());
    } else {
      return std::nullopt;
    }
  }
  return change;
}

Damaged Apply(const StoreFiles& files, const StoreFiles& earlier,
              const std::vector<Change>& changes) {
  Applier applier(files, earlier);
  for (const Change& change : changes) applier.Add(change);
  return applier.Take();
}

}  // namespace ckptree::testing
