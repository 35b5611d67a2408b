// SPDX-License-Identifier: Apache-2.0

// Python, for the formats that only its libraries read and write.

#ifndef CKPTREE_TOOLS_FILES_PYTHON_PROGRAM_H_
#define CKPTREE_TOOLS_FILES_PYTHON_PROGRAM_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptree::tools {

// `main()` of a module of our package, "ckptree.torch" or "ckptree.orbax", in a
// process of its own, by the interpreter that CKPTREE_PYTHON names, else by
// python3. Its folder is not looked into for modules. Confined to one thread.
class PythonProgram {
 public:
  // kFailedPrecondition: there is no such interpreter; says what to install.
  // Errors name `path`, which is what it reads or writes.
  static absl::StatusOr<std::unique_ptr<PythonProgram>> Start(
      std::string_view module, const std::string& path,
      const std::vector<std::string>& arguments);
  // Ends it, where it has not ended.
  ~PythonProgram();
  PythonProgram(const PythonProgram&) = delete;
  PythonProgram& operator=(const PythonProgram&) = delete;

  // Its standard input and output. What it cannot give is what Failure() says.
  absl::Status Write(std::string_view text);
  absl::StatusOr<std::string> ReadLine();
  absl::Status Read(std::span<std::byte> destination);

  // Waits for its end, reading the rest of what it prints; OK where it exits
  // with 0. kCancelled after Ctrl-C.
  absl::StatusOr<std::string> Finish();

 private:
  PythonProgram(std::string_view module, const std::string& path, pid_t pid,
                int socket, int errors)
      : module_(module),
        path_(path),
        pid_(pid),
        socket_(socket),
        errors_(errors) {}

  int Wait();
  // By its exit code and the last line that it printed to standard error.
  absl::Status Failure();

  const std::string module_;
  const std::string path_;
  pid_t pid_;
  const int socket_;
  const int errors_;  // A file without a name.
  int code_ = 0;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_FILES_PYTHON_PROGRAM_H_
