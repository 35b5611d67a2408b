// SPDX-License-Identifier: Apache-2.0

#include "core/engine/request_execution.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ckptree/preservation.h"
#include "ckptree/selector.h"
#include "core/process/guarded_call.h"

namespace ckptree::internal {
namespace {

// An answer is a small file: what a person reads no more is left out.
constexpr std::size_t kMostInAnswer = 1000;

StepSelector RequestedSelector(const schema::RequestedStep& step) {
  StepSelector selector = AtStep(step.step, step.branch);
  selector.version = step.version;
  return selector;
}

absl::StatusOr<Preservation> RequestedPolicy(const std::string& text) {
  CKPTREE_ASSIGN_OR_RETURN(Preservation policy, ParsePreservation(text));
  if (const std::string name = MissingFunction(policy); !name.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "'%s' would be a function, which a program alone can give", name));
  }
  return policy;
}

absl::Status Collect(const RequestContext& context,
                     const schema::StoreRequest& request,
                     const std::function<bool()>& cancelled,
                     schema::StoreAnswer* answer) {
  CKPTREE_RETURN_IF_ERROR(context.commits->CheckWritable());
  CollectOptions options;
  options.min_dead_fraction = request.min_dead_fraction;
  options.bytes_per_second = request.bytes_per_second;
  options.pack = request.pack;
  options.cancelled = cancelled;
  CKPTREE_ASSIGN_OR_RETURN(CollectReport report,
                           context.collector->Collect(options));
  answer->versions = report.versions;
  answer->blocks_freed = report.blocks_freed;
  answer->bytes_freed = report.bytes_freed;
  answer->far_bytes_freed = report.far_bytes_freed;
  answer->bytes_left = report.bytes_left;
  answer->files_dropped = report.files_dropped;
  answer->files_rewritten = report.files_rewritten;
  answer->bytes_written = report.bytes_written;
  answer->files_packed = report.files_packed;
  answer->file_bytes_before = report.file_bytes_before;
  answer->file_bytes_after = report.file_bytes_after;
  for (KeptVersion& kept : report.kept) {
    if (answer->kept.size() == kMostInAnswer) break;
    answer->kept.push_back({kept.step, kept.version, std::move(kept.why)});
  }
  answer->damaged = std::move(report.damaged);
  answer->no_room = std::move(report.no_room);
  for (auto* list : {&answer->damaged, &answer->no_room}) {
    if (list->size() > kMostInAnswer) list->resize(kMostInAnswer);
  }
  return absl::OkStatus();
}

absl::Status Execute(const RequestContext& context,
                     const schema::StoreRequest& request,
                     const std::function<bool()>& cancelled,
                     schema::StoreAnswer* answer) {
  using Kind = schema::RequestKind;
  CatalogCommits& commits = *context.commits;
  switch (request.kind) {
    case Kind::kTag:
      return commits.Tag(request.name, RequestedSelector(request.steps[0]),
                         request.move);
    case Kind::kUntag:
      return commits.Untag(request.name);
    case Kind::kPin:
    case Kind::kUnpin:
      for (const schema::RequestedStep& step : request.steps) {
        CKPTREE_RETURN_IF_ERROR(
            commits.Pin(RequestedSelector(step), request.kind == Kind::kPin));
      }
      return absl::OkStatus();
    case Kind::kDelete: {
      std::vector<StepSelector> selectors;
      selectors.reserve(request.steps.size());
      for (const schema::RequestedStep& step : request.steps) {
        selectors.push_back(RequestedSelector(step));
      }
      return commits.Delete(selectors, {.tagged = request.tagged});
    }
    case Kind::kFork:
      return commits.Fork(RequestedSelector(request.steps[0]), request.name);
    case Kind::kDropBranch:
      return commits.DropBranch(request.name, {.tagged = request.tagged},
                                request.created_ns);
    case Kind::kSetPolicy: {
      CKPTREE_ASSIGN_OR_RETURN(const Preservation policy,
                               RequestedPolicy(request.policy));
      return context.settings->SetPolicy(policy, request.name,
                                         /*from_program=*/false);
    }
    case Kind::kApplyPolicy: {
      CKPTREE_ASSIGN_OR_RETURN(answer->removed,
                               context.settings->ApplyPolicy(request.name));
      return absl::OkStatus();
    }
    case Kind::kCollect:
      return Collect(context, request, cancelled, answer);
  }
  return absl::UnimplementedError("this is not known here");
}

}  // namespace

schema::StoreAnswer ExecuteRequest(const RequestContext& context,
                                   const schema::StoreRequest& request,
                                   const std::function<bool()>& cancelled) {
  schema::StoreAnswer answer;
  const absl::Status status = GuardedStatus("what was asked for", [&] {
    return Execute(context, request, cancelled, &answer);
  });
  answer.code = static_cast<std::uint32_t>(status.code());
  answer.text = std::string(status.message());
  return answer;
}

}  // namespace ckptree::internal
