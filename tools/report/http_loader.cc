// SPDX-License-Identifier: Apache-2.0

#include "tools/report/http_loader.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

// Beside the program, as it is built, or where it is installed; nowhere else.
std::string FindHttpModule() {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "";
  const std::filesystem::path folder = program.parent_path();
  for (const std::filesystem::path& place :
       {folder / kHttpModuleFile, folder.parent_path() /
                                      CKPTREE_LIBRARY_FOLDER / "ckptree" /
                                      kHttpModuleFile}) {
    if (std::filesystem::exists(place, error)) return place.string();
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttp(const std::string& host,
                                                      int port,
                                                      HttpHandler handler) {
  const std::string module = FindHttpModule();
  if (module.empty()) {
    return WithHint(
        absl::UnimplementedError("this ckptree was built without a server: "
                                 "cpp-httplib was not found then"),
        "install the Debian package libcpp-httplib-dev and build it again; "
        "`ckptree report` needs no server");
  }
  void* library = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, kStartHttpName);
  if (found == nullptr) {
    return WithHint(absl::UnimplementedError(absl::StrFormat(
                        "the server cannot be loaded: %s", dlerror())),
                    "install the Debian package libcpp-httplib0.11");
  }
  auto* start = reinterpret_cast<StartHttpFunction*>(found);
  errno = 0;
  std::unique_ptr<HttpServer> server(start(host, port, std::move(handler)));
  if (server == nullptr) {
    const int error = errno;
    return WithHint(
        absl::Status(
            error == EADDRINUSE ? absl::StatusCode::kUnavailable
                                : absl::StatusCode::kInvalidArgument,
            absl::StrFormat("nothing can listen at %s, port %d: %s",
                            Escape(host), port,
                            error == 0 ? "not an address of this machine"
                                       : std::strerror(error))),
        "name another --port or --host; --port 0 is any that is free");
  }
  return server;
}

}  // namespace ckptree::tools
