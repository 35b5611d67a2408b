// SPDX-License-Identifier: Apache-2.0

#include "tools/output/failure.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/process/out_of_reach.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

constexpr char kHintUrl[] = "ckptree.tools/hint";
constexpr char kPlaceUrl[] = "ckptree.tools/place";
constexpr char kExitCodeUrl[] = "ckptree.tools/exit-code";

// `text`, one line, with its longest words and at last itself cut.
std::string Shortened(std::string_view text) {
  constexpr std::size_t kLongestWord = 1000;  // Some paths are as long.
  constexpr int kOfLongWord = 200;
  constexpr int kLongest = 8000;
  std::string out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    out += word.size() > kLongestWord
               ? ElideMiddle(word, kOfLongWord, /*utf8=*/false)
               : std::string(word);
    text.remove_prefix(word.size());
    const std::size_t spaces =
        std::min(text.find_first_not_of(' '), text.size());
    out.append(spaces, ' ');
    text.remove_prefix(spaces);
  }
  return ElideMiddle(out, kLongest, /*utf8=*/false);
}

// What is asked for is in that object store, which did not say it.
std::string HintOfRemote(std::string_view address, const absl::Status& status) {
  if (!absl::IsUnavailable(status)) {
    return absl::StrFormat(
        "%s refuses it: look at the credentials in the environment and at "
        "their rights; `ckptree doctor` asks it",
        address);
  }
  if (address.starts_with("file://")) {
    return absl::StrFormat(
        "%s has it: mount its file system, or see where the folder is; then "
        "try again. `ckptree doctor` asks it",
        address);
  }
  return absl::StrFormat(
      "%s has it: see whether the endpoint in the environment is right and can "
      "be reached from this machine; then try again. `ckptree doctor` asks it",
      address);
}

constexpr const char* kHintOfFileSize = "`ulimit -f` is less than it takes";

}  // namespace

absl::Status WithHint(absl::Status status, std::string_view hint) {
  if (!status.ok() && !status.GetPayload(kHintUrl)) {
    status.SetPayload(kHintUrl, absl::Cord(std::string(hint)));
  }
  return status;
}

std::string HintOf(const absl::Status& status) {
  if (const auto hint = status.GetPayload(kHintUrl)) {
    return std::string(*hint);
  }
  if (const auto address = internal::OutOfReach(status)) {
    return HintOfRemote(*address, status);
  }
  const std::string message(status.message());
  if (message.ends_with(std::strerror(EFBIG))) return kHintOfFileSize;
  if (message.ends_with(std::strerror(EMFILE))) {
    return "`ulimit -n` is less than it takes";
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return "`ckptree log` lists the steps, `ckptree ls REV` the keys";
    case absl::StatusCode::kUnavailable:
      return "another process has the store: wait for it, or use --wait "
             "SECONDS";
    case absl::StatusCode::kDataLoss:
      return "`ckptree verify` lists what is damaged; in a directory `ckptree "
             "repair` leaves that out and mends the rest in its place, "
             "`ckptree "
             "recover` saves the rest elsewhere";
    case absl::StatusCode::kResourceExhausted:
      return "free some space or memory and try again";
    case absl::StatusCode::kInvalidArgument:
      return "`ckptree help` shows the commands, `ckptree help COMMAND` one of "
             "them";
    case absl::StatusCode::kUnimplemented:
      return "a newer ckptree may know it; this one is shown by `ckptree "
             "version`";
    case absl::StatusCode::kInternal:
      return "this is a bug of ckptree: please report it with the command";
    case absl::StatusCode::kPermissionDenied:
      return "run this as the user who made the store; what is on a disk that "
             "is mounted read-only can only be read";
    case absl::StatusCode::kCancelled:
      return "";
    default:
      return "`ckptree doctor` looks at the store and at what is around it";
  }
}

absl::Status WithPlace(absl::Status status, std::string_view lines) {
  status.SetPayload(kPlaceUrl, absl::Cord(std::string(lines)));
  return status;
}

std::string PlaceOf(const absl::Status& status) {
  const auto place = status.GetPayload(kPlaceUrl);
  return place ? std::string(*place) : "";
}

std::string ErrorText(const absl::Status& status) {
  // A place is a text with a mark below: of neither can a part be left out.
  constexpr std::size_t kLongestPlace = 16000;
  // The absl::string_view of a message is not the standard one.
  const std::string message(status.message());
  // One line, whatever names stand in it.
  std::string text =
      absl::StrFormat("ckptree: %s\n", Shortened(Escape(message)));
  const std::string place = PlaceOf(status);
  if (!place.empty() && place.size() <= kLongestPlace) {
    absl::StrAppendFormat(&text, "%s\n", EscapeLines(place));
  }
  const std::string hint = HintOf(status);
  if (!hint.empty()) {
    absl::StrAppendFormat(&text, "  %s\n", Shortened(Escape(hint)));
  }
  return text;
}

absl::Status WithExitCode(absl::Status status, int code) {
  if (!status.ok()) {
    status.SetPayload(kExitCodeUrl, absl::Cord(absl::StrCat(code)));
  }
  return status;
}

absl::Status AtAddress(absl::Status status) {
  if (status.GetPayload(kExitCodeUrl) ||
      (!absl::IsDeadlineExceeded(status) && !absl::IsUnavailable(status))) {
    return status;
  }
  return WithExitCode(
      WithHint(std::move(status),
               "see whether the address, and the endpoint in the environment, "
               "are right and can be reached from this machine; then try "
               "again"),
      kExitFailure);
}

int ExitCodeOf(const absl::Status& status) {
  int code = kExitFailure;
  if (const auto said = status.GetPayload(kExitCodeUrl);
      said.has_value() && absl::SimpleAtoi(std::string(*said), &code)) {
    return code;
  }
  // No process has the store, and nothing is known to be damaged.
  if (internal::OutOfReach(status).has_value()) return kExitFailure;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitBusy;
    case absl::StatusCode::kDataLoss:
      return kExitDamaged;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

absl::Status NotEnoughMemory() {
  return WithHint(
      absl::ResourceExhaustedError("not enough memory for what was asked"),
      "-n N, where the command has it, or a narrower question takes less");
}

absl::Status NotClosed(const absl::Status& status, std::string_view done) {
  if (status.ok()) return status;
  absl::Status told(
      status.code(),
      absl::StrCat(std::string(done), done.empty() ? "" : "; ",
                   "closing the store failed: ", status.message()));
  status.ForEachPayload(
      [&told](absl::string_view url, const absl::Cord& payload) {
        told.SetPayload(url, payload);
      });
  return told;
}

absl::Status FileError(int error, std::string_view what) {
  const std::string text =
      absl::StrFormat("%s: %s", what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return WithHint(absl::ResourceExhaustedError(text),
                    error == EFBIG ? kHintOfFileSize
                                   : "free some space there and try again");
  }
  return WithHint(absl::UnknownError(text), "name a place you may write to");
}

}  // namespace ckptree::tools
