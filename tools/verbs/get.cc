// SPDX-License-Identifier: Apache-2.0

// `ckptree get`: values.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/line/command.h"
#include "tools/line/target.h"
#include "tools/output/array_reader.h"
#include "tools/output/array_text.h"
#include "tools/output/decimal.h"
#include "tools/output/element_text.h"
#include "tools/output/failure.h"
#include "tools/output/leaf_cells.h"
#include "tools/output/new_file.h"
#include "tools/output/npy.h"
#include "tools/output/printed_table.h"
#include "tools/output/quantity.h"
#include "tools/verbs/file_view.h"

namespace ckptree::tools {
namespace {

// The dtype under which a scalar leaf is written to an array file.
DType ScalarType(const LeafInfo& leaf) {
  if (leaf.kind == EntryKind::kBool) return DType::kBool;
  if (leaf.kind == EntryKind::kInt) return DType::kInt64;
  if (leaf.kind == EntryKind::kFloat) return DType::kFloat64;
  if (leaf.kind == EntryKind::kComplex) return DType::kComplex128;
  return DType::kNone;
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Writes one leaf after the other in one format.
class Getter {
 public:
  Getter(Session& session, const Step& step, const Target& target,
         const GetOutput& output, ByteSink* out)
      : session_(session),
        step_(step),
        target_(target),
        output_(output),
        out_(*out) {}

  absl::Status Run() {
    const bool many = target_.leaves.size() > 1;
    const bool single_only =
        output_.format != "text" && output_.format != "json";
    if (many && single_only) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "%d leaves match: -o %s writes one",
                          target_.leaves.size(), output_.format)),
                      "name one of them, or take -o text or -o json");
    }
    bool first = true;
    if (output_.format == "json") {
      const std::string text = JsonText({{"schema", "ckptree.get/2"},
                                         {"branch", step_.info().branch},
                                         {"step", step_.step()}},
                                        false);
      // One document, however many leaves: a program parses it as it is.
      out_.Write(text.substr(0, text.size() - 1) + ",\"leaves\":[");
    }
    for (const LeafInfo& named : target_.leaves) {
      const absl::StatusOr<LeafInfo> leaf = step_.Holder(named);
      if (!leaf.ok()) return leaf.status();
      if (many && output_.format == "text") {
        out_.Write(absl::StrFormat("%s%s  %s\n", first ? "" : "\n",
                                   Escape(named.name), TypeCell(*leaf).text));
      }
      if (!first && output_.format == "json") out_.Write(",");
      first = false;
      const absl::Status status = leaf->dtype == DType::kNone
                                      ? Value(named, *leaf)
                                      : Array(named, *leaf);
      if (!status.ok()) return status;
      if (out_.failed()) break;
    }
    if (output_.format == "json") out_.Write("]}\n");
    return absl::OkStatus();
  }

  // After Run(): elements were left out.
  bool abridged() const { return abridged_; }

 private:
  absl::Status Array(const LeafInfo& named, const LeafInfo& leaf) {
    const absl::StatusOr<Selection> selection =
        Select(target_.slice, leaf.shape);
    if (!selection.ok()) {
      return WithHint(selection.status(),
                      absl::StrFormat("`%s` is %s%s", Escape(named.name),
                                      Name(leaf.dtype), ShapeText(leaf.shape)));
    }
    const Shape shape = ResultShape(*selection);
    const ArrayReader reader(step_, leaf);
    if (IsLargeInt(leaf) && target_.slice.empty()) {
      return LargeInt(named, leaf, reader, *selection);
    }
    if (output_.format == "raw" || output_.format == "npy") {
      if (output_.format == "npy") out_.Write(NpyHeader(leaf.dtype, shape));
      return reader.ReadPieces(
          *selection, [this](std::span<const std::byte> piece) {
            out_.Write(piece);
            // A reader that left wants no more.
            return out_.failed() ? absl::CancelledError() : absl::OkStatus();
          });
    }
    if (output_.format == "csv" || output_.format == "tsv") {
      return Rows(reader, *selection, shape, leaf.dtype);
    }
    if (output_.format == "text") {
      return Text(reader, *selection, shape, leaf.dtype);
    }
    const absl::StatusOr<std::vector<std::byte>> elements =
        reader.Read(*selection);
    if (!elements.ok()) return elements.status();
    PutJson(named, leaf, shape, ArrayJson(leaf.dtype, shape, *elements));
    return absl::OkStatus();
  }

  absl::Status LargeInt(const LeafInfo& named, const LeafInfo& leaf,
                        const ArrayReader& reader, const Selection& all) {
    if (output_.format == "raw" || output_.format == "npy") {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "`%s` is an int of more than 64 bits: it has no "
                          "bytes of NumPy's",
                          Escape(named.name))),
                      "-o text and --json write its digits");
    }
    const absl::StatusOr<std::vector<std::byte>> bytes = reader.Read(all);
    if (!bytes.ok()) return bytes.status();
    if (output_.format != "json") {
      out_.Write(DecimalText(*bytes) + "\n");
      return absl::OkStatus();
    }
    LeafInfo number = leaf;
    number.kind = EntryKind::kInt;
    number.dtype = DType::kNone;
    PutJson(named, number, {}, DecimalText(*bytes));
    return absl::OkStatus();
  }

  absl::Status Text(const ArrayReader& reader, const Selection& selection,
                    const Shape& shape, DType dtype) {
    // Lines as long as the terminal, or NumPy's off it.
    const int width =
        session_.terminal().is_terminal ? session_.terminal().width : 75;
    Shape kept = shape;
    const bool whole = output_.full || SelectedCount(selection) <= kPrintWhole;
    abridged_ = abridged_ || !whole;
    absl::StatusOr<std::vector<std::byte>> elements =
        whole ? reader.Read(selection)
              : reader.ReadEdges(selection, kEdgeElements, &kept);
    if (!elements.ok()) return elements.status();
    out_.Write(ArrayText(dtype, shape, kept, *elements, width) + "\n");
    return absl::OkStatus();
  }

  absl::Status Rows(const ArrayReader& reader, const Selection& selection,
                    const Shape& shape, DType dtype) {
    if (shape.size() > 2) {
      return WithHint(
          absl::InvalidArgumentError(absl::StrFormat(
              "-o %s shows at most two dimensions, not the %d of %s",
              output_.format, shape.size(), ShapeText(shape))),
          "pick two with a slice, e.g. [0, :, :], or take -o json");
    }
    const absl::StatusOr<std::vector<std::byte>> elements =
        reader.Read(selection);
    if (!elements.ok()) return elements.status();
    out_.Write(ArrayRows(dtype, shape, *elements,
                         output_.format == "csv" ? ',' : '\t'));
    return absl::OkStatus();
  }

  // A leaf that is no array.
  absl::Status Value(const LeafInfo& named, const LeafInfo& leaf) {
    if (!target_.slice.empty()) {
      return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                          "`%s` is no array but of kind %s: it has no slices",
                          Escape(named.name), Name(leaf.kind))),
                      "leave the brackets out");
    }
    const absl::StatusOr<LeafValue> value = step_.Value(leaf.path);
    if (!value.ok()) return value.status();
    if (output_.format == "raw") {
      out_.Write(value->bytes);
      return absl::OkStatus();
    }
    const DType scalar = ScalarType(leaf);
    if (output_.format == "npy") {
      if (scalar == DType::kNone) {
        return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                            "`%s` is no number but of kind %s",
                            Escape(named.name), Name(leaf.kind))),
                        "take -o raw for its bytes");
      }
      out_.Write(NpyHeader(scalar, {}));
      out_.Write(value->bytes);
      return absl::OkStatus();
    }
    if (scalar != DType::kNone &&
        value->bytes.size() != static_cast<std::size_t>(ElementBytes(scalar))) {
      return absl::DataLossError(absl::StrFormat(
          "`%s` has %d bytes, too few or too many for kind %s",
          Escape(named.name), value->bytes.size(), Name(leaf.kind)));
    }
    if (output_.format == "json") {
      PutJson(named, leaf, {}, ValueJson(leaf, scalar, value->bytes));
      return absl::OkStatus();
    }
    if (scalar != DType::kNone) {
      out_.Write(ElementText(scalar, value->bytes.data()) + "\n");
      return absl::OkStatus();
    }
    PutText(leaf, value->bytes);
    return absl::OkStatus();
  }

  std::string ValueJson(const LeafInfo& leaf, DType scalar,
                        const std::vector<std::byte>& bytes) {
    const std::string text(AsText(bytes));
    if (scalar != DType::kNone) return ElementJson(scalar, bytes.data());
    if (leaf.kind == EntryKind::kStr) return JsonText(text, false);
    if (leaf.kind == EntryKind::kJson) {
      const Json parsed = Json::parse(text, nullptr, false);
      return JsonText(parsed.is_discarded() ? Json(text) : parsed, false);
    }
    return JsonText({{"base64", absl::Base64Escape(text)}}, false);
  }

  // Text as it is; to a terminal without what could steer it.
  void PutText(const LeafInfo& leaf, const std::vector<std::byte>& bytes) {
    const std::string_view text = AsText(bytes);
    const bool binary = leaf.kind != EntryKind::kStr &&
                        leaf.kind != EntryKind::kJson &&
                        text.find('\0') != std::string_view::npos;
    constexpr std::size_t kBinaryShown = 256;
    if (binary) {
      const bool cut = !output_.full && text.size() > kBinaryShown;
      out_.Write(Escape(cut ? text.substr(0, kBinaryShown) : text));
      if (cut) {
        out_.Write(absl::StrFormat("... (%s; -o raw writes it)",
                                   SizeText(text.size())));
      }
      out_.Write("\n");
      return;
    }
    if (output_.format == "csv" || output_.format == "tsv") {
      const bool terminal = session_.terminal().is_terminal;
      out_.Write(SeparatedText(text, output_.format == "csv",
                               terminal && output_.file.empty()) +
                 "\n");
      return;
    }
    out_.Write(session_.terminal().is_terminal && output_.file.empty()
                   ? EscapeLines(text)
                   : std::string(text));
    if (!text.ends_with('\n')) out_.Write("\n");
  }

  // `data` is JSON text.
  void PutJson(const LeafInfo& named, const LeafInfo& leaf, const Shape& shape,
               const std::string& data) {
    const bool array = leaf.dtype != DType::kNone;
    const Json head = {
        {"key", named.name},
        {"kind", std::string(Name(leaf.kind))},
        {"dtype", array ? Json(std::string(Name(leaf.dtype))) : Json()},
        {"shape", array ? Json(shape) : Json()},
        {"slice", target_.slice.empty() ? Json() : Json(target_.slice_text)}};
    std::string text = JsonText(head, false);
    text.pop_back();
    out_.Write(text);
    out_.Write(",\"data\":");
    out_.Write(data);
    out_.Write("}");
  }

  Session& session_;
  const Step& step_;
  const Target& target_;
  const GetOutput& output_;
  bool abridged_ = false;
  ByteSink& out_;
};

}  // namespace

