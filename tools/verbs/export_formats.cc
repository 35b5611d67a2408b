// SPDX-License-Identifier: Apache-2.0

#include "tools/verbs/export_formats.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tools/files/python_program.h"
#include "tools/files/zip_writer.h"
#include "tools/output/byte_sink.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/output/new_file.h"
#include "tools/output/npy.h"
#include "tools/output/safetensors.h"
#include "tools/output/slice.h"
#include "tools/output/table.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;
// In a new folder, before it has its name.
constexpr char kMade[] = "made";

using OnBytes = std::function<void(std::uint64_t)>;

// The elements of one array, piece by piece.
absl::Status ReadAll(
    const ExportArray& array,
    const std::function<absl::Status(std::span<const std::byte>)>& take) {
  return array.reader(array.leaf)
      .ReadPieces(SelectAll(array.leaf.shape),
                  [&take](std::span<const std::byte> piece) {
                    if (Interrupted()) return absl::CancelledError("");
                    return take(piece);
                  });
}

absl::Status WriteAll(const ExportArray& array, ByteSink* sink,
                      const OnBytes& on_bytes) {
  return ReadAll(array, [&](std::span<const std::byte> piece) {
    sink->Write(piece);
    on_bytes(piece.size());
    return sink->failed() ? sink->Flush() : absl::OkStatus();
  });
}

// `said`: what messages call it.
absl::Status WriteSafetensors(
    const std::string& path, const std::string& said,
    const std::vector<ExportArray>& arrays,
    const std::vector<std::pair<std::string, std::string>>& metadata,
    const OnBytes& on_bytes, Others others) {
  CKPTREE_ASSIGN_OR_RETURN(NewFile created, NewFile::Create(path));
  ByteSink sink(created.descriptor(), said);
  std::vector<SafetensorsEntry> entries;
  for (const ExportArray& array : arrays) {
    entries.push_back(
        {array.name, array.leaf.dtype, array.leaf.shape, array.bytes});
  }
  sink.Write(SafetensorsHeader(entries, metadata));
  for (const ExportArray& array : arrays) {
    CKPTREE_RETURN_IF_ERROR(WriteAll(array, &sink, on_bytes));
  }
  CKPTREE_RETURN_IF_ERROR(sink.Flush());
  return created.Commit(others);
}

absl::Status WriteNpzOf(const std::string& path,
                        const std::vector<ExportArray>& arrays,
                        const OnBytes& on_bytes, Others others) {
  const Interruptible interruptible;
  std::vector<NpzEntry> entries;
  for (const ExportArray& array : arrays) {
    const std::string header = NpyHeader(array.leaf.dtype, array.leaf.shape);
    NpzEntry entry;
    entry.name = array.name;
    entry.bytes = header.size() + array.bytes;
    entry.read = [&array, &on_bytes,
                  header]() -> absl::StatusOr<std::vector<std::byte>> {
      const auto head = std::as_bytes(std::span(header));
      std::vector<std::byte> bytes(head.begin(), head.end());
      bytes.reserve(header.size() + array.bytes);
      CKPTREE_RETURN_IF_ERROR(
          ReadAll(array, [&](std::span<const std::byte> piece) {
            bytes.insert(bytes.end(), piece.begin(), piece.end());
            on_bytes(piece.size());
            return absl::OkStatus();
          }));
      return bytes;
    };
    entries.push_back(std::move(entry));
  }
  // libzip goes back in what it writes.
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) &&
      !S_ISDIR(there.st_mode)) {
    return WithHint(
        absl::InvalidArgumentError(absl::StrFormat(
            "%s is a pipe or a device, into which no npz can be written",
            Escape(path))),
        "--format safetensors can; or name a file");
  }
  // It writes beside the name that it is given, under one of its own.
  CKPTREE_ASSIGN_OR_RETURN(NewFolder folder, NewFolder::Create(path));
  CKPTREE_RETURN_IF_ERROR(WriteNpz(folder / kMade, path, entries, Interrupted));
  return folder.Commit(kMade, others);
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  CKPTREE_ASSIGN_OR_RETURN(NewFile created, NewFile::Create(path));
  ByteSink sink(created.descriptor(), path);
  sink.Write(text);
  CKPTREE_RETURN_IF_ERROR(sink.Flush());
  return created.Commit();
}

absl::Status WriteFolder(
    ExportFormat format, const std::string& path,
    const std::vector<ExportArray>& arrays,
    const std::vector<std::pair<std::string, std::string>>& metadata,
    const OnBytes& on_bytes, Others others) {
  const Interruptible interruptible;
  CKPTREE_ASSIGN_OR_RETURN(NewFolder folder, NewFolder::Create(path));
  const bool npy = format == ExportFormat::kNpy;
  Json list = Json::array();
  for (const ExportArray& array : arrays) {
    const std::string file = array.name + (npy ? ".npy" : ".bin");
    CKPTREE_ASSIGN_OR_RETURN(NewFile created, NewFile::Create(folder / file));
    ByteSink sink(created.descriptor(), path + "/" + file);
    if (npy) sink.Write(NpyHeader(array.leaf.dtype, array.leaf.shape));
    CKPTREE_RETURN_IF_ERROR(WriteAll(array, &sink, on_bytes));
    CKPTREE_RETURN_IF_ERROR(sink.Flush());
    CKPTREE_RETURN_IF_ERROR(created.Commit());
    list.push_back({{"name", array.name},
                    {"file", file},
                    {"dtype", std::string(Name(array.leaf.dtype))},
                    {"shape", array.leaf.shape},
                    {"bytes", array.bytes}});
  }
  if (!npy) {
    Json::object_t said;  // Each name is there once.
    for (const auto& [name, value] : metadata) said.emplace_back(name, value);
    const Json index = {{"schema", "ckptree.raw/1"},
                        {"byte_order", "little"},
                        {"metadata", std::move(said)},
                        {"arrays", std::move(list)}};
    CKPTREE_RETURN_IF_ERROR(
        WriteText(folder / "index.json", JsonText(index, true) + "\n"));
  }
  return folder.Commit("", others);
}

