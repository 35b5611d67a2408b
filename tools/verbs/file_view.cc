// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/file_view.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/array/leaf_statistics.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/array_text.h"
#include "tools/output/byte_sink.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/new_file.h"
#include "tools/output/npy.h"
#include "tools/output/quantity.h"

namespace ckptree::tools {
namespace {

constexpr std::size_t kMostShownBytes = 200;  // Of what a file says of itself.

bool Readable(const FileArray& array) {
  return array.leaf.dtype != DType::kNone;
}

// "float32", or what the file calls a type that is not read.
Cell DTypeCell(const FileArray& array) {
  if (Readable(array)) return TextCell(Name(array.leaf.dtype));
  return TextCell(array.type, Tone::kWarning);
}

std::vector<Cell> StatisticCells(const std::optional<Statistics>& statistics) {
  return StatisticsCells(statistics)
      .Take({"l2", "mean", "std", "min", "max", "nan", "inf", "zeros"});
}

constexpr const char* kStatisticColumns[][2] = {
    {"l2", "L2"},   {"mean", "MEAN"}, {"std", ""},    {"min", "MIN"},
    {"max", "MAX"}, {"nan", "NAN"},   {"inf", "INF"}, {"zeros", ""}};

// Writes one array as `get` does; says whether elements were left out.
absl::Status WriteArray(Session& session, const ArrayFile& file,
                        const FileArray& array, const FileTarget& target,
                        const GetOutput& output, ByteSink* out,
                        bool* abridged) {
  const std::string& format = output.format;
  CKPTREE_ASSIGN_OR_RETURN(const Selection selection,
                           Select(target.slice, array.leaf.shape));
  const Shape shape = ResultShape(selection);
  const DType dtype = array.leaf.dtype;
  const ArrayReader reader = ReaderOf(file, array);
  // An array that cannot be read says so before anything is written.
  if (!Readable(array)) return file.ReadBox(array, {}, {});
  if (format == "npy" || format == "raw") {
    if (format == "npy") out->Write(NpyHeader(dtype, shape));
    return reader.ReadPieces(
        selection, [out](std::span<const std::byte> piece) {
          out->Write(piece);
          return out->failed() ? absl::CancelledError() : absl::OkStatus();
        });
  }
  if (format == "text") {
    const int width =
        session.terminal().is_terminal ? session.terminal().width : 75;
    Shape kept = shape;
    const bool whole = output.full || SelectedCount(selection) <= kPrintWhole;
    *abridged = *abridged || !whole;
    CKPTREE_ASSIGN_OR_RETURN(
        const std::vector<std::byte> elements,
        whole ? reader.Read(selection)
              : reader.ReadEdges(selection, kEdgeElements, &kept));
    out->Write(ArrayText(dtype, shape, kept, elements, width) + "\n");
    return absl::OkStatus();
  }
  if (format != "json" && shape.size() > 2) {
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "-o %s shows at most two dimensions, not the %d of %s",
                        format, shape.size(), ShapeText(shape))),
                    "pick two with a slice, e.g. [0, :, :], or take -o json");
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::byte> elements,
                           reader.Read(selection));
  if (format != "json") {
    out->Write(ArrayRows(dtype, shape, elements, format == "csv" ? ',' : '\t'));
    return absl::OkStatus();
  }
  Json head = {
      {"key", array.name},
      {"dtype", std::string(Name(dtype))},
      {"shape", shape},
      {"slice", target.slice_text.empty() ? Json() : Json(target.slice_text)}};
  std::string text = JsonText(head, false);
  text.pop_back();
  out->Write(text + ",\"data\":" + ArrayJson(dtype, shape, elements) + "}");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GetOutput> OutputOfGet(const Session& session) {
  const Arguments& arguments = session.arguments();
  GetOutput output;
  output.file = arguments.Get("out", "");
  if (output.file == "-") output.file.clear();
  output.full = arguments.Has("full") || !output.file.empty();
  const std::string end = std::filesystem::path(output.file).extension();
  constexpr std::string_view kFormats[] = {"npy", "json", "csv", "tsv", "raw"};
  if (arguments.Has("json")) {
    output.format = "json";
  } else if (arguments.Has("output")) {
    output.format = arguments.Get("output", "text");
  } else if (end.empty() || end == ".txt") {
    output.format = "text";
  } else if (std::ranges::find(kFormats, end.substr(1)) != std::end(kFormats)) {
    output.format = end.substr(1);
  } else {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "`get` writes no file that ends in `%s`", Escape(end))),
        "-o text, json, csv, tsv, npy or raw says what is written there; "
        "`ckptree export REV:KEY FILE` writes .safetensors, .npz and others");
  }
  if ((output.format == "npy" || output.format == "raw") &&
      output.file.empty() && session.terminal().is_terminal) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "-o %s is binary and not for a terminal", output.format)),
        "add --out FILE, or send it through a pipe");
  }
  return output;
}

