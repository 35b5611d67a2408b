// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>

#include "absl/strings/str_format.h"

namespace ckptree::testing {
namespace {

std::string Normal(const std::string& path) {
  std::string text = std::filesystem::path(path).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string DirectoryOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

std::uint64_t FileSize(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_size);
}

void WriteAt(int fd, std::uint64_t offset, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = pwrite(fd, bytes.data() + done, bytes.size() - done,
                             static_cast<off_t>(offset + done));
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

void Resize(int fd, std::uint64_t size) {
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    std::perror("fault_disk: ftruncate");
  }
}

void Zero(int fd, std::uint64_t begin, std::uint64_t end) {
  WriteAt(fd, begin, std::string(end - begin, '\0'));
}

}  // namespace

class FaultDisk::File : public std::enable_shared_from_this<File> {
 public:
  explicit File(int descriptor)
      : fd(descriptor), durable_size(FileSize(descriptor)) {}
  ~File() { close(fd); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Keeps what [offset, offset + length) holds, as far as it is durable.
  void Keep(std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t end = std::min(offset + length, durable_size);
    for (std::uint64_t at = offset / kSector * kSector; at < end;
         at += kSector) {
      if (old.contains(at)) continue;
      std::string bytes(std::min(kSector, durable_size - at), '\0');
      const ssize_t n =
          pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
      bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
      old.emplace(at, std::move(bytes));
    }
  }

  const int fd;
  std::uint64_t durable_size;
  std::map<std::uint64_t, std::string> old;  // Of changed durable sectors.
  // Of a failed sync: restored or zeroed at the next cut, come what may.
  std::map<std::uint64_t, std::string> doomed;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> doomed_ranges;
};

FaultDisk::FaultDisk(std::string scratch) : scratch_(std::move(scratch)) {}

FaultDisk::~FaultDisk() {
  for (const Change& change : changes_) {
    if (!change.hidden.empty()) unlink(change.hidden.c_str());
  }
}

std::shared_ptr<FaultDisk::File> FaultDisk::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat status {};
  fstat(fd, &status);
  std::weak_ptr<File>& known = files_[{status.st_dev, status.st_ino}];
  if (std::shared_ptr<File> file = known.lock()) {
    close(fd);
    return file;
  }
  auto file = std::make_shared<File>(fd);
  known = file;
  return file;
}

void FaultDisk::WillWrite(File& file, std::uint64_t offset,
                          std::uint64_t length) {
  file.Keep(offset, length);
  dirty_.try_emplace(&file, file.shared_from_this());
}

void FaultDisk::WillTruncate(File& file, std::uint64_t size) {
  if (size < file.durable_size) {
    WillWrite(file, size, file.durable_size - size);
  } else {
    WillWrite(file, size, 0);
  }
}

std::uint64_t FaultDisk::SizeOf(const File& file) const {
  return FileSize(file.fd);
}

void FaultDisk::Synced(File& file) {
  file.durable_size = FileSize(file.fd);
  file.old.clear();
  if (file.doomed.empty() && file.doomed_ranges.empty()) dirty_.erase(&file);
}

void FaultDisk::SyncFailed(File& file) {
  const std::uint64_t size = FileSize(file.fd);
  if (size > file.durable_size) {
    file.doomed_ranges.emplace_back(file.durable_size, size);
  }
  file.doomed.merge(file.old);  // What was doomed before stays.
  file.old.clear();
  file.durable_size = size;
}

bool FaultDisk::Exists(const std::string& path) const {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

bool FaultDisk::Change::Touches(const std::string& name) const {
  return path == name || to == name;
}

bool FaultDisk::Change::In(const std::string& directory) const {
  return DirectoryOf(path) == directory ||
         (!to.empty() && DirectoryOf(to) == directory);
}

void FaultDisk::Created(const std::string& path) {
  changes_.push_back({ChangeKind::kCreate, Normal(path), "", ""});
}

std::string FaultDisk::Hide(const std::string& path) {
  std::string hidden =
      absl::StrFormat("%s/hidden.%d", scratch_, next_hidden_++);
  unlink(hidden.c_str());
  if (link(path.c_str(), hidden.c_str()) != 0) return "";
  return hidden;
}

void FaultDisk::Removed(const std::string& path, std::string hidden) {
  changes_.push_back(
      {ChangeKind::kRemove, Normal(path), "", std::move(hidden)});
}

void FaultDisk::Renamed(const std::string& from, const std::string& to,
                        std::string hidden) {
  changes_.push_back(
      {ChangeKind::kRename, Normal(from), Normal(to), std::move(hidden)});
}

void FaultDisk::Linked(const std::string& to) { Created(to); }

void FaultDisk::MadeDirectory(const std::string& path) {
  changes_.push_back({ChangeKind::kMakeDir, Normal(path), "", ""});
}

void FaultDisk::RemovedDirectory(const std::string& path) {
  changes_.push_back({ChangeKind::kRemoveDir, Normal(path), "", ""});
}

void FaultDisk::DirectorySynced(const std::string& path) {
  const std::string directory = Normal(path);
  // Durable are the changes in it, and what came before them to the same names.
  std::set<std::string> names;
  for (auto it = changes_.end(); it != changes_.begin();) {
    --it;
    const bool related =
        names.contains(it->path) || (!it->to.empty() && names.contains(it->to));
    if (!it->In(directory) && !related) continue;
    names.insert(it->path);
    if (!it->to.empty()) names.insert(it->to);
    if (!it->hidden.empty()) unlink(it->hidden.c_str());
    it = changes_.erase(it);
  }
}

void FaultDisk::CutFile(File& file, FaultRandom& random) {
  const std::uint64_t now = FileSize(file.fd);
  const std::uint64_t durable = file.durable_size;
  const int how = random.Int(4);  // Nothing, all, a prefix, sectors.
  if (how != 1) {
    for (const auto& [at, bytes] : file.old) {
      if (how == 0 || random.OneIn(2)) WriteAt(file.fd, at, bytes);
    }
  }
  if (how == 0) {
    Resize(file.fd, durable);
  } else if (how != 1 && now > durable) {
    const std::uint64_t size = how == 3 && random.OneIn(2)
                                   ? now
                                   : durable + random.Below(now - durable + 1);
    if (how == 3) {
      for (std::uint64_t at = durable; at < size;) {
        const std::uint64_t end = std::min(size, (at / kSector + 1) * kSector);
        if (random.OneIn(2)) Zero(file.fd, at, end);
        at = end;
      }
    }
    Resize(file.fd, size);
  } else if (how != 1 && now < durable) {
    const bool undone = random.OneIn(2);
    if (undone) {
      for (const auto& [at, bytes] : file.old) {
        if (at + bytes.size() > now) WriteAt(file.fd, at, bytes);
      }
    }
    Resize(file.fd, undone ? durable : now);
  }

  for (const auto& [begin, end] : file.doomed_ranges) {
    const std::uint64_t size = FileSize(file.fd);
    if (size <= begin) continue;
    if (size <= end) {
      Resize(file.fd, begin);
    } else {
      Zero(file.fd, begin, end);
    }
  }
  for (const auto& [at, bytes] : file.doomed) WriteAt(file.fd, at, bytes);
}

void FaultDisk::Undo(const Change& change) {
  std::error_code ignored;  // A later change of the same place may stand.
  switch (change.kind) {
    case ChangeKind::kCreate:
      unlink(change.path.c_str());
      break;
    case ChangeKind::kRemove:
      if (!change.hidden.empty()) {
        std::filesystem::rename(change.hidden, change.path, ignored);
      }
      break;
    case ChangeKind::kRename:
      std::filesystem::rename(change.to, change.path, ignored);
      if (!change.hidden.empty()) {
        std::filesystem::rename(change.hidden, change.to, ignored);
      }
      break;
    case ChangeKind::kMakeDir:
      std::filesystem::remove_all(change.path, ignored);
      break;
    case ChangeKind::kRemoveDir:
      std::filesystem::create_directory(change.path, ignored);
      break;
  }
}

void FaultDisk::CutDirectories(FaultRandom& random) {
  // Changes that share a name happened in their order: of each such group a
  // prefix is kept. Groups are independent.
  std::map<std::string, std::string> group;  // Name -> a name of the group.
  const std::function<std::string(const std::string&)> root =
      [&group, &root](const std::string& name) -> std::string {
    auto it = group.find(name);
    if (it == group.end() || it->second == name) return name;
    return it->second = root(it->second);
  };
  std::map<std::string, std::uint64_t> sizes;
  for (const Change& change : changes_) {
    group.try_emplace(change.path, change.path);
    if (change.to.empty()) continue;
    group.try_emplace(change.to, change.to);
    group[root(change.to)] = root(change.path);
  }
  for (const Change& change : changes_) ++sizes[root(change.path)];
  std::map<std::string, std::uint64_t> kept;
  const int how = random.Int(4);  // All, nothing, else a random part.
  for (const auto& [name, size] : sizes) {
    kept[name] = how == 0 ? size : how == 1 ? 0 : random.Below(size + 1);
  }
  std::vector<const Change*> lost;
  for (const Change& change : changes_) {
    std::uint64_t& left = kept[root(change.path)];
    if (left > 0) {
      --left;
    } else {
      lost.push_back(&change);
    }
  }
  for (auto it = lost.rbegin(); it != lost.rend(); ++it) Undo(**it);
}

void FaultDisk::CutPower(std::uint64_t seed) {
  FaultRandom random(seed);
  for (const auto& [id, known] : files_) {  // In the order of inodes.
    std::shared_ptr<File> file = known.lock();
    if (file && dirty_.contains(file.get())) CutFile(*file, random);
  }
  CutDirectories(random);
}

}  // namespace ckptree::testing
