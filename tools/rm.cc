// `ckptree rm`: removes steps.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/command.h"
#include "tools/failure.h"
#include "tools/quantity.h"

namespace ckptree::tools {
namespace {

// Steps that the words name, ascending, each once.
absl::StatusOr<std::vector<StepInfo>> Named(Session& session, Store* store) {
  const absl::StatusOr<std::vector<StepInfo>> all = store->Steps();
  if (!all.ok()) return all.status();
  std::set<std::int64_t> wanted;
  for (const std::string& word : session.words()) {
    const bool is_range = word.find("..") != std::string::npos;
    const absl::StatusOr<StepRange> range = ParseRange(word);
    if (!range.ok()) return range.status();
    const auto end = [&](const std::optional<StepSelector>& selector,
                         std::int64_t open) -> absl::StatusOr<std::int64_t> {
      if (!selector) return open;
      if (is_range && selector->kind == StepSelector::Kind::kStep &&
          selector->back == 0) {
        return selector->step;
      }
      const absl::StatusOr<StepInfo> info = session.Resolve(*selector);
      if (!info.ok()) return info.status();
      return info->step;
    };
    const absl::StatusOr<std::int64_t> first = end(range->first, 0);
    if (!first.ok()) return first.status();
    const absl::StatusOr<std::int64_t> last =
        end(range->last, std::numeric_limits<std::int64_t>::max());
    if (!last.ok()) return last.status();
    for (const StepInfo& info : *all) {
      if (info.step >= *first && info.step <= *last) wanted.insert(info.step);
    }
  }
  std::vector<StepInfo> steps;
  for (const StepInfo& info : *all) {
    if (wanted.contains(info.step)) steps.push_back(info);
  }
  return steps;
}

bool Confirm(std::size_t count) {
  absl::FPrintF(stderr, "remove %s? [y/N] ", CountText(count, "step", "steps"));
  char answer[16] = {};
  return std::fgets(answer, sizeof answer, stdin) != nullptr &&
         (answer[0] == 'y' || answer[0] == 'Y');
}

}  // namespace

absl::StatusOr<int> RunRm(Session& session) {
  const bool dry_run = session.arguments().Has("dry-run");
  const bool asks = !dry_run && !session.arguments().Has("yes");
  if (asks && isatty(STDIN_FILENO) == 0) {
    return WithHint(absl::FailedPreconditionError(
                        "nobody to ask whether to remove the steps"),
                    "add -y to remove them, --dry-run to see which");
  }
  for (const std::string& word : session.words()) {
    // ".." alone, or a range that lost its ends in a script: too much.
    if (word == ".." || word.empty()) {
      return WithHint(
          absl::InvalidArgumentError("`" + word + "` would be every step"),
          "name an end: 0..latest");
    }
  }
  const absl::StatusOr<Store*> store =
      dry_run ? session.OpenStore() : session.OpenStoreForWriting();
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::vector<StepInfo>> steps = Named(session, *store);
  if (!steps.ok()) return steps.status();
  for (const StepInfo& info : *steps) {
    if (!info.pinned) continue;
    return WithHint(
        absl::FailedPreconditionError(absl::StrFormat(
            "step %d is pinned; nothing was removed", info.step)),
        absl::StrFormat("`ckptree pin --delete %d` unpins it", info.step));
  }
  if (steps->empty()) session.Note("no steps there");
  if (asks && !steps->empty() && !Confirm(steps->size())) {
    session.Note("nothing was removed");
    return kExitNegative;
  }
  for (const StepInfo& info : *steps) {
    if (!dry_run) {
      if (absl::Status status = (*store)->Delete(info.step); !status.ok()) {
        return status;
      }
    }
    session.out().Write(absl::StrFormat(
        "%s step %d\n", dry_run ? "would remove" : "removed", info.step));
  }
  if (absl::Status status = (*store)->Close(); !status.ok()) return status;
  return kExitOk;
}

}  // namespace ckptree::tools
