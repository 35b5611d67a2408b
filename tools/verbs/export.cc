// SPDX-License-Identifier: Apache-2.0

// `ckptree export`: arrays of a step, or of a file, in another format.

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/version/step_health.h"
#include "tools/line/command.h"
#include "tools/line/file_word.h"
#include "tools/line/target.h"
#include "tools/output/array_reader.h"
#include "tools/output/failure.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/new_file.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/output/safetensors.h"
#include "tools/verbs/export_formats.h"

namespace ckptree::tools {
namespace {

struct Plan {
  std::vector<ExportArray> arrays;
  std::uint64_t bytes = 0;
  std::uint64_t left_out = 0;        // Leaves that are no arrays.
  std::vector<std::string> skipped;  // By --skip: the key, and why.
};

// What the flags ask of names.
struct Naming {
  std::string strip;
  std::vector<std::pair<std::string, std::string>> renames;
  bool stripped = false;
  std::vector<bool> renamed;  // As `renames`.
};

absl::StatusOr<Naming> ParseNaming(const Arguments& arguments) {
  Naming naming;
  naming.strip = arguments.Get("strip", "");
  for (const std::string& rename : arguments.All("rename")) {
    const std::size_t sign = rename.find('=');
    if (sign == std::string::npos || sign == 0) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "`--rename %s` is not OLD=NEW", Escape(rename))),
                      "as --rename params.block=model.layers");
    }
    naming.renames.emplace_back(rename.substr(0, sign),
                                rename.substr(sign + 1));
  }
  naming.renamed.resize(naming.renames.size());
  return naming;
}

// True where `prefix` is all of `name` or its first parts.
bool Begins(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) &&
         (name.size() == prefix.size() || name[prefix.size()] == '.');
}

std::string NewName(std::string name, Naming* naming) {
  if (!naming->strip.empty() && Begins(name, naming->strip) &&
      name.size() > naming->strip.size()) {
    name.erase(0, naming->strip.size() + 1);
    naming->stripped = true;
  }
  for (std::size_t i = 0; i < naming->renames.size(); ++i) {
    const auto& [from, to] = naming->renames[i];
    if (!Begins(name, from)) continue;
    naming->renamed[i] = true;
    std::string rest = name.substr(from.size());
    if (to.empty() && rest.starts_with('.')) rest.erase(0, 1);
    return to + rest;
  }
  return name;
}

// kInvalidArgument: a flag names none, so nothing would come of it. `like`: a
// name as it was before them.
absl::Status CheckUsed(const Naming& naming, std::string_view like) {
  std::vector<std::string> unused;
  if (!naming.strip.empty() && !naming.stripped) {
    unused.push_back(absl::StrFormat("--strip %s: no name begins with `%s.`",
                                     Escape(naming.strip),
                                     Escape(naming.strip)));
  }
  for (std::size_t i = 0; i < naming.renames.size(); ++i) {
    if (naming.renamed[i]) continue;
    unused.push_back(absl::StrFormat("--rename %s=%s: no name is or begins so",
                                     Escape(naming.renames[i].first),
                                     Escape(naming.renames[i].second)));
  }
  if (unused.empty()) return absl::OkStatus();
  return WithHint(
      absl::InvalidArgumentError(absl::StrJoin(unused, "; ")),
      absl::StrFormat("names are keys joined by dots: one is `%s`. --rename "
                      "sees what --strip left, and the first that fits counts",
                      Escape(like)));
}

// True where there are no `globs`, or one of them is of `key`.
bool IsChosen(const std::vector<std::string>& globs, std::string_view key) {
  return globs.empty() ||
         std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
           return MatchesGlob(glob, key);
         });
}

// What could be exported: of a step, or of a file.
absl::Status AddArraysOf(const Step& step, std::string_view key,
                         const std::vector<std::string>& globs,
                         std::vector<ExportArray>* arrays,
                         std::uint64_t* left_out) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<LeafInfo> found,
                           FindSubtree(step, key));
  for (const LeafInfo& named : found) {
    if (!named.is_leaf() && !named.tie_to) continue;
    CKPTREE_ASSIGN_OR_RETURN(LeafInfo leaf, step.Holder(named));
    if (!HoldsArray(leaf)) {
      *left_out += IsChosen(globs, named.name) ? 1 : 0;
      continue;
    }
    ExportArray array;
    array.key = named.name;
    array.name = DottedName(named.path);
    array.leaf = std::move(leaf);
    array.reader = [&step](const LeafInfo& of) {
      return ArrayReader(step, of);
    };
    arrays->push_back(std::move(array));
  }
  return absl::OkStatus();
}