void NoteAbridged(Session& session) {
  if (session.terminal().is_terminal) return;
  session.Note("`...` stands for elements that are left out: --full has all");
}

absl::Status CheckFileFlags(const Session& session,
                            std::initializer_list<std::string_view> refused) {
  for (const std::string_view flag : refused) {
    if (!session.arguments().Has(flag)) continue;
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "--%s is of steps of a store, not of files", flag)),
                    "`ckptree import FILE` saves a file into a store");
  }
  return absl::OkStatus();
}

absl::StatusOr<Statistics> StatisticsOf(const ArrayFile& file,
                                        const FileArray& array) {
  Statistics all;
  CKPTREE_RETURN_IF_ERROR(
      ReaderOf(file, array)
          .ReadPieces(SelectAll(array.leaf.shape),
                      [&](std::span<const std::byte> piece) {
                        if (Interrupted()) {
                          return absl::CancelledError("");
                        }
                        all.Merge(
                            ComputeStatistics(array.leaf.dtype, false, piece));
                        return absl::OkStatus();
                      }));
  return all;
}

absl::StatusOr<int> LsFile(Session& session, const FileWord& word) {
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(session.arguments()));
  CKPTREE_RETURN_IF_ERROR(CheckFileFlags(session, {"depth", "all"}));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<FileArray> arrays,
                           FindWholeArrays(*word.file, word.key, "ls"));
  const bool stats = session.arguments().Has("stats");
  bool wanted = stats;
  Table table;
  table.schema = "ckptree.file-ls/1";
  table.rows_name = "leaves";
  table.extra = {{"file", word.file->path()}, {"format", word.file->format()}};
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "dtype", .title = "DTYPE"},
                   {.name = "shape", .title = "SHAPE", .elide = true},
                   {.name = "bytes", .title = "SIZE", .right = true}};
  for (const auto& [name, title] : kStatisticColumns) {
    wanted = wanted || options.Mentions(name);
    table.columns.push_back(
        {.name = name, .title = stats ? title : "", .right = true});
  }
  table.columns.push_back({.name = "type"});
  const Interruptible interruptible;
  for (const FileArray& array : arrays) {
    std::optional<Statistics> statistics;
    if (wanted && Readable(array)) {
      CKPTREE_ASSIGN_OR_RETURN(statistics, StatisticsOf(*word.file, array));
    }
    std::vector<Cell> row = {
        TextCell(array.name), DTypeCell(array),
        Cell{Json(array.leaf.shape), ShapeText(array.leaf.shape)},
        BytesCell(array.bytes, options.exact_bytes)};
    for (Cell& cell : StatisticCells(statistics))
      row.push_back(std::move(cell));
    row.push_back(TextCell(array.type));
    table.rows.push_back(std::move(row));
  }
  CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  return kExitOk;
}

