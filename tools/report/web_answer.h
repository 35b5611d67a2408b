// SPDX-License-Identifier: Apache-2.0

// What a store answers to requests of browsers and of Prometheus.

#ifndef CKPTREE_TOOLS_REPORT_WEB_ANSWER_H_
#define CKPTREE_TOOLS_REPORT_WEB_ANSWER_H_

#include <string>
#include <vector>

#include "tools/report/http_module.h"
#include "tools/report/live_run.h"

namespace ckptree::tools {

// Who may ask what. Thread-safe.
class WebAnswers {
 public:
  // `names` are those under which the server may be asked, beside localhost and
  // addresses in digits. `run` must outlive it.
  WebAnswers(LiveRun* run, std::string token, std::vector<std::string> names)
      : run_(*run), token_(std::move(token)), names_(std::move(names)) {}

  // The page at /, its data at /data, what it is of at /version, and /metrics;
  // nothing else, and nothing but GET and HEAD. The Host must be one of the
  // names, so that no page of another site reaches the server by a name of its
  // own; the token must be in the query or a header, "Bearer TOKEN".
  HttpAnswer Answer(const HttpRequest& request);

 private:
  bool IsOurs(const std::string& host) const;
  bool MayRead(const HttpRequest& request) const;
  HttpAnswer Read(const std::string& path);

  LiveRun& run_;
  const std::string token_;
  const std::vector<std::string> names_;
};

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_REPORT_WEB_ANSWER_H_
