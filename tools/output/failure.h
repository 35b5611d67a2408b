// SPDX-License-Identifier: Apache-2.0

// How a command ends: exit codes, and errors that say what to do.

#ifndef CKPTREE_TOOLS_OUTPUT_FAILURE_H_
#define CKPTREE_TOOLS_OUTPUT_FAILURE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace ckptree::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitNegative = 1;  // Damage found, things differ.
inline constexpr int kExitFailure = 2;   // Wrong usage, or it did not work.
inline constexpr int kExitNotFound = 3;  // Store, step or key.
inline constexpr int kExitBusy = 4;      // Another process writes.
inline constexpr int kExitDamaged = 5;   // Met by any command but verify.
inline constexpr int kExitUnknown = 6;   // Whether a trainer did it.
inline constexpr int kExitInterrupted = 130;

// `status` with a line that says what to do next; one that is there stays.
absl::Status WithHint(absl::Status status, std::string_view hint);

// The line of WithHint, or one that fits the code.
std::string HintOf(const absl::Status& status);

// `status` with lines that show the place that is meant, as a caret under a
// text. They are fit for a terminal.
absl::Status WithPlace(absl::Status status, std::string_view lines);
std::string PlaceOf(const absl::Status& status);

// What a person reads of `status`: its message, its place and its hint, each
// fit for a terminal. An argument of 100 kB that stands in it is cut in the
// middle.
std::string ErrorText(const absl::Status& status);

// A status with the exit code that it ends with, whatever its own code.
absl::Status WithExitCode(absl::Status status, int code);
int ExitCodeOf(const absl::Status& status);

// What a command says where memory is not to be had.
absl::Status NotEnoughMemory();

// Of a store that is read or written by its address: what does not answer there
// is no process that has it, nor a trainer that was asked. kExitFailure, and a
// hint; one that has an exit code keeps it.
absl::Status AtAddress(absl::Status status);

// Of a store that did not close. What was done before stays done: `done` says
// that as a sentence, "step 7 is saved"; empty: nothing was.
absl::Status NotClosed(const absl::Status& status, std::string_view done);

// What the errno `error` says of `what`, which is fit for a terminal; with a
// hint. kResourceExhausted: there is no space; else kUnknown.
absl::Status FileError(int error, std::string_view what);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_OUTPUT_FAILURE_H_
