// SPDX-License-Identifier: Apache-2.0

#include "tools/line/session.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/local_path.h"
#include "core/engine/hold_listed.h"
#include "tools/files/open_file.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/written_table.h"

namespace ckptree::tools {
namespace {

// The folder we are in or the nearest above it that is a store.
std::string NearestStore() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::current_path(error);
  while (!error && !folder.empty()) {
    if (IsStore(folder.string())) return folder.string();
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return "";
}

// kInvalidArgument: an address that lacks a slash.
absl::Status CheckAddress(std::string_view where) {
  for (const std::string_view scheme : {"s3:", "rados:", "gs:"}) {
    if (!where.starts_with(scheme)) continue;
    const std::string_view rest = where.substr(scheme.size());
    if (!rest.starts_with('/') || rest.starts_with("//")) continue;
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s` is no address: one begins with %s//", Escape(where), scheme)),
        absl::StrFormat("%s//BUCKET/NAME, here %s/%s", scheme, scheme,
                        Escape(rest)));
  }
  return absl::OkStatus();
}

std::string LogHint(std::string_view branch, std::string_view more) {
  return absl::StrFormat("`ckptree log%s%s` lists the steps%s",
                         branch.empty() ? "" : " --branch ", branch, more);
}

}  // namespace

// Each of the two may be lost, and others may have folders of these names.
bool IsStore(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path folder(directory);
  for (std::filesystem::directory_iterator it(folder / "journal", error), end;
       !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    for (const std::string_view prefix : {"a-", "b-", "rows-"}) {
      if (name.starts_with(prefix)) return true;
    }
  }
  for (const std::string_view name : {"LOCK", "db/CURRENT", "db/IDENTITY"}) {
    if (!std::filesystem::is_regular_file(folder / name, error)) return false;
  }
  return true;
}

Session::Session(Arguments arguments, ByteSink* out)
    : arguments_(std::move(arguments)),
      terminal_(DetectTerminal(STDOUT_FILENO, arguments_.Get("color", "auto"))),
      error_terminal_(
          DetectTerminal(STDERR_FILENO, arguments_.Get("color", "auto"))),
      out_(out) {}

bool Session::ByAddress() const {
  return !directory_.empty() && !LocalPath(directory_).ok();
}

absl::StatusOr<Store*> Session::OpenStore() {
  CKPTREE_ASSIGN_OR_RETURN(Store* const store,
                           Open(true, false, absl::ZeroDuration(), false));
  if (holds_listed_ && held_ == nullptr) {
    CKPTREE_ASSIGN_OR_RETURN(held_, internal::HoldListed(*store));
  }
  return store;
}

absl::StatusOr<Store*> Session::OpenStoreForWriting(bool create,
                                                    absl::Duration lock_wait) {
  return Open(false, create, lock_wait, false);
}

absl::StatusOr<Store*> Session::OpenStoreForAChange() {
  return Open(false, false, absl::ZeroDuration(), true);
}

absl::StatusOr<std::string> Session::FindDirectory() const {
  std::string directory =
      chosen_.empty() ? arguments_.Get("store", "") : chosen_;
  // As where a variable of a script is not set: another store is not meant.
  if (directory.empty() && arguments_.Has("store")) {
    return absl::InvalidArgumentError(
        "-C is empty: give the path of a store, or leave -C out");
  }
  if (directory.empty()) {
    const char* variable = std::getenv("CKPTREE_STORE");
    if (variable != nullptr) directory = variable;
  }
  if (directory.empty()) directory = NearestStore();
  if (directory.empty()) {
    return WithHint(
        absl::NotFoundError("no store here nor in any folder above"),
        "name one with -C DIRECTORY or CKPTREE_STORE, or go into one");
  }
  return directory;
}

absl::StatusOr<Store*> Session::Open(bool read_only, bool create,
                                     absl::Duration lock_wait, bool brief) {
  if (store_) return &*store_;
  absl::StatusOr<std::string> directory = FindDirectory();
  if (!directory.ok()) return directory.status();
  directory_ = *std::move(directory);
  CKPTREE_RETURN_IF_ERROR(CheckAddress(directory_));
  StoreOptions options;
  options.read_only = read_only;
  options.create_if_missing = create;
  options.lock_wait = lock_wait;
  options.brief = brief;
  options.collect = false;  // What a command frees it says.
  // Where a command does not end at once, its reads of an object store do.
  options.cancelled = Interrupted;
  options.log = [this](LogSeverity severity, std::string_view,
                       std::string_view text) {
    if (severity == LogSeverity::kInfo) return;
    Note(absl::StrFormat(
        "%s: %s", severity == LogSeverity::kError ? "error" : "warning", text));
  };
  absl::StatusOr<Store> store = Store::Open(directory_, std::move(options));
  if (!store.ok()) {
    if (absl::IsNotFound(store.status()) &&
        (IsArrayFile(directory_) || !StepFolders(directory_).empty())) {
      return WithHint(store.status(),
                      "there are files of arrays: `ckptree ls`, `show`, `get`, "
                      "`stat` and `diff` read them, `ckptree -C NEW_STORE "
                      "import` saves them");
    }
    if (absl::IsNotFound(store.status())) {
      return WithHint(
          store.status(),
          absl::StrFormat("see whether %s is spelt right, and is the store "
                          "itself, not a folder that has it",
                          !chosen_.empty() ? "the name"
                          : arguments_.Has("store")
                              ? "what follows -C"
                              : "what CKPTREE_STORE says"));
    }
    return store.status();
  }
  store_.emplace(*std::move(store));
  return &*store_;
}

