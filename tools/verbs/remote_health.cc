// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/remote_health.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "core/engine/remote_look.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

using Level = Diagnosis::Level;

constexpr absl::Duration kPatience = absl::Seconds(5);

std::string Said(const absl::Status& status) {
  return Escape(std::string(status.message()));
}

// What to do where it cannot be read.
std::string Advice(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnavailable:
      return HintOf(AtAddress(status));
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return "look at the credentials in the environment and at their rights";
    default:
      return "put right what it says, and look again";
  }
}

// Of a directory, what was asked of its object store now.
Diagnosis OfDirectory(const internal::RemoteLook& look, bool has_writer) {
  Diagnosis row{"remote", Level::kGood, "", ""};
  row.facts = {{"remote", look.address},
               {"by_address", false},
               {"reads", look.reads.ok()},
               {"writes", look.reads.ok() ? Json(look.writes.ok()) : Json()},
               {"behind_commits",
                look.behind.has_value() ? Json(*look.behind) : Json()}};
  const std::string shown = Escape(look.address);
  if (!look.reads.ok()) {
    row.level = Level::kProblem;
    row.what =
        absl::StrFormat("%s, which this is shipped to, cannot be read: %s",
                        shown, Said(look.reads));
    row.advice = Advice(look.reads);
    return row;
  }
  row.what = absl::StrFormat("%s answers", shown);
  if (!look.writes.ok()) {
    // Who only reads may have no right to.
    row.level =
        absl::IsPermissionDenied(look.writes) ? Level::kNote : Level::kProblem;
    row.advice = "who saves needs to write there: see its rights, or its space";
    absl::StrAppendFormat(&row.what, ", and takes nothing: %s",
                          Said(look.writes));
  } else {
    row.what += " and may be written";
  }
  if (!look.went_on.empty()) {
    // What an open for writing would say.
    row.level = Level::kProblem;
    row.facts["went_on"] = look.went_on;
    absl::StrAppendFormat(&row.what, "; another directory went on there (%s)",
                          Escape(look.went_on));
    if (look.behind.value_or(0) == 0) {
      row.what += " after this one was shipped, all of it";
      row.advice =
          "an empty directory with that remote fetches the store and goes on; "
          "this one is read without a remote";
    } else {
      absl::StrAppendFormat(
          &row.what, ", and lacks the last %s: they diverged",
          CountText(*look.behind, "commit of here", "commits of here"));
      row.advice =
          "copy what is to stay out of this one (`ckptree copy`); an empty "
          "directory with that remote fetches the other";
    }
  } else if (!look.behind.has_value()) {
    row.what += "; whether it has all is not known";
  } else if (*look.behind == 0) {
    row.what += "; it has all that is here";
  } else {
    absl::StrAppendFormat(
        &row.what, "; it lacks the last %s",
        CountText(*look.behind, "commit of here", "commits of here"));
    if (!has_writer && row.level == Level::kGood) {
      row.level = Level::kNote;
      row.advice = "the next open for writing with that remote ships them";
    }
  }
  if (!look.strangers.empty()) {
    absl::StrAppendFormat(&row.what,
                          "; objects of another store lie there, too: %s",
                          absl::StrJoin(look.strangers, ", "));
    if (row.level == Level::kGood) {
      row.level = Level::kNote;
      row.advice =
          "give each run a prefix of its own; what is left of another may be "
          "deleted";
    }
  }
  return row;
}

}  // namespace

bool IsOutOfReach(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnavailable:
      return true;
    default:
      return false;
  }
}

Diagnosis OutOfReachAt(const std::string& address, const absl::Status& status) {
  return {
      "remote",
      Level::kProblem,
      absl::StrFormat("%s cannot be read: %s", Escape(address), Said(status)),
      Advice(status),
      {{"remote", address}, {"by_address", true}}};
}

std::optional<Diagnosis> HealthOfRemote(const Store& store) {
  const StoreInfo info = store.Info();
  if (!info.remote.empty()) {
    return Diagnosis{"remote",
                     Level::kGood,
                     absl::StrFormat("this is what %s has", info.remote),
                     "",
                     {{"remote", info.remote}, {"by_address", true}}};
  }
  const internal::RemoteLook look = internal::LookAtRemote(store, kPatience);
  if (look.address.empty()) {
    if (look.reads.ok()) return std::nullopt;
    return Diagnosis{"remote",
                     Level::kProblem,
                     "no open with a remote goes on",
                     Said(look.reads),
                     {{"remote", Json()}, {"by_address", false}}};
  }
  Diagnosis row = OfDirectory(look, info.following);
  if (info.far_bytes == 0) return row;
  absl::StrAppendFormat(&row.what,
                        "; %s of array bytes left this disk (local_keep) and "
                        "are there alone",
                        SizeText(info.far_bytes));
  row.facts["far_bytes"] = info.far_bytes;
  return row;
}

}  // namespace ckptree::tools
