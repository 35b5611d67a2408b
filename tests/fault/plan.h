// SPDX-License-Identifier: Apache-2.0

// Which file-system call fails, and how; and the counts of what happened.

#ifndef CKPTREE_TESTS_FAULT_PLAN_H_
#define CKPTREE_TESTS_FAULT_PLAN_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ckptree::testing {

enum class CallKind {
  kOpen,      // Of a new file for writing.
  kReopen,    // Of an existing file for writing.
  kWrite,     // At the end of a file.
  kPwrite,    // Anywhere in a file.
  kAllocate,  // fallocate
  kSync,
  kSyncDirectory,
  kRename,
  kLink,
  kUnlink,
  kTruncate,
  kMakeDirectory,
  kRemoveDirectory,
  kRead,
};
inline constexpr std::size_t kCallKinds = 14;

enum class FileClass {
  kJournal,
  kJournalCopy,
  kManifest,
  kCurrent,  // And the temporary file that becomes it.
  kSst,
  kStaging,
  kCreating,
  kOther,  // Directories too.
};
inline constexpr std::size_t kFileClasses = 8;

std::string_view Name(CallKind kind);
std::string_view Name(FileClass file_class);

// By its name and where it stands.
FileClass ClassOf(std::string_view path);

constexpr std::uint32_t Bit(CallKind kind) {
  return std::uint32_t{1} << static_cast<int>(kind);
}
constexpr std::uint32_t Bit(FileClass file_class) {
  return std::uint32_t{1} << static_cast<int>(file_class);
}
// Everything that changes something.
inline constexpr std::uint32_t kAllChanges =
    (std::uint32_t{1} << static_cast<int>(CallKind::kRead)) - 1;
inline constexpr std::uint32_t kAllClasses =
    (std::uint32_t{1} << kFileClasses) - 1;

// One fault: what happens at the `at`-th call that is of `kinds` on `classes`,
// counted from FaultFs::Arm.
struct FaultPlan {
  enum class Mode {
    kFail,         // The call returns `error`.
    kFailAndDrop,  // A sync returns `error`; the bytes that it did not sync
                   // stay readable and are gone after the next power cut,
                   // whatever later syncs say.
    kKill,         // SIGKILL before the call.
    kPowerCut,     // What is not synced is kept or lost at random; SIGKILL.
    kNotify,       // `notify` is called; the call goes on.
    kLie,          // A sync succeeds and is not made.
  };

  Mode mode = Mode::kFail;
  std::uint64_t at = 1;
  std::uint32_t kinds = kAllChanges;
  std::uint32_t classes = kAllClasses;
  int error = 5;        // EIO
  bool sticky = false;  // Every such call from the `at`-th on fails.
  // Writes: where odd, a random part of the bytes is written before the fault.
  // Power cuts: what is lost.
  std::uint64_t seed = 0;
  // kNotify: must not use the file system.
  std::function<void()> notify = nullptr;
};

std::string Text(const FaultPlan& plan);

// Lives in memory that a parent shares with the child that uses the file
// system, so that it survives the child.
struct FaultCounts {
  std::atomic<std::uint64_t> calls{0};  // Since Arm.
  std::atomic<std::uint64_t> fired{0};
  std::array<std::array<std::atomic<std::uint64_t>, kFileClasses>, kCallKinds>
      by_kind{};                    // Since Arm.
  std::atomic<int> fired_kind{-1};  // Of the first fault that fired.
  std::atomic<int> fired_class{-1};
  std::array<char, 256> fired_path{};

  // "sync of HEAD (/path)", or "nothing".
  std::string FiredAt() const;
  void Reset();
};

// An anonymous shared mapping that holds one FaultCounts.
class SharedFaultCounts {
 public:
  SharedFaultCounts();
  ~SharedFaultCounts();
  SharedFaultCounts(const SharedFaultCounts&) = delete;
  SharedFaultCounts& operator=(const SharedFaultCounts&) = delete;

  FaultCounts* get() const { return counts_; }
  FaultCounts* operator->() const { return counts_; }

 private:
  FaultCounts* counts_;
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_FAULT_PLAN_H_
