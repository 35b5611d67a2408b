// SPDX-License-Identifier: Apache-2.0

#include "tools/files/python_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "tools/files/python_program.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

using Answer = nlohmann::json;

static_assert(std::endian::native == std::endian::little);

absl::Status Refused(const std::string& path, const Answer& said) {
  const auto error = said.is_object() ? said.find("error") : said.end();
  std::string text = "Python gives no answer";
  if (said.is_object() && error != said.end() && error->is_string()) {
    text = error->get<std::string>();
  }
  if (text.find(path) == text.npos) text = path + ": " + text;
  return WithHint(absl::FailedPreconditionError(Escape(text)),
                  "nothing of it was read");
}

class PythonFile final : public ArrayFile {
 public:
  PythonFile(const std::string& path, std::string_view format,
             std::unique_ptr<PythonProgram> program, FileHead head)
      : ArrayFile(path, format), program_(std::move(program)) {
    head_ = std::move(head);
    reads_bytes_ = false;
    has_paths_ = true;
  }

 protected:
  absl::Status ReadAt(const FileArray& array, std::uint64_t offset,
                      std::span<std::byte> destination) const override {
    if (!kept_ || *kept_ != array.part) {
      kept_.reset();
      CKPTREE_RETURN_IF_ERROR(Fetch(array));
      kept_ = array.part;
    }
    std::memcpy(destination.data(), bytes_.data() + offset, destination.size());
    return absl::OkStatus();
  }

 private:
  absl::Status Fetch(const FileArray& array) const {
    CKPTREE_RETURN_IF_ERROR(
        program_->Write(absl::StrFormat("%d\n", array.part)));
    std::int64_t size = 0;
    CKPTREE_RETURN_IF_ERROR(
        program_->Read(std::as_writable_bytes(std::span(&size, 1))));
    if (size < 0) {
      CKPTREE_ASSIGN_OR_RETURN(const std::string line, program_->ReadLine());
      return Refused(path(), Answer::parse(line, nullptr, false));
    }
    if (static_cast<std::uint64_t>(size) != array.bytes) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: %s has %d bytes, and %d were said", Escape(path()),
          Escape(array.name), size, array.bytes));
    }
    bytes_.resize(array.bytes);
    return program_->Read(bytes_);
  }

  const std::unique_ptr<PythonProgram> program_;
  // The array that was asked for last.
  mutable std::optional<std::size_t> kept_;
  mutable std::vector<std::byte> bytes_;
};

DType TypeNamed(const std::string& name) {
  for (const DType dtype : AllDTypes()) {
    if (Name(dtype) == name) return dtype;
  }
  return DType::kNone;
}

absl::StatusOr<FileHead> HeadOf(const std::string& path, const Answer& said) {
  const auto list = said.is_object() ? said.find("arrays") : said.end();
  if (!said.is_object() || list == said.end() || !list->is_array()) {
    return Refused(path, said);
  }
  FileHead head;
  for (const Answer& entry : *list) {
    FileArray array;
    array.name = entry.value("name", "");
    array.type = entry.value("dtype", "");
    array.part = head.arrays.size();
    const DType dtype = TypeNamed(array.type);
    const Shape shape = entry.value("shape", Shape());
    if (dtype == DType::kNone) {
      array.why_not = "there is no such type here: " + array.type;
    } else {
      array.bytes = static_cast<std::uint64_t>(
          ArrayBytes(dtype, false, shape).value_or(0));
    }
    if (absl::Status wrong = SetLeaf(&array, dtype, shape); !wrong.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %s", Escape(path), std::string(wrong.message())));
    }
    head.arrays.push_back(std::move(array));
  }
  const std::uint64_t others = said.value("others", std::uint64_t{0});
  if (others > 0) {
    head.metadata.emplace_back("entries that are no arrays",
                               absl::StrFormat("%d", others));
  }
  return head;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenPythonFile(
    const std::string& path, std::string_view module, std::string_view format) {
  CKPTREE_ASSIGN_OR_RETURN(
      std::unique_ptr<PythonProgram> program,
      PythonProgram::Start(module, path,
                           {"lend", std::filesystem::absolute(path).string()}));
  CKPTREE_ASSIGN_OR_RETURN(const std::string line, program->ReadLine());
  CKPTREE_ASSIGN_OR_RETURN(FileHead head,
                           HeadOf(path, Answer::parse(line, nullptr, false)));
  return std::make_unique<PythonFile>(path, format, std::move(program),
                                      std::move(head));
}

}  // namespace ckptree::tools
