// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/import_python.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/files/open_file.h"
#include "tools/files/python_program.h"
#include "tools/line/table_flags.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/quantity.h"
#include "tools/verbs/import_steps.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

// Of transformers' Trainer: code, which is not read. The rest of its folder is.
constexpr const char* kCodeFile = "training_args.bin";

absl::Status CheckFlags(const Session& session, Foreign kind) {
  std::vector<std::string> refused = {"branch", "wait"};
  if (kind == Foreign::kOrbax) refused.push_back("under");
  for (const std::string& flag : refused) {
    if (!session.arguments().Has(flag)) continue;
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "--%s is for files that are read without Python", flag)),
        "leave it out; `ckptree fork` and `ckptree copy` put "
        "steps elsewhere");
  }
  for (const std::string& word : session.words()) {
    if (ForeignKind(word) == kind) continue;
    return WithHint(absl::InvalidArgumentError(absl::StrFormat(
                        "%s is of another kind than the others", Escape(word))),
                    "import files and folders of one kind at a time");
  }
  return absl::OkStatus();
}

std::vector<std::string> WordsOf(const Session& session, Foreign kind,
                                 const ImportSource& source,
                                 const std::string& store) {
  std::vector<std::string> words = {
      "import", fs::absolute(source.path).string(), store, "--json"};
  const auto add = [&](const char* flag, const std::string& value) {
    words.push_back(flag);
    words.push_back(value);
  };
  const Arguments& arguments = session.arguments();
  if (source.step) {
    add("--step", absl::StrFormat("%d", *source.step));
  } else if (arguments.Has("step")) {
    add("--step", arguments.Get("step", ""));
  } else if (kind == Foreign::kOrbax && IsArrayFile(source.path)) {
    // Python saves one checkpoint as step 0, as a path of its own; here it is a
    // step, and called as its folder is.
    if (const auto step = NumberOf(source.path)) {
      add("--step", absl::StrFormat("%d", *step));
    }
  }
  // Whether a step is there is what the importer says, which knows its number.
  // Of several those that are there are left as they are.
  if (arguments.Has("new") || source.step) words.push_back("--new");
  if (arguments.Has("under")) add("--item", arguments.Get("under", ""));
  if (kind == Foreign::kTorch) add("--skip", kCodeFile);
  return words;
}

// The versions that a store has; none where there is no store yet.
absl::StatusOr<std::set<std::uint64_t>> VersionsIn(const std::string& store) {
  std::set<std::uint64_t> versions;
  if (!IsStore(store)) return versions;
  CKPTREE_ASSIGN_OR_RETURN(
      const Store opened,
      Store::Open(store, {.read_only = true, .collect = false}));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps, opened.Steps(""));
  for (const StepInfo& info : steps) versions.insert(info.version);
  return versions;
}

absl::StatusOr<std::vector<std::int64_t>> StepsSaid(const std::string& text) {
  const Json said = Json::parse(text, nullptr, false);
  std::vector<std::int64_t> steps;
  if (said.is_object() && said.contains("steps") && said["steps"].is_array()) {
    for (const Json& step : said["steps"]) {
      if (step.is_number_integer()) steps.push_back(step.get<std::int64_t>());
    }
    return steps;
  }
  return absl::InternalError("Python did not say which steps it saved");
}

}  // namespace

Foreign ForeignAmong(const Session& session) {
  for (const std::string& word : session.words()) {
    const Foreign kind = ForeignKind(word);
    if (kind != Foreign::kNone) return kind;
  }
  return Foreign::kNone;
}

absl::StatusOr<int> ImportByPython(Session& session, Foreign kind) {
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(session.arguments()));
  CKPTREE_ASSIGN_OR_RETURN(const std::optional<std::int64_t> only,
                           session.arguments().Number("step"));
  const std::vector<std::string>& words = session.words();
  CKPTREE_RETURN_IF_ERROR(CheckFlags(session, kind));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<ImportSource> sources,
                           ImportSources(words, kind, only));
  CKPTREE_ASSIGN_OR_RETURN(const std::string found, session.FindDirectory());
  const std::string store = fs::absolute(found).string();
  CKPTREE_ASSIGN_OR_RETURN(const std::set<std::uint64_t> before,
                           VersionsIn(store));
  Table table;
  table.schema = "ckptree.import/1";
  table.rows_name = "steps";
  table.columns = {{.name = "step", .title = "STEP", .right = true},
                   {.name = "result", .title = "RESULT"},
                   {.name = "arrays", .title = "LEAVES", .right = true},
                   {.name = "bytes", .title = "SIZE", .right = true},
                   {.name = "new_bytes", .title = "NEW", .right = true},
                   {.name = "file", .title = "FILE", .elide = true}};
  const Interruptible interruptible;
  for (const ImportSource& source : sources) {
    const std::string& word = source.path;
    CKPTREE_ASSIGN_OR_RETURN(
        const std::unique_ptr<PythonProgram> program,
        PythonProgram::Start(
            kind == Foreign::kTorch ? "ckptree.torch" : "ckptree.orbax", word,
            WordsOf(session, kind, source, store)));
    const absl::StatusOr<std::string> said = program->Finish();
    if (!said.ok()) {
      return ImportFailed(said.status(), word, SavedText(table, ""));
    }
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::int64_t> steps,
                             StepsSaid(*said));
    if (fs::exists(fs::path(word) / kCodeFile)) {
      session.Note(absl::StrFormat("left out: %s, which is code", kCodeFile));
    }
    session.CloseStore();
    CKPTREE_ASSIGN_OR_RETURN(Store* const opened, session.OpenStore());
    for (const std::int64_t step : steps) {
      CKPTREE_ASSIGN_OR_RETURN(const StepInfo info,
                               opened->Resolve(AtStep(step)));
      const bool there = before.contains(info.version);
      table.rows.push_back(
          {StepCell(step), TextCell(there ? "there" : "saved"),
           there ? NoCell() : CountCell(info.leaf_count),
           there ? NoCell()
                 : BytesCell(info.logical_bytes, options.exact_bytes),
           there ? NoCell() : BytesCell(info.new_bytes, options.exact_bytes),
           TextCell(word)});
    }
  }
  CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  return kExitOk;
}

}  // namespace ckptree::tools
