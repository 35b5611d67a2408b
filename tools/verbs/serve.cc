// SPDX-License-Identifier: Apache-2.0

// `ckptree serve`: the report of a run, live.

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/line/command.h"
#include "tools/line/target.h"
#include "tools/output/failure.h"
#include "tools/output/interrupt.h"
#include "tools/report/http_loader.h"
#include "tools/report/live_run.h"
#include "tools/report/page.h"
#include "tools/report/web_answer.h"

namespace ckptree::tools {
namespace {

constexpr std::int64_t kDefaultPort = 8642;
constexpr std::size_t kShortestToken = 16;

// 128 bits that nobody can guess: of the kernel.
std::string NewToken() {
  std::random_device source;
  std::string token;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&token, "%08x", source());
  return token;
}

absl::StatusOr<std::string> TokenOf(const Arguments& arguments) {
  const std::string path = arguments.Get("token-file", "");
  if (!arguments.Has("token-file")) return NewToken();
  std::ifstream file(path);
  std::string token;
  if (!std::getline(file, token)) {
    return WithHint(absl::NotFoundError(absl::StrFormat(
                        "--token-file %s cannot be read", Escape(path))),
                    "its first line is the token");
  }
  token = std::string(absl::StripAsciiWhitespace(token));
  for (const char c : token) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
        c == '_') {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "the token in %s may have letters, digits, - and _", Escape(path)));
  }
  if (token.size() < kShortestToken) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the token in %s is shorter than %d characters",
                        Escape(path), kShortestToken));
  }
  return token;
}

std::vector<std::string> NamesOf(const std::string& host) {
  std::vector<std::string> names = {absl::AsciiStrToLower(host)};
  char machine[256] = {};
  if (gethostname(machine, sizeof machine - 1) == 0) {
    names.push_back(absl::AsciiStrToLower(machine));
  }
  return names;
}

}  // namespace

absl::StatusOr<int> RunServe(Session& session) {
  if (absl::Status status = CheckHasPage(); !status.ok()) return status;
  const auto port = session.arguments().Number("port");
  if (!port.ok()) return port.status();
  if (port->value_or(0) > 65535) {
    return absl::InvalidArgumentError(
        absl::StrFormat("`--port %d`: at most 65535", **port));
  }
  absl::StatusOr<std::string> token = TokenOf(session.arguments());
  if (!token.ok()) return token.status();
  ReportOptions options;
  options.keys = PlainKeys(session.arguments().All("keys"));
  options.histograms = session.arguments().All("hist");
  if (absl::Status status = CheckNames(options); !status.ok()) return status;
  options.cancelled = Interrupted;
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok()) return store.status();
  options.name = StoreName(session.directory());
  const std::string branch = session.arguments().Get("branch", "");
  if (const auto steps = (*store)->Steps(branch); !steps.ok()) {
    return WithHint(steps.status(), "`ckptree fork` lists the branches");
  }

  const std::string host = session.arguments().Get("host", "127.0.0.1");
  LiveRun run(*store, branch, std::move(options));
  WebAnswers answers(&run, *token, NamesOf(host));
  const Interruptible interruptible;
  const absl::StatusOr<std::unique_ptr<HttpServer>> server =
      StartHttp(host, static_cast<int>(port->value_or(kDefaultPort)),
                [&answers](const HttpRequest& request) {
                  return answers.Answer(request);
                });
  if (!server.ok()) return server.status();
  const bool six = host.find(':') != std::string::npos;
  session.out().Write(absl::StrFormat("http://%s%s%s:%d/?token=%s\n",
                                      six ? "[" : "", host, six ? "]" : "",
                                      (*server)->port(), *token));
  if (absl::Status status = session.out().Flush(); !status.ok()) return status;
  session.Note("Ctrl-C ends it; /metrics is for Prometheus");
  while (!Interrupted()) absl::SleepFor(absl::Milliseconds(100));
  return ExitCodeOfInterrupt();
}

}  // namespace ckptree::tools
