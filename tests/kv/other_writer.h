// SPDX-License-Identifier: Apache-2.0

// A writer in another process: the program of the test, started again. Once in
// a program: including this has the program look whether it is the writer.

#ifndef CKPTREE_TESTS_KV_OTHER_WRITER_H_
#define CKPTREE_TESTS_KV_OTHER_WRITER_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kv/database.h"
#include "kv/segment_writer.h"
#include "schema/spaces.h"
#include "tests/kv/fixture.h"

namespace ckptree::kv {

inline constexpr const char* kWriterVariable = "CKPTREE_TEST_WRITER_STORE";
// The key of a block of arrays that the line "block N" commits.
inline std::string BlockKey(const std::string& line) {
  return VersionKey(1, std::string("\0\0\2\0\0\0", 6) + line.back());
}

// The other process: this program, started again. Commits each line it reads
// as the value of "line" and answers with the ordinal. "segment" adopts one,
// "drop" drops it, "flush" flushes, "small" writes to kSmall too, "fill ..."
// so much to a space that it alone is flushed at the next commit; "long ..."
// some that is less than a file of the journal. "again" closes the store, and
// opens it.
inline bool RunWriterIfAsked() {
  const char* const store = std::getenv(kWriterVariable);
  if (store == nullptr) return false;
  const auto open = [store] {
    return Database::Open(
        store, Options(), Mode::kReadWrite,
        [](const Database&, const OpenReport&) { return absl::OkStatus(); });
  };
  auto database = open();
  if (!database.ok()) {
    std::cout << database.status() << std::endl;
    _exit(1);
  }
  std::cout << "open" << std::endl;
  std::uint64_t version = (*database)->report().highest_version;
  const std::string large(9 << 20, 'f');
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "segment") {
      ++version;
      auto writer = SegmentWriter::Create(
          Options(), schema::Space::kChunks,
          (*database)->staging_directory() + "/s" + std::to_string(version), 0);
      if (!writer.ok() ||
          !(*writer)
               ->Add(VersionKey(version, "a"), std::string(9999, 'c'))
               .ok() ||
          !(*writer)->AddAligned(VersionKey(version, "b"), "last").ok()) {
        _exit(2);
      }
      const auto staged = (*writer)->Finish();
      if (!staged.ok() || !(*database)->Adopt({*staged}).ok()) _exit(3);
    } else if (line == "drop") {
      if (!(*database)
               ->Drop(schema::Space::kChunks,
                      {{VersionKey(version, ""), VersionKey(version + 1, "")}})
               .ok()) {
        _exit(4);
      }
    } else if (line == "flush") {
      if (!(*database)->Secure().ok()) _exit(5);
    } else if (line == "again") {
      if (!(*database)->Close().ok()) _exit(7);
      database = open();
      if (!database.ok()) _exit(8);
    } else if (line == "rows") {
      if (!(*database)->WriteRows().ok()) _exit(6);
    }
    CommitRequest request;
    request.version = version;
    if (line.starts_with("block")) {
      request.batch.PutBlock(BlockKey(line), std::string(2000, 'b'));
    } else if (line == "small") {
      request.batch.Put(schema::Space::kSmall, RecordKey("small"), "value");
    } else if (line.starts_with("long")) {
      request.batch.Put(schema::Space::kRecords, RecordKey("long"),
                        large.substr(0, 200'000) + line);
    } else if (line == "fill records") {
      request.batch.Put(schema::Space::kRecords, RecordKey("fill"), large);
    } else if (line == "fill small") {
      request.batch.Put(schema::Space::kSmall, RecordKey("fill"), large);
    }
    request.batch.Put(schema::Space::kRecords, RecordKey("line"), line);
    const CommitResult result = (*database)->Commit(std::move(request));
    std::cout << result.ordinal << std::endl;
  }
  _exit(0);
}

// Before main: the child never runs a test.
inline const bool is_writer = RunWriterIfAsked();

class OtherWriter {
 public:
  explicit OtherWriter(const std::string& store) {
    std::array<int, 2> to{};
    std::array<int, 2> from{};
    EXPECT_EQ(pipe(to.data()), 0);
    EXPECT_EQ(pipe(from.data()), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      for (const int end : {to[0], to[1], from[0], from[1]}) close(end);
      setenv(kWriterVariable, store.c_str(), 1);
      execl("/proc/self/exe", "writer", nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = fdopen(from[0], "r");
    EXPECT_EQ(Line(), "open");
  }
  ~OtherWriter() { Kill(); }

  std::string Do(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(write(to_, text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    return Line();
  }

  // As a crash: nothing is closed.
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    close(to_);
    fclose(from_);
  }

 private:
  std::string Line() {
    std::array<char, 1000> buffer{};
    if (fgets(buffer.data(), buffer.size(), from_) == nullptr) return "gone";
    std::string line = buffer.data();
    line.pop_back();
    return line;
  }

  pid_t pid_ = 0;
  int to_ = -1;
  FILE* from_ = nullptr;
};

}  // namespace ckptree::kv

#endif  // CKPTREE_TESTS_KV_OTHER_WRITER_H_
