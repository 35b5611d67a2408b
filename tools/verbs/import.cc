// SPDX-License-Identifier: Apache-2.0

// `ckptree import`: files of arrays, saved as steps of a store.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "schema/limits.h"
#include "tools/files/open_file.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/progress_line.h"
#include "tools/output/quantity.h"
#include "tools/verbs/import_metadata.h"
#include "tools/verbs/import_python.h"
#include "tools/verbs/import_steps.h"

namespace ckptree::tools {
namespace {

// One checkpoint to be saved.
struct Checkpoint {
  std::int64_t step = 0;
  std::string path;
};

// As "model-00001-of-00002.safetensors" is, beside its index.
bool IsOneOfSeveral(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  return name.ends_with(".safetensors") &&
         name.find("-of-") != std::string::npos;
}

absl::StatusOr<std::vector<Checkpoint>> FindCheckpoints(
    const std::vector<std::string>& words,
    const std::optional<std::int64_t>& step) {
  std::vector<Checkpoint> found;
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<ImportSource> sources,
                           ImportSources(words, Foreign::kNone, step));
  for (const ImportSource& source : sources) {
    const std::string& word = source.path;
    if (source.step) {
      found.push_back({*source.step, word});
      continue;
    }
    if (!IsArrayFile(word)) {
      // Says what is wrong with it.
      CKPTREE_RETURN_IF_ERROR(OpenArrayFile(word).status());
    }
    const std::optional<std::int64_t> number = step ? step : NumberOf(word);
    if (!number && IsOneOfSeveral(word)) {
      return WithHint(
          absl::InvalidArgumentError(absl::StrFormat(
              "%s is one file of several, by its name", Escape(word))),
          "name the index beside it, FILE.safetensors.index.json; --step N "
          "saves this one alone");
    }
    if (!number) {
      return WithHint(
          absl::InvalidArgumentError(absl::StrFormat(
              "which step is %s? Its name ends with no number", Escape(word))),
          "--step N says it");
    }
    found.push_back({*number, word});
  }
  std::sort(
      found.begin(), found.end(),
      [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (found[i].step != found[i - 1].step) continue;
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "%s and %s are both step %d", Escape(found[i - 1].path),
                        Escape(found[i].path), found[i].step)),
                    "import one of them, with --step N");
  }
  return found;
}

// Puts the arrays of one file, and keeps what they are read into.
class FilePutter {
 public:
  // REQUIRES: CheckArrays() was OK.
  FilePutter(const ArrayFile& file, const Path& under)
      : file_(file), under_(under) {}

  absl::Status Put(StepBuilder* builder,
                   const std::function<void(std::uint64_t)>& on_bytes) {
    for (const FileArray& array : file_.arrays()) {
      if (Interrupted()) return absl::CancelledError("interrupted");
      if (array.leaf.dtype == DType::kNone) {
        skipped_.push_back(array.name + ": " + array.why_not);
        continue;
      }
      std::vector<PathPart> parts = under_.parts();
      parts.insert(parts.end(), array.leaf.path.parts().begin(),
                   array.leaf.path.parts().end());
      Tensor tensor;
      tensor.dtype = array.leaf.dtype;
      tensor.shape = array.leaf.shape;
      if (file_.ReadsBytes(array)) {
        // Read while it is saved: a file may be larger than the memory.
        tensor.copy = [this, &array, on_bytes](std::uint64_t offset,
                                               std::span<std::byte> to) {
          on_bytes(to.size());
          return file_.ReadBytes(array, offset, to);
        };
      } else {
        kept_.emplace_back(array.bytes);
        std::vector<std::byte>& bytes = kept_.back();
        CKPTREE_RETURN_IF_ERROR(file_.ReadBox(
            array, {Shape(array.leaf.shape.size(), 0), array.leaf.shape},
            bytes));
        tensor.data = bytes.data();
        tensor.size_bytes = bytes.size();
        on_bytes(array.bytes);
      }
      builder->Put(Path(std::move(parts)), std::move(tensor),
                   Ownership::kBorrow);
      ++arrays_;
      bytes_ += array.bytes;
    }
    return absl::OkStatus();
  }

