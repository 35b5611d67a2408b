// SPDX-License-Identifier: Apache-2.0

#include "tests/fault/plan.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_format.h"

namespace ckptree::testing {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.ends_with(end);
}

std::string_view ModeName(FaultPlan::Mode mode) {
  switch (mode) {
    case FaultPlan::Mode::kFail:
      return "fail";
    case FaultPlan::Mode::kFailAndDrop:
      return "fail-and-drop";
    case FaultPlan::Mode::kKill:
      return "kill";
    case FaultPlan::Mode::kPowerCut:
      return "power-cut";
    case FaultPlan::Mode::kNotify:
      return "notify";
    case FaultPlan::Mode::kLie:
      return "lie";
  }
  return "?";
}

}  // namespace

std::string_view Name(CallKind kind) {
  static constexpr std::array<std::string_view, kCallKinds> kNames = {
      "open",     "reopen",    "write",  "pwrite", "fallocate",
      "sync",     "fsync-dir", "rename", "link",   "unlink",
      "truncate", "mkdir",     "rmdir",  "read"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view Name(FileClass file_class) {
  static constexpr std::array<std::string_view, kFileClasses> kNames = {
      "journal", "journal copy", "MANIFEST", "CURRENT",
      "SST",     "staging",      "CREATING", "other"};
  return kNames[static_cast<std::size_t>(file_class)];
}

FileClass ClassOf(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::string_view base =
      slash == std::string_view::npos ? path : path.substr(slash + 1);
  if (path.find("/staging") != std::string_view::npos) {
    return FileClass::kStaging;
  }
  if (base.starts_with("a-")) return FileClass::kJournal;
  if (base.starts_with("b-")) return FileClass::kJournalCopy;
  if (base.starts_with("MANIFEST-")) return FileClass::kManifest;
  if (base == "CURRENT" || EndsWith(base, ".dbtmp")) return FileClass::kCurrent;
  if (EndsWith(base, ".sst")) return FileClass::kSst;
  if (base.starts_with("CREATING")) return FileClass::kCreating;
  return FileClass::kOther;
}

std::string Text(const FaultPlan& plan) {
  return absl::StrFormat("%s at=%d seed=%d errno=%d%s%s", ModeName(plan.mode),
                         plan.at, plan.seed, plan.error,
                         plan.sticky ? " sticky" : "",
                         plan.kinds == kAllChanges ? "" : " some kinds");
}

std::string FaultCounts::FiredAt() const {
  if (fired == 0 || fired_kind < 0) return "nothing";
  return absl::StrFormat("%s of %s (%s), call %d",
                         Name(static_cast<CallKind>(fired_kind.load())),
                         Name(static_cast<FileClass>(fired_class.load())),
                         fired_path.data(), calls.load());
}

void FaultCounts::Reset() { new (this) FaultCounts(); }

SharedFaultCounts::SharedFaultCounts() {
  void* memory = mmap(nullptr, sizeof(FaultCounts), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  counts_ = new (memory) FaultCounts();
}

SharedFaultCounts::~SharedFaultCounts() {
  munmap(counts_, sizeof(FaultCounts));
}

}  // namespace ckptree::testing