absl::Status AddArraysOf(const FileWord& word,
                         std::vector<ExportArray>* arrays) {
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<FileArray> all,
                           FindWholeArrays(*word.file, word.key, "export"));
  for (const FileArray& found : all) {
    ExportArray array;
    array.key = found.name;
    array.name =
        word.file->has_paths() ? DottedName(found.leaf.path) : found.name;
    array.leaf = found.leaf;
    array.why_not = found.why_not;
    array.reader = [file = word.file, found](const LeafInfo& of) {
      return ArrayReader(
          of, [file, found](const BoxSpec& box, std::span<std::byte> to) {
            return file->ReadBox(found, box, to);
          });
    };
    arrays->push_back(std::move(array));
  }
  return absl::OkStatus();
}

// Keeps what the flags ask for and the format can hold.
absl::Status Choose(const Arguments& arguments,
                    const std::vector<std::string>& globs, ExportFormat format,
                    Plan* plan) {
  CKPTREE_ASSIGN_OR_RETURN(Naming naming, ParseNaming(arguments));
  std::string like;
  std::map<std::string, std::string> names;  // To the key they come from.
  std::vector<ExportArray> chosen;
  for (ExportArray& array : plan->arrays) {
    if (!IsChosen(globs, array.key)) continue;
    if (like.empty()) like = array.name;
    array.name = NewName(array.name, &naming);
    std::string why;
    if (array.leaf.dtype == DType::kNone) {
      why = absl::StrFormat("`%s` cannot be read: %s", Escape(array.key),
                            array.why_not);
    } else if (IsAsSafetensors(format) && !SafetensorsType(array.leaf.dtype)) {
      why = absl::StrFormat("`%s` is %s, which %s cannot hold",
                            Escape(array.key), Name(array.leaf.dtype),
                            format == ExportFormat::kSafetensors
                                ? "a safetensors file"
                                : "the file of safetensors between");
    } else if (format == ExportFormat::kOrbax &&
               ElementCount(array.leaf.shape) == 0) {
      why = absl::StrFormat(
          "`%s` has no elements, and Orbax saves no such arrays",
          Escape(array.key));
    } else if (!CanBeNamed(format, array.name)) {
      why = absl::StrFormat("`%s` would be named `%s`, which is no name there",
                            Escape(array.key), Escape(array.name));
    } else if (const auto [other, added] = names.emplace(array.name, array.key);
               !added) {
      why = arguments.Has("skip")
                ? absl::StrFormat(
                      "`%s`: its name would be `%s`, as that of "
                      "`%s` is",
                      Escape(array.key), Escape(array.name),
                      Escape(other->second))
                : absl::StrFormat("`%s` and `%s` would both be named `%s`",
                                  Escape(other->second), Escape(array.key),
                                  Escape(array.name));
    }
    if (!why.empty()) {
      if (!arguments.Has("skip")) {
        return WithHint(absl::InvalidArgumentError(why),
                        "--skip leaves it out, --keys GLOB says which to take, "
                        "--rename OLD=NEW gives other names");
      }
      plan->skipped.push_back(std::move(why));
      continue;
    }
    // Types below 8 bits come out one element to a byte.
    array.bytes = static_cast<std::uint64_t>(
        ArrayBytes(array.leaf.dtype, false, array.leaf.shape).value_or(0));
    plan->bytes += array.bytes;
    chosen.push_back(std::move(array));
  }
  plan->arrays = std::move(chosen);
  if (!like.empty()) CKPTREE_RETURN_IF_ERROR(CheckUsed(naming, like));
  if (plan->arrays.empty()) {
    return WithHint(
        absl::NotFoundError("there are no arrays among these: values of other "
                            "kinds, as numbers of Python, are not exported"),
        "`ckptree ls` lists the keys and their kinds");
  }
  return absl::OkStatus();
}

absl::Status CheckFolder(const std::string& file) {
  const std::filesystem::path folder =
      std::filesystem::path(file).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) {
    return absl::OkStatus();
  }
  return WithHint(absl::NotFoundError(absl::StrFormat("there is no folder %s",
                                                      Escape(folder.string()))),
                  "make it first");
}