absl::Status WriteByPython(ExportFormat format, const std::string& path,
                           const std::vector<ExportArray>& arrays,
                           const OnBytes& on_bytes, Others others) {
  const Interruptible interruptible;
  CKPTREE_ASSIGN_OR_RETURN(NewFolder folder, NewFolder::Create(path));
  const std::string given = folder / "arrays.safetensors";
  CKPTREE_RETURN_IF_ERROR(
      WriteSafetensors(given, path, arrays, {}, on_bytes, Others::kReplace));
  std::vector<std::string> words = {"write", fs::absolute(given).string(),
                                    fs::absolute(folder / kMade).string()};
  const bool orbax = format == ExportFormat::kOrbax;
  if (!orbax) {
    words.push_back(format == ExportFormat::kDcp ? "--format=dcp"
                                                 : "--format=torch");
  }
  CKPTREE_ASSIGN_OR_RETURN(
      const std::unique_ptr<PythonProgram> program,
      PythonProgram::Start(orbax ? "ckptree.orbax" : "ckptree.torch", path,
                           words));
  CKPTREE_RETURN_IF_ERROR(program->Finish().status());
  return folder.Commit(kMade, others);
}

}  // namespace

absl::StatusOr<ExportFormat> ExportFormatOf(const std::string& path,
                                            const std::string& name) {
  constexpr std::pair<std::string_view, ExportFormat> kNamed[] = {
      {"safetensors", ExportFormat::kSafetensors},
      {"npz", ExportFormat::kNpz},
      {"npy", ExportFormat::kNpy},
      {"raw", ExportFormat::kRaw},
      {"torch", ExportFormat::kTorch},
      {"dcp", ExportFormat::kDcp},
      {"orbax", ExportFormat::kOrbax}};
  for (const auto& [known, format] : kNamed) {
    if (name == known) return format;
  }
  if (path.ends_with(".safetensors")) return ExportFormat::kSafetensors;
  if (path.ends_with(".npz")) return ExportFormat::kNpz;
  for (const std::string_view end : {".pt", ".pth", ".bin", ".ckpt"}) {
    if (path.ends_with(end)) return ExportFormat::kTorch;
  }
  return WithHint(
      absl::InvalidArgumentError(absl::StrFormat(
          "`%s` ends with none of .safetensors, .npz and .pt", Escape(path))),
      "--format npy, raw, dcp or orbax makes a folder; for one array as .npy: "
      "`ckptree get REV:KEY -o npy --out FILE`");
}

namespace {

// An archive that is unpacked must write nothing beside its folder.
bool StaysInside(const std::string& name) {
  if (name.front() == '/' || name.front() == '\\') return false;
  const std::vector<std::string> parts =
      absl::StrSplit(name, absl::ByAnyChar("/\\"));
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

}  // namespace

bool MakesFolder(ExportFormat format) {
  return format == ExportFormat::kNpy || format == ExportFormat::kRaw ||
         format == ExportFormat::kDcp || format == ExportFormat::kOrbax;
}

bool HoldsMetadata(ExportFormat format) {
  return format == ExportFormat::kSafetensors || format == ExportFormat::kRaw;
}

bool IsAsSafetensors(ExportFormat format) {
  return format == ExportFormat::kSafetensors ||
         format == ExportFormat::kTorch || format == ExportFormat::kDcp ||
         format == ExportFormat::kOrbax;
}

bool CanBeNamed(ExportFormat format, const std::string& name) {
  if (name.empty()) return false;
  if (!IsAsSafetensors(format) &&
      std::any_of(name.begin(), name.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
      })) {
    return false;
  }
  switch (format) {
    case ExportFormat::kSafetensors:
    case ExportFormat::kTorch:
    case ExportFormat::kDcp:
      return name != "__metadata__";
    case ExportFormat::kOrbax:
      return name.size() <= 240 && name != "__metadata__" &&
             !name.starts_with('.') && !name.ends_with('.') &&
             name.find("..") == std::string::npos;
    case ExportFormat::kNpz:
      // An archive has 16 bits for it, with ".npy".
      return name.size() <= 0xffff - 4 && StaysInside(name);
    case ExportFormat::kNpy:
    case ExportFormat::kRaw:
      // Behind it stand the ending and, until it is whole, that of NewFile.
      return name.size() <= 220 && name.find('/') == std::string::npos &&
             name != "." && name != ".." && name != "index.json";
  }
  return false;
}

absl::Status WriteExport(
    ExportFormat format, const std::string& path,
    const std::vector<ExportArray>& arrays,
    const std::vector<std::pair<std::string, std::string>>& metadata,
    const OnBytes& on_bytes, Others others) {
  switch (format) {
    case ExportFormat::kSafetensors:
      return WriteSafetensors(path, path, arrays, metadata, on_bytes, others);
    case ExportFormat::kNpz:
      return WriteNpzOf(path, arrays, on_bytes, others);
    case ExportFormat::kNpy:
    case ExportFormat::kRaw:
      return WriteFolder(format, path, arrays, metadata, on_bytes, others);
    case ExportFormat::kTorch:
    case ExportFormat::kDcp:
    case ExportFormat::kOrbax:
      return WriteByPython(format, path, arrays, on_bytes, others);
  }
  return absl::InternalError("an unknown format");
}

}  // namespace ckptree::tools
