// SPDX-License-Identifier: Apache-2.0

#include "tools/line/table_flags.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tools/output/expression.h"
#include "tools/output/failure.h"

namespace ckptree::tools {
namespace {

constexpr FlagSpec kTableFlags[] = {
    {"output", 'o', "FORMAT", "table, json, ndjson, csv, tsv or md",
     "table|json|ndjson|csv|tsv|md"},
    {"json", 0, "", "the same as -o json"},
    {"columns", 0, "A,B,C", "only these columns, in this order"},
    {"sort", 0, "[-]COLUMN", "order by a column; -COLUMN: largest first"},
    {"where", 0, "EXPR",
     "only rows for which EXPR holds: 'loss<2 and "
     "nan>0'; of several all must hold",
     "", true},
    {"limit", 'n', "N", "at most N rows"},
    {"reverse", 0, "", "the other way round"},
    {"no-header", 0, "", "without the line of titles"},
    {"full", 0, "", "nothing shortened or left out to fit the terminal"},
    {"bytes", 0, "", "sizes as exact numbers of bytes"},
};

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    // As in CSV: between quotes a comma is of the name, and "" is a quote.
    std::string part;
    bool quoted = false;
    std::size_t at = 0;
    for (; at < text.size() && (quoted || text[at] != ','); ++at) {
      if (text[at] != '"' || (!quoted && !part.empty())) {
        part += text[at];
      } else if (quoted && text.substr(at + 1).starts_with('"')) {
        part += text[at++];
      } else {
        quoted = !quoted;
      }
    }
    if (!part.empty()) parts.push_back(std::move(part));
    if (at == text.size()) return parts;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

std::span<const FlagSpec> TableFlags() { return kTableFlags; }

absl::Status CheckNoTable(const Arguments& arguments, std::string_view words) {
  for (const FlagSpec& flag : kTableFlags) {
    if (!arguments.Has(flag.name)) continue;
    return WithHint(
        absl::InvalidArgumentError(
            absl::StrFormat("--%s is of the list, which is not made with %s",
                            flag.name, words)),
        flag.name == "limit"
            ? "a step before the latest is latest~1; -1 is --limit 1"
            : "leave it out");
  }
  return absl::OkStatus();
}

absl::StatusOr<TableOptions> ParseTableOptions(const Arguments& arguments) {
  TableOptions options;
  const std::string format =
      arguments.Has("json") ? "json" : arguments.Get("output", "table");
  constexpr std::array<std::pair<std::string_view, Format>, 6> kFormats = {
      {{"table", Format::kTable},
       {"json", Format::kJson},
       {"ndjson", Format::kNdjson},
       {"csv", Format::kCsv},
       {"tsv", Format::kTsv},
       {"md", Format::kMarkdown}}};
  for (const auto& [name, value] : kFormats) {
    if (format == name) options.format = value;
  }
  options.columns = SplitList(arguments.Get("columns", ""));
  if (arguments.Has("columns") && options.columns.empty()) {
    return WithHint(absl::InvalidArgumentError("--columns names no column"),
                    "as --columns step,loss; one whose name has a comma stands "
                    "in double quotes: --columns 'step,\"a,b\"'");
  }
  options.sort = arguments.Get("sort", "");
  if (arguments.Has("sort") &&
      options.sort.find_first_not_of('-') == std::string::npos) {
    return absl::InvalidArgumentError("--sort names no column");
  }
  if (options.sort.starts_with('-')) {
    options.descending = true;
    options.sort.erase(0, 1);
  }
  options.reverse = arguments.Has("reverse");
  for (const std::string& where : arguments.All("where")) {
    absl::StatusOr<Expression> condition = Expression::Parse(where);
    if (!condition.ok()) {
      return WithHint(condition.status(),
                      "`ckptree help where` shows what a condition is");
    }
    options.where = options.where ? Expression::And(*options.where, *condition)
                                  : *condition;
  }
  const auto limit = arguments.Number("limit");
  if (!limit.ok()) return limit.status();
  options.limit = *limit;
  options.header = !arguments.Has("no-header");
  options.full = arguments.Has("full");
  options.exact_bytes = arguments.Has("bytes");
  return options;
}

}  // namespace ckptree::tools
