// Damage at rest: open, a read or Verify names it, or everything reads back
// equal. Never wrong bytes, never silently fewer steps.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "tests/fault_random.h"
#include "tests/model_state.h"
#include "tests/trial_directory.h"
#include "tests/trial_runner.h"
#include "tests/trial_scale.h"
#include "tests/trial_store.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

const std::uint64_t kSeed = TrialSeed();

struct Damage {
  std::string file;  // Relative to the store.
  std::string what;  // "flip", "missing", ...
  std::string other = {};  // "swapped": with this file.
  std::uint64_t at = 0;
  int bit = 0;

  std::string Text() const {
    return absl::StrFormat("%s of %s%s at %d bit %d", what, file,
                           other.empty() ? "" : " and " + other, at, bit);
  }
};

std::vector<std::string> FilesOf(const std::string& store) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(store)) {
    if (entry.is_regular_file()) {
      files.push_back(fs::relative(entry.path(), store).string());
    }
  }
  std::ranges::sort(files);
  return files;
}

// Every file as text, so that a damaged copy is made without reading again.
std::map<std::string, std::string> ReadAll(const std::string& store) {
  std::map<std::string, std::string> all;
  for (const std::string& file : FilesOf(store)) {
    const std::string path = store + "/" + file;
    std::string bytes(fs::file_size(path), '\0');
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (read(fd, bytes.data(), bytes.size()) !=
        static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
    close(fd);
    all[file] = std::move(bytes);
  }
  return all;
}

void WriteStore(const std::map<std::string, std::string>& files,
                const std::string& store, const Damage& damage) {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(store, ignored)) {
    fs::remove_all(entry.path());
  }
  fs::create_directories(store + "/staging");
  for (const auto& [name, whole] : files) {
    std::string bytes = whole;
    if (damage.what == "swapped") {
      if (name == damage.file) bytes = files.at(damage.other);
      if (name == damage.other) bytes = files.at(damage.file);
    } else if (name == damage.file) {
      if (damage.what == "missing") continue;
      if (damage.what == "flip") {
        bytes[damage.at] = static_cast<char>(bytes[damage.at] ^
                                             (1 << damage.bit));
      } else if (damage.what == "cut") {
        bytes.resize(damage.at);
      } else if (damage.what == "zeroed") {
        std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(damage.at),
                  bytes.end(), '\0');
      } else if (damage.what == "run of zeros") {
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(damage.at),
                    std::min<std::uint64_t>(512, bytes.size() - damage.at),
                    '\0');
      } else if (damage.what == "appended") {
        bytes += std::string(100, 'j');
      }
    }
    const std::string path = store + "/" + name;
    fs::create_directories(fs::path(path).parent_path());
    const int fd =
        open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (write(fd, bytes.data(), bytes.size()) !=
        static_cast<ssize_t>(bytes.size())) {
      std::abort();
    }
    close(fd);
  }
}

// True where a message says what is damaged: a file, step, leaf or commit.
bool NamesIt(std::string_view text, const Damage& damage) {
  const std::string base = fs::path(damage.file).filename().string();
  if (text.find(base) != std::string_view::npos) return true;
  for (const std::string_view word :
       {"step ", "leaf ", "commit", "HEAD", "MANIFEST", "segment", ".sst",
        "CURRENT", "version ", "record"}) {
    if (text.find(word) != std::string_view::npos) return true;
  }
  return false;
}

// "told open: ...", "told read: ...", "told verify: ...", "equal", or
// "SILENT ...".
std::string Inspect(const std::string& store_path, const ModelState& state,
                    const Damage& damage, bool read_only) {
  absl::StatusOr<Store> store =
      OpenStore(store_path, 1, nullptr, read_only);
  if (!store.ok()) {
    const std::string text(store.status().ToString());
    return (NamesIt(text, damage) ? "told open: " : "UNNAMED open: ") + text;
  }
  const auto difference = StateDifference(*store, state);
  const auto findings = DeepFindings(*store);
  const std::vector<std::string> warnings = store->Info().warnings;
  std::string said = findings.value_or("");
  for (const std::string& warning : warnings) {
    absl::StrAppend(&said, said.empty() ? "" : " | ", warning);
  }
  if (!difference) {
    if (findings) {
      return (NamesIt(said, damage) ? "told verify: " : "UNNAMED verify: ") +
             said;
    }
    return "equal";
  }
  if (absl::StrContains(*difference, "WRONG BYTES") ||
      absl::StrContains(*difference, "another value")) {
    return "SILENT wrong bytes: " + *difference;
  }
  // A read that failed tells; an absent step must be told by someone else.
  const bool failed = absl::StrContains(*difference, "DATA_LOSS") ||
                      absl::StrContains(*difference, "UNKNOWN");
  if (failed) {
    return (NamesIt(*difference, damage) ? "told read: " : "UNNAMED read: ") +
           *difference;
  }
  if (said.empty()) return "SILENT loss: " + *difference;
  return (NamesIt(said, damage) ? "told verify: " : "UNNAMED verify: ") + said +
         " (" + *difference + ")";
}

