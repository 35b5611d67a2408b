// SPDX-License-Identifier: Apache-2.0

// Finds the module with the HTTP server.

#ifndef CKPTREE_TOOLS_REPORT_HTTP_LOADER_H_
#define CKPTREE_TOOLS_REPORT_HTTP_LOADER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/report/http_module.h"

namespace ckptree::tools {

// A server of `handler` at `host` and `port` (0: any that is free).
// kUnimplemented: the module is not there, and the hint says what to install;
// kUnavailable: nothing can listen there. The module is never unloaded.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttp(const std::string& host,
                                                      int port,
                                                      HttpHandler handler);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_HTTP_LOADER_H_