  const std::vector<std::string>& skipped() const { return skipped_; }
  std::uint64_t arrays() const { return arrays_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  const ArrayFile& file_;
  const Path& under_;
  std::deque<std::vector<std::byte>> kept_;
  std::vector<std::string> skipped_;
  std::uint64_t arrays_ = 0;
  std::uint64_t bytes_ = 0;
};

// What the first part of the path of a leaf has to be.
absl::Status CheckItem(const ArrayFile& file, const Path& path) {
  const PathPart& item = path.parts().front();
  const auto* name = std::get_if<std::string>(&item.key.value);
  const bool plain = item.kind == PartKind::kDictKey && name != nullptr;
  if (plain && name->size() <= std::size_t{schema::kMaxNameBytes}) {
    return absl::OkStatus();
  }
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat(
          "%s: `%s` can be no name of a leaf: %s", Escape(file.path()),
          path.Text(),
          plain ? absl::StrFormat("its first part has more than %d bytes",
                                  schema::kMaxNameBytes)
                : "its first part is no plain name")),
      "--under NAME saves what is in the file below that name");
}

// What a save would refuse of `file`, said before there is a store.
absl::Status CheckArrays(const ArrayFile& file, const Path& under, bool skip) {
  if (file.arrays().size() > std::size_t{schema::kMaxLeaves}) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "%s has %d arrays, and a step has at most %d", Escape(file.path()),
            file.arrays().size(), schema::kMaxLeaves)),
        "save them as several steps, from several files");
  }
  std::vector<Path> paths;
  for (const FileArray& array : file.arrays()) {
    if (array.leaf.dtype == DType::kNone) {
      if (skip) continue;
      // With the reason that a read gives.
      const absl::Status why = file.ReadBox(array, {}, {});
      return WithHint(absl::FailedPreconditionError(why.message()),
                      "--skip leaves such arrays out");
    }
    std::vector<PathPart> parts = under.parts();
    parts.insert(parts.end(), array.leaf.path.parts().begin(),
                 array.leaf.path.parts().end());
    paths.emplace_back(std::move(parts));
    if (const absl::Status valid = paths.back().Validate(); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %s", Escape(file.path()), std::string(valid.message())));
    }
    CKPTREE_RETURN_IF_ERROR(CheckItem(file, paths.back()));
  }
  if (paths.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has no array that can be saved", Escape(file.path())));
  }
  std::vector<std::string> codes;
  for (const Path& path : paths) codes.push_back(path.Encode());
  std::sort(codes.begin(), codes.end());
  for (std::size_t i = 1; i < codes.size(); ++i) {
    if (!codes[i].starts_with(codes[i - 1])) continue;
    CKPTREE_ASSIGN_OR_RETURN(const Path above, Path::Decode(codes[i - 1]));
    CKPTREE_ASSIGN_OR_RETURN(const Path below, Path::Decode(codes[i]));
    return WithHint(
        absl::InvalidArgumentError(
            absl::StrFormat("%s: `%s` is an array, and there is `%s` below it",
                            Escape(file.path()), above.Text(), below.Text())),
        "a leaf of a step has no other below it: rename one in the file");
  }
  return absl::OkStatus();
}

// Which of them are there, before any is saved: what is refused saves nothing.
absl::Status CheckNoneIsThere(const Store& store, const std::string& branch,
                              const std::vector<Checkpoint>& checkpoints) {
  std::vector<std::string> there;
  for (const Checkpoint& checkpoint : checkpoints) {
    if (store.Resolve(AtStep(checkpoint.step, branch)).ok()) {
      there.push_back(StepText(branch, checkpoint.step));
    }
  }
  if (there.empty()) return absl::OkStatus();
  return WithHint(
      absl::AlreadyExistsError(absl::StrFormat(
          "%s %s already",
          (there.size() == 1 ? "step " : "steps ") + absl::StrJoin(there, ", "),
          there.size() == 1 ? "is there" : "are there")),
      checkpoints.size() == 1
          ? "--new leaves out steps that are there, --step N gives another "
            "number"
          : "nothing was saved; --new leaves out steps that are there");
}