class TrialDamageTest : public ::testing::Test {
 protected:
  // Makes a store in a child; `closed`: or as a killed process leaves it;
  // `reopened`: after its second step, so that files hold what the log held.
  void Make(bool closed, bool large, int small, bool reopened = false) {
    FaultRandom random(kSeed);
    ModelStep step = TinyStep(random);
    const auto share = [](const ModelStep& model) {
      return std::make_shared<const ModelStep>(model);
    };
    state_ = {};
    for (int i = 1; i <= small; ++i) {
      state_.Save(i, share(step = Changed(step, random, false)));
    }
    if (large) {
      ModelStep arrays = ArrayStep(random, 2, 800000);
      arrays.leaves.merge(step.leaves);
      state_.Save(10, share(arrays));
      arrays.leaves.at("params/l0").bytes[9] ^= 1;
      state_.Save(11, share(arrays));
    }
    state_.tags["good"] = 1;
    state_.pins.insert(2);
    const TrialResult made = RunChild([&](const TrialPipe& pipe) {
      absl::StatusOr<Store> store = CreateStore(directory_.store(), 1);
      bool ok = store.ok();
      for (const auto& [number, content] : state_.steps) {
        ok = ok && SaveStep(*store, number, *content).ok();
        if (ok && reopened && number == 2) {
          ok = store->Close().ok();
          store = OpenStore(directory_.store(), 1);
          ok = ok && store.ok();
        }
      }
      ok = ok && store->Tag("good", 1).ok() && store->Pin(2).ok();
      if (!ok) pipe.Say("WRONG");
      if (!closed) _exit(0);
      if (ok && !store->Close().ok()) pipe.Say("WRONG close");
    });
    ASSERT_FALSE(made.broken()) << made.Text();
    ASSERT_TRUE(made.lines.empty()) << made.Text();
    files_ = ReadAll(directory_.store());
    files_.erase("LOCK");  // Empty or a pid: no data.
  }

  std::uint64_t Bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [name, content] : files_) bytes += content.size();
    return bytes;
  }

  // In children of many trials each: one that aborts or crashes is a failure
  // with a name. Prints the counts by file and verdict.
  void Try(const std::vector<Damage>& all, std::string_view what) {
    std::vector<Damage> damages;
    const auto stride = static_cast<std::size_t>(TrialStride());
    for (std::size_t i = kSeed % stride; i < all.size(); i += stride) {
      damages.push_back(all[i]);
    }
    std::map<std::string, std::map<std::string, int>> counts;
    std::map<std::string, std::string> samples;
    std::vector<std::string> bad;
    std::size_t next = 0;
    while (next < damages.size()) {
      const std::size_t end = std::min(damages.size(), next + 500);
      const TrialResult result = RunChild(
          [&](const TrialPipe& pipe) {
            const std::string copy = directory_.path() + "/copy";
            for (std::size_t i = next; i < end; ++i) {
              WriteStore(files_, copy, damages[i]);
              // Odd ones read-only: both ways meet every kind.
              pipe.Say(Inspect(copy, state_, damages[i], i % 2 == 1));
            }
          },
          /*seconds=*/300);
      for (const std::string& line : result.lines) {
        const Damage& damage = damages[next++];
        const std::string verdict = line.substr(0, line.find(':'));
        ++counts[Kind(damage.file)][verdict];
        samples.try_emplace(Kind(damage.file) + ", " + verdict,
                            damage.Text() + " -> " + line);
        if (line.starts_with("SILENT") || line.starts_with("UNNAMED")) {
          bad.push_back(damage.Text() + " -> " + line);
        }
      }
      if (result.broken() || result.killed) {
        const Damage& damage = damages[next++];
        bad.push_back(damage.Text() + " -> " + result.Text());
      }
      if (bad.size() > 20) break;
    }
    std::cout << "trial damage, " << what << ": " << next << " trials, " << next
              << " fired: " << bad.size() << " otherwise wrong\n"
              << "  of " << Bytes() << " bytes\n";
    for (const auto& [kind, verdicts] : counts) {
      std::cout << "  " << kind << ":";
      for (const auto& [verdict, n] : verdicts) {
        std::cout << "  " << n << " " << verdict;
      }
      std::cout << "\n";
    }
    if (std::getenv("CKPTREE_TEST_SAMPLES") != nullptr) {
      for (const auto& [kind, sample] : samples) {
        std::cout << "  e.g. " << kind << ": " << sample << "\n";
      }
    }
    std::cout << std::flush;
    EXPECT_TRUE(bad.empty()) << bad.size() << " bad, e.g.\n"
                             << bad[0] << "\n" << bad.back();
  }

  static std::string Kind(const std::string& file) {
    std::string base = fs::path(file).filename().string();
    if (base.ends_with(".sst")) return "sst";
    if (base.ends_with(".log")) return "wal";
    return base.substr(0, base.find('-'));
  }

  TrialDirectory directory_;
  ModelState state_;
  std::map<std::string, std::string> files_;
};