// Nothing is written over that is there, unless --force says so.
absl::Status CheckIsFree(const std::string& file) {
  struct stat there {};
  // A pipe or /dev/null is written into.
  if (::stat(file.c_str(), &there) != 0 ||
      (!S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))) {
    return absl::OkStatus();
  }
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat("%s exists", Escape(file))),
      S_ISDIR(there.st_mode) ? "move the folder away, or name another"
                             : "--force writes over it");
}

// --force writes over a file, and into the place of a folder that has nothing
// in it, where a folder is to be made.
absl::Status CheckMayReplace(const std::string& file, ExportFormat format) {
  std::error_code error;
  const std::filesystem::path path(file);
  if (!std::filesystem::is_directory(path, error) ||
      (MakesFolder(format) && std::filesystem::is_empty(path, error))) {
    return absl::OkStatus();
  }
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat(
          "%s is a folder: --force writes over files alone", Escape(file))),
      "move the folder away, or name another");
}

}  // namespace

absl::StatusOr<int> RunExport(Session& session) {
  const std::string& target = session.words()[1];
  if (target == "-") {
    return WithHint(absl::InvalidArgumentError("`-` is no name of a file"),
                    "name one; /dev/stdout is standard output");
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const ExportFormat format,
      ExportFormatOf(target, session.arguments().Get("format", "")));
  CKPTREE_RETURN_IF_ERROR(CheckFolder(target));
  CKPTREE_RETURN_IF_ERROR(session.arguments().Has("force")
                              ? CheckMayReplace(target, format)
                              : CheckIsFree(target));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<FileWord> file,
                           FindFile(session, session.words()[0]));
  Plan plan;
  std::vector<std::string> globs = session.arguments().All("keys");
  // A file may have names that are no keys.
  if (!file) globs = PlainKeys(std::move(globs));
  for (const std::string& glob : globs) {
    CKPTREE_RETURN_IF_ERROR(ValidateGlob(glob));
  }
  std::optional<Step> step;
  std::string from;
  std::vector<std::pair<std::string, std::string>> metadata;
  if (file) {
    CKPTREE_RETURN_IF_ERROR(AddArraysOf(*file, &plan.arrays));
    metadata = file->file->metadata();
    for (const std::string& why : file->file->disputed()) {
      if (!HoldsMetadata(format)) break;
      if (!session.arguments().Has("skip")) {
        return WithHint(absl::FailedPreconditionError(
                            absl::StrFormat("%s: its metadata differs: %s",
                                            Escape(file->file->path()), why)),
                        "--skip leaves it out");
      }
      plan.skipped.push_back(why);
    }
    from = Escape(file->file->path());
  } else {
    CKPTREE_ASSIGN_OR_RETURN(const Address address,
                             ParseAddress(session.words()[0]));
    CKPTREE_ASSIGN_OR_RETURN(Step opened, session.OpenStep(address.step));
    step.emplace(std::move(opened));
    CKPTREE_RETURN_IF_ERROR(
        AddArraysOf(*step, address.key, globs, &plan.arrays, &plan.left_out));
    const std::string name = StepText(step->info().branch, step->step());
    metadata = {{"ckptree.step", name},
                {"ckptree.digest", step->info().digest}};
    from = "step " + name;
  }
  CKPTREE_RETURN_IF_ERROR(Choose(session.arguments(), globs, format, &plan));
  RemoveAbandonedBeside(target);
  if (step.has_value()) {
    const std::string_view loss = internal::LossIn(step->info().note);
    if (!loss.empty()) {
      session.Note(
          absl::StrFormat("%s: %s; what is written is the rest", from, loss));
    }
  }
  for (const std::string& why : plan.skipped) session.Note("left out: " + why);
  {
    ProgressLine progress("export", session.error_terminal().is_terminal &&
                                        !session.arguments().Has("quiet"));
    std::uint64_t done = 0;
    const Others others =
        session.arguments().Has("force") ? Others::kReplace : Others::kKeep;
    CKPTREE_RETURN_IF_ERROR(WriteExport(
        format, target, plan.arrays, metadata,
        [&](std::uint64_t bytes) {
          done += bytes;
          progress.Update(done, plan.bytes);
        },
        others));
  }
  session.Note(absl::StrFormat(
      "wrote %s, %s, from %s%s",
      CountText(plan.arrays.size(), "array", "arrays"), SizeText(plan.bytes),
      from,
      plan.left_out == 0
          ? ""
          : absl::StrFormat("; left out %s",
                            CountText(plan.left_out, "leaf that is no array",
                                      "leaves that are no arrays"))));
  return kExitOk;
}

}  // namespace ckptree::tools