absl::StatusOr<int> Import(Session& session) {
  if (const Foreign kind = ForeignAmong(session); kind != Foreign::kNone) {
    return ImportByPython(session, kind);
  }
  const Arguments& arguments = session.arguments();
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(arguments));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::int64_t> step,
                           arguments.Number("step"));
  CKPTREE_ASSIGN_OR_RETURN(const Path under,
                           Path::Parse(arguments.Get("under", "")));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<Checkpoint> checkpoints,
                           FindCheckpoints(session.words(), step));
  // Every head is read, and what is wrong said, before a store is made.
  std::vector<std::unique_ptr<ArrayFile>> files;
  std::uint64_t total = 0;
  for (const Checkpoint& checkpoint : checkpoints) {
    CKPTREE_ASSIGN_OR_RETURN(std::unique_ptr<ArrayFile> file,
                             OpenArrayFile(checkpoint.path));
    if (file->arrays().empty()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s has no arrays", Escape(checkpoint.path)));
    }
    CKPTREE_RETURN_IF_ERROR(CheckArrays(*file, under, arguments.Has("skip")));
    CKPTREE_RETURN_IF_ERROR(MetadataOf(*file, arguments.Has("skip")).status());
    for (const FileArray& array : file->arrays()) {
      if (array.leaf.dtype != DType::kNone) total += array.bytes;
    }
    files.push_back(std::move(file));
  }
  if (files.empty()) {
    return absl::NotFoundError(absl::StrFormat(
        "the folder has no checkpoint of step %d", step.value_or(0)));
  }
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::int64_t> wait,
                           arguments.Number("wait"));
  // From here on: a store that is half made is removed.
  const Interruptible interruptible;
  CKPTREE_ASSIGN_OR_RETURN(
      Store* const store,
      session.OpenStoreForWriting(/*create=*/true,
                                  absl::Seconds(wait.value_or(0))));
  Table table;
  table.schema = "ckptree.import/1";
  table.rows_name = "steps";
  table.columns = {{.name = "step", .title = "STEP", .right = true},
                   {.name = "result", .title = "RESULT"},
                   {.name = "arrays", .title = "ARRAYS", .right = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "new_bytes", .title = "NEW", .right = true},
                   {.name = "file", .title = "FILE", .elide = true}};
  SaveOptions saving;
  saving.branch = arguments.Get("branch", "");
  if (!arguments.Has("new")) {
    CKPTREE_RETURN_IF_ERROR(
        CheckNoneIsThere(*store, saving.branch, checkpoints));
  }
  {
    ProgressLine progress("import", session.error_terminal().is_terminal &&
                                        !arguments.Has("quiet"));
    std::atomic<std::uint64_t> done = 0;  // By threads that save.
    for (std::size_t i = 0; i < files.size(); ++i) {
      const StepSelector selector = AtStep(checkpoints[i].step, saving.branch);
      std::vector<Cell> row = {StepCell(checkpoints[i].step)};
      if (arguments.Has("new") && store->Resolve(selector).ok()) {
        row.insert(row.end(), {TextCell("there"), NoCell(), NoCell(), NoCell(),
                               TextCell(checkpoints[i].path)});
        table.rows.push_back(std::move(row));
        continue;
      }
      const auto failed = [&](const absl::Status& why) {
        return ImportFailed(why, checkpoints[i].path,
                            SavedText(table, saving.branch));
      };
      StepBuilder builder = store->Begin(checkpoints[i].step, saving);
      if (!builder.status().ok()) return failed(builder.status());
      FilePutter putter(*files[i], under);
      const absl::Status put = putter.Put(&builder, [&](std::uint64_t bytes) {
        progress.Update(done += bytes, total);
      });
      if (!put.ok()) return failed(put);
      CKPTREE_ASSIGN_OR_RETURN(ImportedMetadata metadata,
                               MetadataOf(*files[i], arguments.Has("skip")));
      builder.SetCustomMetadata(std::move(metadata.json));
      SaveHandle save = std::move(builder).Commit();
      absl::Status status;
      do {
        status = save.WaitCommitted(absl::Milliseconds(100));
        if (Interrupted()) save.Cancel();
      } while (absl::IsDeadlineExceeded(status));
      if (!status.ok()) return failed(status);
      for (const std::string& skipped : putter.skipped()) {
        session.Note("left out: " + Escape(skipped));
      }
      for (const std::string& left_out : metadata.left_out) {
        session.Note("left out: metadata " + left_out);
      }
      CKPTREE_ASSIGN_OR_RETURN(const StepInfo info, store->Resolve(selector));
      row.insert(row.end(), {TextCell("saved"), CountCell(putter.arrays()),
                             BytesCell(putter.bytes(), options.exact_bytes),
                             BytesCell(info.new_bytes, options.exact_bytes),
                             TextCell(checkpoints[i].path)});
      table.rows.push_back(std::move(row));
    }
  }
  CKPTREE_RETURN_IF_ERROR(
      NotClosed(store->Close(), SavedText(table, saving.branch)));
  CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> RunImport(Session& session) {
  const NewStore store(session);
  absl::StatusOr<int> result = Import(session);
  if (!result.ok()) store.RemoveIfEmpty(session);
  return result;
}

}  // namespace ckptree::tools
