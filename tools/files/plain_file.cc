// SPDX-License-Identifier: Apache-2.0

#include "tools/files/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/files/head.h"
#include "tools/files/json_look.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFirstBytes = 64 << 10;
constexpr std::uint64_t kMostHeadBytes = 256 << 20;
constexpr std::uint64_t kMostIndexBytes = 64 << 20;
constexpr int kMostIndexDepth = 16;

// An open descriptor. Movable.
class Descriptor {
 public:
  static absl::StatusOr<Descriptor> Open(const std::string& path) {
    // Of a pipe it would wait for its other end.
    const int descriptor =
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat file {};
    if (descriptor < 0 || ::fstat(descriptor, &file) != 0) {
      const std::string why = std::strerror(errno);
      if (descriptor >= 0) ::close(descriptor);
      return absl::InvalidArgumentError(
          absl::StrFormat("opening %s: %s", Escape(path), why));
    }
    if (!S_ISREG(file.st_mode)) {
      ::close(descriptor);
      return absl::InvalidArgumentError(
          absl::StrFormat("%s is no regular file", Escape(path)));
    }
    return Descriptor(path, descriptor,
                      static_cast<std::uint64_t>(file.st_size));
  }
  Descriptor(Descriptor&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        bytes_(other.bytes_) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> destination) const {
    while (!destination.empty()) {
      const ssize_t got =
          ::pread(descriptor_, destination.data(), destination.size(),
                  static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return absl::UnknownError(absl::StrFormat(
            "reading %s at %d: %s", Escape(path_), offset,
            got == 0 ? "it has become shorter" : std::strerror(errno)));
      }
      offset += static_cast<std::uint64_t>(got);
      destination = destination.subspan(static_cast<std::size_t>(got));
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Beginning(std::uint64_t bytes) const {
    std::string text(std::min(bytes, bytes_), '\0');
    CKPTREE_RETURN_IF_ERROR(
        Read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
    return text;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Descriptor(std::string path, int descriptor, std::uint64_t bytes)
      : path_(std::move(path)), descriptor_(descriptor), bytes_(bytes) {}

  std::string path_;
  int descriptor_;
  std::uint64_t bytes_;
};

using Parser = absl::StatusOr<FileHead> (*)(std::string_view, std::uint64_t);

Parser ParserOf(const std::string& path) {
  if (path.ends_with(".npy")) return ParseNpy;
  if (path.ends_with(".gguf")) return ParseGguf;
  return ParseSafetensors;
}

std::string_view FormatOf(const std::string& path) {
  if (path.ends_with(".npy")) return "npy";
  if (path.ends_with(".gguf")) return "gguf";
  return "safetensors";
}

// The head of `file`, of which as little is read as its parser asks for.
absl::StatusOr<FileHead> ReadHead(const std::string& path,
                                  const Descriptor& file) {
  absl::StatusOr<FileHead> head;
  for (std::uint64_t bytes = kFirstBytes;; bytes *= 8) {
    CKPTREE_ASSIGN_OR_RETURN(const std::string text, file.Beginning(bytes));
    head = ParserOf(path)(text, file.bytes());
    if (!absl::IsOutOfRange(head.status())) break;
    if (bytes >= file.bytes() || bytes > kMostHeadBytes) {
      head = absl::InvalidArgumentError("its head does not end");
      break;
    }
  }
  if (head.ok()) return head;
  if (absl::IsFailedPrecondition(head.status()))
    return Unnamed(path, head.status());
  return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                      "%s is damaged, or no %s file: %s", Escape(path),
                      FormatOf(path), std::string(head.status().message()))),
                  "copy it again from where it came");
}

class PlainFile final : public ArrayFile {
 public:
  PlainFile(std::string path, std::string_view format)
      : ArrayFile(std::move(path), format) {}