absl::StatusOr<int> ShowFile(Session& session, const FileWord& word) {
  CKPTREE_RETURN_IF_ERROR(CheckFileFlags(session, {"parts"}));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<FileArray> arrays,
                           FindWholeArrays(*word.file, word.key, "show"));
  const bool exact = session.arguments().Has("bytes");
  std::uint64_t bytes = 0, elements = 0;
  std::map<std::string, std::uint64_t> types;
  for (const FileArray& array : arrays) {
    bytes += array.bytes;
    elements += NumberCount(array.leaf);
    ++types[DTypeCell(array).text];
  }
  Json document = {{"schema", "ckptree.file/1"},
                   {"file", word.file->path()},
                   {"format", word.file->format()}};
  std::vector<std::pair<std::string, std::string>> lines = {
      {"file", word.file->path()},
      {"format", std::string(word.file->format())}};
  if (!word.key.empty() && arrays.size() == 1) {
    const FileArray& array = arrays[0];
    const bool array_known = Readable(array);
    document["key"] = array.name;
    document["type"] = array.type;
    document["shape"] = array.leaf.shape;
    document["bytes"] = array.bytes;
    lines.emplace_back("key", array.name);
    lines.emplace_back("dtype", DTypeCell(array).text);
    lines.emplace_back("shape", ShapeText(array.leaf.shape));
    lines.emplace_back("size", SizeText(array.bytes, exact));
    if (!array_known) lines.emplace_back("not read", array.why_not);
    if (array_known) {
      const Interruptible interruptible;
      CKPTREE_ASSIGN_OR_RETURN(const Statistics statistics,
                               StatisticsOf(*word.file, array));
      const std::vector<Cell> cells = StatisticCells(statistics);
      for (std::size_t i = 0; i < cells.size(); ++i) {
        document["statistics"][kStatisticColumns[i][0]] = cells[i].value;
        lines.emplace_back(kStatisticColumns[i][0], cells[i].text);
      }
    }
  } else {
    document["arrays"] = arrays.size();
    document["elements"] = elements;
    document["bytes"] = bytes;
    document["dtypes"] = types;
    // Each name is there once, and finding one takes as long as there are.
    Json::object_t metadata;
    lines.emplace_back("arrays", absl::StrFormat("%d", arrays.size()));
    lines.emplace_back("elements", absl::StrFormat("%d", elements));
    lines.emplace_back("size", SizeText(bytes, exact));
    for (const auto& [type, count] : types) {
      lines.emplace_back("of type " + type, absl::StrFormat("%d", count));
    }
    for (const auto& [key, value] : word.file->metadata()) {
      metadata.emplace_back(key, value);
      // The list of tokens of a GGUF file has hundreds of thousands.
      lines.emplace_back(key, value.size() <= kMostShownBytes
                                  ? value
                                  : value.substr(0, kMostShownBytes) + "...");
    }
    document["metadata"] = std::move(metadata);
    for (const std::string& why : word.file->disputed()) {
      session.Note("left out of the metadata: " + why);
    }
  }
  if (session.arguments().Has("json") ||
      session.arguments().Get("output", "") == "json") {
    session.out().Write(JsonText(document, true) + "\n");
    return kExitOk;
  }
  std::size_t width = 0;
  for (const auto& [name, value] : lines) {
    width = std::max(width, Escape(name).size());
  }
  for (const auto& [name, value] : lines) {
    std::string label = Escape(name);
    label.resize(width + 2, ' ');
    session.out().Write(label + Escape(value) + "\n");
  }
  return kExitOk;
}