absl::Status Session::Explain(absl::Status status,
                              const StepSelector& selector) {
  if (!absl::IsNotFound(status)) return status;
  const absl::StatusOr<std::vector<StepInfo>> steps =
      store_->Steps(selector.branch);
  if (!steps.ok()) {
    // KEY alone looks like BRANCH/STEP where it ends in a number.
    return WithHint(
        status,
        absl::StrFormat("`ckptree fork` lists the branches; a key stands "
                        "behind a step: `latest:%s`",
                        Text(selector)));
  }
  if (steps->empty() && !selector.branch.empty()) {
    return WithHint(status, "`ckptree fork` lists the branches");
  }
  if (steps->empty()) {
    return WithHint(absl::NotFoundError("the store has no steps yet"),
                    "the first save makes one");
  }
  if (selector.kind != StepSelector::Kind::kStep || selector.back != 0) {
    return WithHint(status, LogHint(selector.branch, ", metrics and tags"));
  }
  std::string near;
  const StepInfo* before = nullptr;
  const StepInfo* after = nullptr;
  for (const StepInfo& info : *steps) {
    if (info.step < selector.step) before = &info;
    if (info.step > selector.step && after == nullptr) after = &info;
  }
  const auto add = [&](const StepInfo& info) {
    near += near.empty() ? "" : " and ";
    near += StepText(info.branch, info.step);
  };
  if (before != nullptr) add(*before);
  if (after != nullptr) add(*after);
  return WithHint(absl::NotFoundError(absl::StrFormat(
                      "there is no step %s; next to it: %s",
                      StepText(selector.branch, selector.step), near)),
                  LogHint(selector.branch, ""));
}

absl::StatusOr<Step> Session::OpenStep(const StepSelector& selector) {
  const absl::StatusOr<Store*> store = OpenStore();
  if (!store.ok()) return store.status();
  absl::StatusOr<Step> step = (*store)->OpenStep(selector);
  if (!step.ok()) return Explain(step.status(), selector);
  return step;
}

absl::StatusOr<StepInfo> Session::Resolve(const StepSelector& selector) {
  const absl::StatusOr<Store*> store = OpenStore();
  if (!store.ok()) return store.status();
  absl::StatusOr<StepInfo> info = (*store)->Resolve(selector);
  if (!info.ok()) return Explain(info.status(), selector);
  return info;
}

absl::Status Session::Print(Table table, const TableOptions& options,
                            Layout* layout) {
  return WriteTable(std::move(table), options, terminal_, layout, out_);
}

absl::Status Session::CheckCanAsk(std::string_view question,
                                  std::string_view hint) {
  // What cannot be changed from here is told first: no answer helps there.
  if (const auto directory = FindDirectory(); directory.ok()) {
    CKPTREE_RETURN_IF_ERROR(LocalPath(*directory).status());
  }
  if (isatty(STDIN_FILENO) != 0) return absl::OkStatus();
  return WithHint(absl::FailedPreconditionError(
                      absl::StrFormat("nobody to ask whether to %s", question)),
                  hint);
}

bool Session::Ask(std::string_view question) {
  absl::FPrintF(stderr, "%s? [y/N] ", question);
  char answer[16] = {};
  return std::fgets(answer, sizeof answer, stdin) != nullptr &&
         (answer[0] == 'y' || answer[0] == 'Y');
}

void Session::Note(std::string_view text) {
  if (arguments_.Has("quiet")) return;
  // On a terminal both are one text: what was printed before comes before.
  if (terminal_.is_terminal) out_->Flush().IgnoreError();
  absl::FPrintF(stderr, "ckptree: %s\n", Escape(text));
}

}  // namespace ckptree::tools