  // Adds the arrays of one more file; of those only `wanted`, where not empty.
  absl::Status Add(const std::string& path,
                   const std::set<std::string>& wanted) {
    CKPTREE_ASSIGN_OR_RETURN(Descriptor file, Descriptor::Open(path));
    CKPTREE_ASSIGN_OR_RETURN(FileHead head, ReadHead(path, file));
    std::size_t found = 0;
    for (FileArray& array : head.arrays) {
      if (format() == "npy") {
        array.name = fs::path(path).stem().string();
        if (const absl::Status named =
                SetLeaf(&array, array.leaf.dtype, array.leaf.shape);
            !named.ok()) {
          return absl::InvalidArgumentError(absl::StrFormat(
              "%s: %s", Escape(path), std::string(named.message())));
        }
      }
      if (!wanted.empty() && !wanted.contains(array.name)) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s does not name the array `%s` of %s: see whether it is the "
            "index of that file",
            Escape(this->path()), Escape(array.name), Escape(path)));
      }
      ++found;
      array.part = files_.size();
      head_.arrays.push_back(std::move(array));
    }
    if (found < wanted.size()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s lacks arrays that the index says it has", Escape(path)));
    }
    for (auto& [key, value] : head.metadata) Say(path, key, std::move(value));
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  // What the file at `path` says of all of them.
  void Say(const std::string& path, const std::string& key, std::string value) {
    const auto [said, added] = said_.try_emplace(key, Said{value, path, ""});
    if (added) {
      head_.metadata.emplace_back(key, std::move(value));
    } else if (said->second.value != value && said->second.against.empty()) {
      said->second.against = path;
    }
  }

  // In the order of names, as a step has its leaves; each name once.
  absl::Status Finish() {
    std::vector<std::pair<std::string, std::size_t>> order;
    order.reserve(head_.arrays.size());
    for (const FileArray& array : head_.arrays) {
      order.emplace_back(array.leaf.path.Encode(), order.size());
    }
    std::sort(order.begin(), order.end());
    std::vector<FileArray> sorted;
    sorted.reserve(order.size());
    for (const auto& [code, index] : order) {
      sorted.push_back(std::move(head_.arrays[index]));
    }
    head_.arrays = std::move(sorted);
    std::erase_if(head_.metadata, [this](const auto& entry) {
      return !said_.at(entry.first).against.empty();
    });
    for (const auto& [key, said] : said_) {
      if (said.against.empty()) continue;
      disputed_.push_back(absl::StrFormat(
          "`%s` is not the same in %s and in %s", Escape(key.substr(0, 60)),
          Escape(fs::path(said.path).filename().string()),
          Escape(fs::path(said.against).filename().string())));
    }
    const auto twice =
        std::adjacent_find(head_.arrays.begin(), head_.arrays.end(),
                           [](const FileArray& a, const FileArray& b) {
                             return a.leaf.path == b.leaf.path;
                           });
    if (twice == head_.arrays.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has the array `%s` twice", Escape(path()), Escape(twice->name)));
  }

 private:
  absl::Status ReadAt(const FileArray& array, std::uint64_t offset,
                      std::span<std::byte> destination) const override {
    return files_[array.part].Read(array.offset + offset, destination);
  }

  // The first value by that name, the file that has it, and the first one that
  // has another.
  struct Said {
    std::string value, path, against;
  };

  std::vector<Descriptor> files_;
  std::map<std::string, Said> said_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenPlainFile(
    const std::string& path) {
  auto file = std::make_unique<PlainFile>(path, FormatOf(path));
  CKPTREE_RETURN_IF_ERROR(file->Add(path, {}));
  CKPTREE_RETURN_IF_ERROR(file->Finish());
  return file;
}

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenSafetensorsIndex(
    const std::string& path) {
  const auto wrong = [&path](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is no index of safetensors: %s", Escape(path), what));
  };
  CKPTREE_ASSIGN_OR_RETURN(const Descriptor index, Descriptor::Open(path));
  if (index.bytes() > kMostIndexBytes) return wrong("it is too large");
  CKPTREE_ASSIGN_OR_RETURN(const std::string text,
                           index.Beginning(index.bytes()));
  const auto [json, twice] = ParseForeignJson(text, kMostIndexDepth);
  if (!json.is_object()) return wrong("it is not JSON");
  if (twice) {
    return wrong(absl::StrFormat("it has `%s` twice",
                                 Escape(twice->back().substr(0, 60))));
  }
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object() || map->empty()) {
    return wrong("it has no weight_map");
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [name, file] : map->items()) {
    const std::string text_of = file.is_string() ? file.get<std::string>() : "";
    if (text_of.empty() || text_of.find('/') != std::string::npos ||
        text_of == ".." || !text_of.ends_with(".safetensors")) {
      return wrong(absl::StrFormat("`%s` is said to be in a file `%s`",
                                   Escape(name), Escape(text_of)));
    }
    files[text_of].insert(name);
  }
  auto all = std::make_unique<PlainFile>(path, "safetensors");
  if (const auto own = json.find("metadata");
      own != json.end() && own->is_object()) {
    for (const auto& [key, value] : own->items()) {
      // Of the files, and not of what is in them.
      if (key == "total_size" || key == "total_parameters") continue;
      all->Say(path, key, TextOf(value));
    }
  }
  for (const auto& [file, names] : files) {
    const std::string at = (fs::path(path).parent_path() / file).string();
    CKPTREE_RETURN_IF_ERROR(all->Add(at, names));
  }
  CKPTREE_RETURN_IF_ERROR(all->Finish());
  return all;
}

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenNpyFolder(
    const std::string& path, const std::vector<std::string>& files) {
  auto all = std::make_unique<PlainFile>(path, "npy");
  for (const std::string& file : files) {
    CKPTREE_RETURN_IF_ERROR(all->Add(file, {}));
  }
  CKPTREE_RETURN_IF_ERROR(all->Finish());
  return all;
}

}  // namespace ckptree::tools