TEST_F(TrialDamageTest, TwoThousandRandomFlips) {
  for (const bool closed : {false, true}) {
    fs::remove_all(directory_.store());
    Make(closed, /*large=*/true, /*small=*/4);
    FaultRandom random(kSeed + (closed ? 1 : 0));
    std::vector<std::string> names;
    for (const auto& [name, content] : files_) {
      if (!content.empty()) names.push_back(name);
    }
    std::vector<Damage> damages;
    for (int i = 0; i < 1000; ++i) {
      Damage damage{.file = random.Pick(names), .what = "flip"};
      damage.at = random.Below(files_[damage.file].size());
      damage.bit = random.Int(8);
      damages.push_back(damage);
    }
    Try(damages, closed ? "closed store" : "killed store");
  }
}

TEST_F(TrialDamageTest, AFileIsMissingCutZeroedGrownOrSwapped) {
  int swapped = 0;
  for (const std::string way : {"killed", "closed", "reopened"}) {
    fs::remove_all(directory_.store());
    Make(way == "closed", /*large=*/true, /*small=*/4, way == "reopened");
    std::vector<Damage> damages;
    for (const auto& [name, content] : files_) {
      damages.push_back({.file = name, .what = "missing"});
      damages.push_back({.file = name, .what = "missing"});
      if (content.empty()) continue;
      const std::uint64_t size = content.size();
      for (const std::uint64_t at :
           {std::uint64_t{0}, std::uint64_t{0}, size / 4, size / 2,
            size - 1 - size / 10, size - 1}) {
        damages.push_back({.file = name, .what = "cut", .at = at});
        damages.push_back({.file = name, .what = "zeroed", .at = at});
        damages.push_back({.file = name, .what = "zeroed", .at = at});
      }
      damages.push_back({.file = name, .what = "appended"});
      for (std::uint64_t part = 0; part < 8; ++part) {
        damages.push_back(
            {.file = name, .what = "run of zeros", .at = part * size / 8});
      }
      for (const auto& [other, unused] : files_) {
        if (other <= name || Kind(other) != Kind(name)) continue;
        ++swapped;
        damages.push_back({.file = name, .what = "swapped", .other = other});
        damages.push_back({.file = name, .what = "swapped", .other = other});
      }
    }
    Try(damages, way + " store");
  }
  EXPECT_GE(swapped, 3);
}

// One bit of every byte of tables, log, MANIFEST, CURRENT and IDENTITY, and of
// what HEAD's slots say. Of the rest - the zeros behind those, RocksDB's option
// files, which nobody reads - every 32nd, or all with CKPTREE_TEST_EVERY_BYTE.
TEST_F(TrialDamageTest, EveryByteOfASmallStore) {
  Make(/*closed=*/false, /*large=*/false, /*small=*/3, /*reopened=*/true);
  const bool all = std::getenv("CKPTREE_TEST_EVERY_BYTE") != nullptr;
  FaultRandom random(kSeed);
  std::vector<Damage> damages;
  for (const auto& [name, content] : files_) {
    const std::string kind = Kind(name);
    for (std::uint64_t at = 0; at < content.size(); ++at) {
      const bool filling =
          kind == "OPTIONS" || (kind == "HEAD" && at % 4096 >= 160);
      const int bit = random.Int(8);
      if (filling && !all && at % 32 != 0) continue;
      damages.push_back({.file = name, .what = "flip", .at = at, .bit = bit});
      // What describes a table stands at its end, and RocksDB reads it with the
      // least care.
      if (kind != "sst" || at + 1500 < content.size()) continue;
      damages.push_back({.file = name, .what = "flip", .at = at, .bit = 7});
    }
  }
  Try(damages, "small store");
}

}  // namespace
}  // namespace ckptree::testing
