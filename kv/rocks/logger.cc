// SPDX-License-Identifier: Apache-2.0

#include "kv/rocks/logger.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "kv/options.h"
#include "rocksdb/env.h"

namespace ckptree::kv {
namespace {

// That a directory is not there, of which RocksDB says what is in it: it makes
// it next.
bool IsOfCreation(std::string_view text) {
  return text.starts_with("Error when reading ") &&
         text.find(" dir NotFound") != text.npos;
}

class Forwarder : public rocksdb::Logger {
 public:
  explicit Forwarder(LogFn log)
      : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), log_(std::move(log)) {}

  using Logger::Logv;
  // Lines of the header, which have no level.
  void Logv(const char*, std::va_list) override {}

  void Logv(const rocksdb::InfoLogLevel level, const char* format,
            std::va_list arguments) override {
    if (!log_ || level < GetInfoLogLevel() ||
        level > rocksdb::InfoLogLevel::FATAL_LEVEL) {
      return;
    }
    std::array<char, 1024> text;
    std::vsnprintf(text.data(), text.size(), format, arguments);
    if (IsOfCreation(text.data())) return;
    // Errors that matter come as statuses; what else RocksDB says would
    // alarm people about things that are as they should be.
    log_(Severity::kInfo, text.data());
  }

 private:
  const LogFn log_;
};

}  // namespace

std::shared_ptr<rocksdb::Logger> MakeLogger(LogFn log) {
  return std::make_shared<Forwarder>(std::move(log));
}

}  // namespace ckptree::kv
