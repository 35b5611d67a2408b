// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/import_steps.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/remove.h"
#include "ckptree/store.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// True where the reader of `kind` takes it as one of several steps.
bool Takes(Foreign kind, const NamedStep& step) {
  switch (kind) {
    case Foreign::kTorch:
      return step.torch_reads;
    case Foreign::kOrbax:
      return step.kind == Foreign::kOrbax;
    case Foreign::kNone:
      return step.is_read && step.kind == Foreign::kNone;
  }
  return false;
}

absl::Status Refused(const std::string& folder, const NamedStep& step) {
  const bool known =
      step.is_read || step.torch_reads || step.kind != Foreign::kNone;
  if (known) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "%s is of another kind than other steps of %s",
                        Escape(step.path), Escape(folder))),
                    "import its steps one by one, each by its path");
  }
  return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                      "%s is called as a step of %s, and holds no checkpoint "
                      "that is known here",
                      Escape(step.path), Escape(folder))),
                  "move it elsewhere, or import the others one by one");
}

// True where the whole of `folder` is one checkpoint for the reader of `kind`.
bool IsOne(Foreign kind, const std::string& folder) {
  if (kind != Foreign::kTorch) return IsArrayFile(folder);
  // Beside files of one, folders of others may lie, which are read then.
  std::error_code error;
  return fs::exists(fs::path(folder) / ".metadata", error);
}

}  // namespace

absl::StatusOr<std::vector<ImportSource>> ImportSources(
    const std::vector<std::string>& words, Foreign kind,
    const std::optional<std::int64_t>& step) {
  std::vector<ImportSource> sources;
  for (const std::string& word : words) {
    std::vector<NamedStep> named;
    if (IsFolder(word)) named = NamedSteps(word);
    const bool one = IsOne(kind, word);
    if (step) {
      const bool had_steps = !named.empty();
      std::erase_if(named,
                    [&](const NamedStep& each) { return each.step != *step; });
      if (had_steps && named.empty() && !one) {
        return WithHint(
            absl::NotFoundError(absl::StrFormat(
                "%s has no checkpoint of step %d", Escape(word), *step)),
            "without --step all that it has are imported");
      }
    }
    if (one || named.empty()) {
      // Parts of one checkpoint may be called as steps. Steps beside one would
      // be left out.
      for (const NamedStep& beside : named) {
        if (kind != Foreign::kNone || !Takes(kind, beside) ||
            !IsFolder(beside.path)) {
          continue;
        }
        return WithHint(
            absl::InvalidArgumentError(absl::StrFormat(
                "%s is a checkpoint, and has another of its own in it: %s",
                Escape(word), Escape(beside.path))),
            "name the file, or the folders of the steps");
      }
      sources.push_back({word, std::nullopt});
      continue;
    }
    const bool folders =
        std::any_of(named.begin(), named.end(),
                    [](const NamedStep& each) { return IsFolder(each.path); });
    for (const NamedStep& each : named) {
      // Where there are folders ckptree.torch takes no file for a step.
      if (!Takes(kind, each) ||
          (kind == Foreign::kTorch && folders && !IsFolder(each.path))) {
        return Refused(word, each);
      }
    }
    // Python knows what its folders of several are called: those of Orbax by
    // their numbers alone.
    const auto is_bare = [](const NamedStep& each) {
      return fs::path(each.path).filename().string().find_first_not_of(
                 "0123456789") == std::string::npos;
    };
    if (kind == Foreign::kTorch ||
        (kind == Foreign::kOrbax &&
         std::all_of(named.begin(), named.end(), is_bare))) {
      sources.push_back({word, std::nullopt});
      continue;
    }
    for (NamedStep& each : named) {
      sources.push_back({std::move(each.path), each.step});
    }
  }
  return sources;
}

NewStore::NewStore(const Session& session) {
  const absl::StatusOr<std::string> directory = session.FindDirectory();
  if (!directory.ok()) return;
  std::error_code error;
  had_folder_ = fs::exists(*directory, error);
  if (error) return;
  StoreOptions options;
  options.read_only = true;
  options.log = [](LogSeverity, std::string_view, std::string_view) {};
  if (!absl::IsNotFound(Store::Open(*directory, std::move(options)).status())) {
    return;
  }
  directory_ = *directory;
}

void NewStore::RemoveIfEmpty(Session& session) const {
  if (directory_.empty()) return;
  session.CloseStore();
  std::error_code error;
  const fs::perms permissions = fs::status(directory_, error).permissions();
  // It may be in use since, or have steps of another program: it is let alone.
  if (error || !RemoveStore(directory_).ok() || !had_folder_) return;
  if (fs::create_directory(directory_, error)) {
    fs::permissions(directory_, permissions, error);
  }
}

std::string SavedText(const Table& table, const std::string& branch) {
  constexpr std::size_t kMostNamed = 8;
  std::vector<std::string> saved;
  for (const std::vector<Cell>& row : table.rows) {
    if (row[1].value != "saved") continue;
    saved.push_back(StepText(branch, row[0].value.get<std::int64_t>()));
  }
  if (saved.empty()) return "";
  if (saved.size() == 1) return absl::StrFormat("step %s is saved", saved[0]);
  if (saved.size() > kMostNamed) {
    return absl::StrFormat("%d steps are saved", saved.size());
  }
  return absl::StrFormat("steps %s are saved", absl::StrJoin(saved, ", "));
}

absl::Status ImportFailed(const absl::Status& status, const std::string& path,
                          const std::string& saved) {
  std::string message(status.message());
  if (message.find(Escape(path)) == message.npos) {
    message = absl::StrFormat("%s: %s", Escape(path), message);
  }
  if (!saved.empty()) message += "; " + saved;
  absl::Status told(status.code(), message);
  status.ForEachPayload(
      [&told](absl::string_view url, const absl::Cord& payload) {
        told.SetPayload(url, payload);
      });
  return told;
}

}  // namespace ckptree::tools