absl::StatusOr<int> RunGet(Session& session) {
  const auto of_file = FindFile(session, session.words()[0]);
  if (!of_file.ok()) return of_file.status();
  if (*of_file) return GetFromFile(session, **of_file);
  const absl::StatusOr<Address> address = ParseAddress(session.words()[0]);
  if (!address.ok()) return address.status();
  if (address->key.empty()) {
    CKPTREE_RETURN_IF_ERROR(session.OpenStep(address->step).status());
    return WithHint(
        absl::InvalidArgumentError("which leaf? Write REV:KEY"),
        absl::StrFormat("`ckptree ls %s` lists the keys", Text(address->step)));
  }
  CKPTREE_ASSIGN_OR_RETURN(const GetOutput output, OutputOfGet(session));
  const absl::StatusOr<Step> step = session.OpenStep(address->step);
  if (!step.ok()) return step.status();
  const absl::StatusOr<Target> target = FindTarget(*step, address->key);
  if (!target.ok()) return target.status();

  if (output.file.empty()) {
    Getter getter(session, *step, *target, output, &session.out());
    const absl::Status status = getter.Run();
    // What the output says is told where it is closed.
    if (!status.ok() && !session.out().failed()) return status;
    if (getter.abridged()) NoteAbridged(session);
    return kExitOk;
  }
  RemoveAbandonedBeside(output.file);
  absl::StatusOr<NewFile> created = NewFile::Create(output.file);
  if (!created.ok()) return created.status();
  ByteSink sink(created->descriptor(), output.file);
  absl::Status status = Getter(session, *step, *target, output, &sink).Run();
  if (sink.failed() || status.ok()) status = sink.Flush();
  if (status.ok()) status = created->Commit();
  if (!status.ok()) return status;
  return kExitOk;
}

}  // namespace ckptree::tools
