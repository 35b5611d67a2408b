// SPDX-License-Identifier: Apache-2.0

// `ckptree export`: arrays of a step as one .safetensors file.

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/line/command.h"
#include "tools/line/target.h"
#include "tools/output/array_reader.h"
#include "tools/output/byte_sink.h"
#include "tools/output/failure.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/output/safetensors.h"
#include "tools/output/slice.h"

namespace ckptree::tools {
namespace {

struct Plan {
  std::vector<LeafInfo> leaves;
  std::vector<SafetensorsEntry> entries;
  std::uint64_t bytes = 0;
  std::uint64_t left_out = 0;        // Leaves that are no arrays.
  std::vector<std::string> skipped;  // By --skip: the key, and why.
};

// What the flags ask of names.
struct Naming {
  std::string strip;
  std::vector<std::pair<std::string, std::string>> renames;
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
  return naming;
}

// True where `prefix` is all of `name` or its first parts.
bool Begins(std::string_view name, std::string_view prefix) {
  return name.starts_with(prefix) &&
         (name.size() == prefix.size() || name[prefix.size()] == '.');
}

std::string NewName(std::string name, const Naming& naming) {
  if (!naming.strip.empty() && Begins(name, naming.strip) &&
      name.size() > naming.strip.size()) {
    name.erase(0, naming.strip.size() + 1);
  }
  for (const auto& [from, to] : naming.renames) {
    if (!Begins(name, from)) continue;
    std::string rest = name.substr(from.size());
    if (to.empty() && rest.starts_with('.')) rest.erase(0, 1);
    return to + rest;
  }
  return name;
}

absl::StatusOr<Plan> MakePlan(const Step& step, std::string_view key,
                              const std::vector<std::string>& globs,
                              const Naming& naming, bool skip) {
  for (const std::string& glob : globs) {
    if (absl::Status status = ValidateGlob(glob); !status.ok()) return status;
  }
  absl::StatusOr<std::vector<LeafInfo>> found = FindSubtree(step, key);
  if (!found.ok()) return found.status();
  Plan plan;
  std::map<std::string, std::string> names;  // To the key they come from.
  for (const LeafInfo& named : *found) {
    if (!named.is_leaf() && !named.tie_to) continue;
    if (!globs.empty() &&
        std::none_of(globs.begin(), globs.end(), [&](const std::string& glob) {
          return MatchesGlob(glob, named.name);
        })) {
      continue;
    }
    const absl::StatusOr<LeafInfo> leaf = step.Holder(named);
    if (!leaf.ok()) return leaf.status();
    if (leaf->dtype == DType::kNone) {
      ++plan.left_out;
      continue;
    }
    SafetensorsEntry entry;
    entry.name = NewName(DottedName(named.path), naming);
    std::string why;
    if (!SafetensorsType(leaf->dtype)) {
      why = absl::StrFormat("`%s` is %s, which a safetensors file cannot hold",
                            Escape(named.name), Name(leaf->dtype));
    } else if (entry.name.empty() || entry.name == "__metadata__") {
      why = absl::StrFormat("`%s` would be named `%s`, which is no name there",
                            Escape(named.name), entry.name);
    } else if (const auto [other, added] =
                   names.emplace(entry.name, named.name);
               !added) {
      why = absl::StrFormat("`%s` and `%s` would both be named `%s`",
                            Escape(other->second), Escape(named.name),
                            Escape(entry.name));
    }
    if (!why.empty()) {
      if (!skip) {
        return WithHint(absl::InvalidArgumentError(why),
                        "--skip leaves it out, --keys GLOB says which to take, "
                        "--rename OLD=NEW gives other names");
      }
      plan.skipped.push_back(std::move(why));
      continue;
    }
    entry.dtype = leaf->dtype;
    entry.shape = leaf->shape;
    entry.bytes = static_cast<std::uint64_t>(
        ArrayBytes(leaf->dtype, leaf->packed, leaf->shape).value_or(0));
    plan.bytes += entry.bytes;
    plan.leaves.push_back(*leaf);
    plan.entries.push_back(std::move(entry));
  }
  if (plan.entries.empty()) {
    return WithHint(absl::NotFoundError("there are no arrays to export"),
                    "`ckptree ls` lists the keys");
  }
  return plan;
}

// Nothing is written over that is there, unless --force says so.
absl::Status CheckIsFree(const std::string& file) {
  struct stat there {};
  if (::stat(file.c_str(), &there) != 0 || !S_ISREG(there.st_mode)) {
    return absl::OkStatus();
  }
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat("%s exists", Escape(file))),
      "--force writes over it");
}

}  // namespace

absl::StatusOr<int> RunExport(Session& session) {
  const std::string& file = session.words()[1];
  if (!file.ends_with(".safetensors")) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s`: the only format is .safetensors", Escape(file))),
        "for one array as .npy: `ckptree get REV:KEY -o npy --out FILE`");
  }
  if (!session.arguments().Has("force")) {
    if (absl::Status status = CheckIsFree(file); !status.ok()) return status;
  }
  const absl::StatusOr<Naming> naming = ParseNaming(session.arguments());
  if (!naming.ok()) return naming.status();
  const absl::StatusOr<Address> address = ParseAddress(session.words()[0]);
  if (!address.ok()) return address.status();
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  const absl::StatusOr<Plan> plan =
      MakePlan(*step, address->key, session.arguments().All("keys"), *naming,
               session.arguments().Has("skip"));
  if (!plan.ok()) return plan.status();
  for (const std::string& why : plan->skipped) {
    session.Note("left out: " + why);
  }

  absl::StatusOr<NewFile> created = NewFile::Create(file);
  if (!created.ok()) return created.status();
  ByteSink sink(created->descriptor());
  sink.Write(SafetensorsHeader(
      plan->entries,
      {{"ckptree.step", StepText(step->info().branch, step->step())},
       {"ckptree.digest", step->info().digest}}));
  {
    ProgressLine progress("export", session.error_terminal().is_terminal &&
                                        !session.arguments().Has("quiet"));
    std::uint64_t done = 0;
    for (const LeafInfo& leaf : plan->leaves) {
      const absl::Status status =
          ArrayReader(*step, leaf)
              .ReadPieces(
                  SelectAll(leaf.shape), [&](std::span<const std::byte> piece) {
                    sink.Write(piece);
                    done += piece.size();
                    progress.Update(done, plan->bytes);
                    return sink.failed() ? sink.Flush() : absl::OkStatus();
                  });
      if (!status.ok()) return status;
    }
  }
  if (absl::Status status = sink.Flush(); !status.ok()) return status;
  if (absl::Status status = created->Commit(); !status.ok()) return status;
  session.Note(absl::StrFormat(
      "wrote %s, %s, from step %s%s",
      CountText(plan->entries.size(), "array", "arrays"), SizeText(plan->bytes),
      StepText(step->info().branch, step->step()),
      plan->left_out == 0
          ? ""
          : absl::StrFormat("; left out %s",
                            CountText(plan->left_out, "leaf that is no array",
                                      "leaves that are no arrays"))));
  return kExitOk;
}

}  // namespace ckptree::tools