absl::StatusOr<int> GetFromFile(Session& session, const FileWord& word) {
  if (word.key.empty() && word.file->arrays().size() != 1) {
    return WithHint(absl::InvalidArgumentError("which array? Write FILE:KEY"),
                    absl::StrFormat("`ckptree ls %s` lists them",
                                    Escape(word.file->path())));
  }
  CKPTREE_ASSIGN_OR_RETURN(const FileTarget target,
                           FindArrays(*word.file, word.key));
  CKPTREE_ASSIGN_OR_RETURN(const GetOutput output, OutputOfGet(session));
  const std::string& format = output.format;
  const std::string& path = output.file;
  if (target.arrays.size() > 1 && format != "text" && format != "json") {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "%d arrays match: -o %s writes one", target.arrays.size(), format)),
        "name one of them, or take -o text or -o json");
  }
  bool abridged = false;
  const auto write = [&](ByteSink* out) {
    bool first = true;
    for (const FileArray& array : target.arrays) {
      if (target.arrays.size() > 1 && format == "text") {
        out->Write(absl::StrFormat("%s%s  %s%s\n", first ? "" : "\n",
                                   Escape(array.name), DTypeCell(array).text,
                                   ShapeText(array.leaf.shape)));
      }
      if (format == "json") {
        const Json head = {{"schema", "ckptree.file-get/1"},
                           {"file", word.file->path()}};
        std::string text = JsonText(head, false);
        text.pop_back();
        out->Write(first ? text + ",\"arrays\":[" : ",");
      }
      first = false;
      if (absl::Status status = WriteArray(session, *word.file, array, target,
                                           output, out, &abridged);
          !status.ok()) {
        return status;
      }
    }
    if (format == "json") out->Write("]}\n");
    return absl::OkStatus();
  };
  if (path.empty()) {
    const absl::Status status = write(&session.out());
    // What the output says is told where it is closed.
    if (!status.ok() && !session.out().failed()) return status;
    if (abridged) NoteAbridged(session);
    return kExitOk;
  }
  RemoveAbandonedBeside(path);
  CKPTREE_ASSIGN_OR_RETURN(NewFile created, NewFile::Create(path));
  ByteSink sink(created.descriptor(), path);
  absl::Status status = write(&sink);
  if (sink.failed() || status.ok()) status = sink.Flush();
  if (status.ok()) status = created.Commit();
  if (!status.ok()) return status;
  return kExitOk;
}

absl::StatusOr<int> StatFile(Session& session, const FileWord& word) {
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(session.arguments()));
  Table table;
  table.schema = "ckptree.file-stat/1";
  table.rows_name = "arrays";
  table.extra = {{"file", word.file->path()}};
  table.columns = {{.name = "key", .title = "KEY", .elide = true},
                   {.name = "type", .title = "TYPE", .json = false},
                   {.name = "count", .title = "ELEMENTS", .right = true}};
  for (const auto& [name, title] : kStatisticColumns) {
    const std::string_view shown = name == std::string_view("std")     ? "STD"
                                   : name == std::string_view("zeros") ? "ZEROS"
                                                                       : title;
    table.columns.push_back(
        {.name = name, .title = std::string(shown), .right = true});
  }
  table.columns.push_back({.name = "dtype"});
  table.columns.push_back({.name = "shape"});
  table.columns.push_back({.name = "bytes"});
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<FileArray> arrays,
                           FindWholeArrays(*word.file, word.key, "stat"));
  const Interruptible interruptible;
  for (const FileArray& array : arrays) {
    std::optional<Statistics> statistics;
    if (Readable(array)) {
      CKPTREE_ASSIGN_OR_RETURN(statistics, StatisticsOf(*word.file, array));
    }
    std::vector<Cell> row = {
        TextCell(array.name),
        TextCell(DTypeCell(array).text + ShapeText(array.leaf.shape)),
        CountCell(NumberCount(array.leaf))};
    for (Cell& cell : StatisticCells(statistics))
      row.push_back(std::move(cell));
    row.push_back(DTypeCell(array));
    row.push_back({Json(array.leaf.shape), ShapeText(array.leaf.shape)});
    row.push_back(BytesCell(array.bytes, options.exact_bytes));
    table.rows.push_back(std::move(row));
  }
  CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  return kExitOk;
}

}  // namespace ckptree::tools
