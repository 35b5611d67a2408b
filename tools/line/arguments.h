// SPDX-License-Identifier: Apache-2.0

// What stood on the command line.

#ifndef CKPTREE_TOOLS_LINE_ARGUMENTS_H_
#define CKPTREE_TOOLS_LINE_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ckptree::tools {

// One flag of a command; the table of them drives parsing, help and completion.
struct FlagSpec {
  std::string_view name;        // Without dashes.
  char letter = 0;              // Short form; 0: none.
  std::string_view value = {};  // What help calls its value; empty: a switch.
  std::string_view help = {};
  std::string_view choices = {};  // "a|b|c"; empty: any value.
  bool many = false;  // Each of several counts: All(). Else the last does.
};

// Words and flags of one command, checked against its flags. Value type.
class Arguments {
 public:
  // Parses with CLI11. kInvalidArgument: an unknown flag (with the nearest
  // one), a missing or wrong value. `words` after "--" are never flags.
  static absl::StatusOr<Arguments> Parse(std::span<const FlagSpec> flags,
                                         std::vector<std::string> words);

  // kInvalidArgument where a word is empty, as an unset variable of a script
  // is: it would be every step, or the latest.
  absl::Status CheckNoEmptyWord(std::string_view command) const;
  const std::vector<std::string>& words() const { return words_; }
  bool Has(std::string_view flag) const;
  std::optional<std::string> Find(std::string_view flag) const;
  // Every value of a flag that is `many`, in order.
  std::vector<std::string> All(std::string_view flag) const;
  std::string Get(std::string_view flag, std::string_view otherwise) const;
  // kInvalidArgument where the value is no number >= 0.
  absl::StatusOr<std::optional<std::int64_t>> Number(
      std::string_view flag) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::vector<std::string>, std::less<>> flags_;
};

// True of "-5..-1" and the like: a range of steps that is counted from the end,
// and no flag.
bool IsRangeFromEnd(std::string_view word);

// "-5" becomes "--limit=5", where there is a table, as in `git log -5`; not
// behind a flag that wants a value, nor behind "--".
void ExpandLimit(std::span<const FlagSpec> flags,
                 std::vector<std::string>* words);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_ARGUMENTS_H_
