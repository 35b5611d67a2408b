// SPDX-License-Identifier: Apache-2.0

// `ckptree export`: arrays of a step as one .safetensors file.

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
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
  std::uint64_t left_out = 0;  // Leaves that are no arrays.
};

absl::StatusOr<Plan> MakePlan(const Step& step, std::string_view key,
                              std::string_view glob) {
  if (absl::Status status = ValidateGlob(glob); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::vector<LeafInfo>> found = FindSubtree(step, key);
  if (!found.ok()) return found.status();
  Plan plan;
  std::map<std::string, std::string> names;  // To the key they come from.
  for (const LeafInfo& named : *found) {
    if (!named.is_leaf() && !named.tie_to) continue;
    if (!MatchesGlob(glob, named.name)) continue;
    const absl::StatusOr<LeafInfo> leaf = step.Holder(named);
    if (!leaf.ok()) return leaf.status();
    if (leaf->dtype == DType::kNone) {
      ++plan.left_out;
      continue;
    }
    if (!SafetensorsType(leaf->dtype)) {
      return WithHint(
          absl::InvalidArgumentError(absl::StrFormat(
              "`%s` is %s, which a safetensors file cannot hold",
              Escape(named.name), Name(leaf->dtype))),
          "leave it out with --keys GLOB, or take `ckptree get -o npy`");
    }
    SafetensorsEntry entry;
    entry.name = DottedName(named.path);
    entry.dtype = leaf->dtype;
    entry.shape = leaf->shape;
    entry.bytes = static_cast<std::uint64_t>(
        ArrayBytes(leaf->dtype, leaf->packed, leaf->shape).value_or(0));
    const auto [other, added] = names.emplace(entry.name, named.name);
    if (!added) {
      return WithHint(
          absl::InvalidArgumentError(absl::StrFormat(
              "`%s` and `%s` would both be named `%s`", Escape(other->second),
              Escape(named.name), Escape(entry.name))),
          "export them one by one with --keys");
    }
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

}  // namespace

absl::StatusOr<int> RunExport(Session& session) {
  const std::string& file = session.words()[1];
  if (!file.ends_with(".safetensors")) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`%s`: the only format is .safetensors", Escape(file))),
        "for one array as .npy: `ckptree get REV:KEY -o npy --out FILE`");
  }
  const absl::StatusOr<Address> address = ParseAddress(session.words()[0]);
  if (!address.ok()) return address.status();
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  const absl::StatusOr<Plan> plan =
      MakePlan(*step, address->key, session.arguments().Get("keys", ""));
  if (!plan.ok()) return plan.status();

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
