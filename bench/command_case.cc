// SPDX-License-Identifier: Apache-2.0

// command: every verb of the command on a run of 10 000 steps of 400 leaves,
// and on a step of 100 000 leaves, as processes of their own.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "bench/cases.h"
#include "bench/command_alerts.h"
#include "bench/state.h"

namespace ckptree::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLeafBytes = 256;
// ms for verbs on a step of many leaves, of which the first byte is judged,
// too, where they print any.
constexpr double kWideFloor = 300;
// Told apart by this: what an older program made is made again.
constexpr const char* kMadeAs = "1";

// One command line; FILE words of it are made anew for each run.
struct Line {
  const char* verb;
  std::vector<std::string> words;
  double floor = 0;  // In ms; 0: shown, not judged.
  int code = 0;      // That it exits with; -1: whatever it finds.
  // It ends by a signal only: the time is that of its first byte.
  bool stays = false;
};

// The program of this build.
std::string Program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path found = self.parent_path().parent_path() / "tools/ckptree";
  if (!fs::exists(found)) {
    Fail("no " + found.string() + ": build the target ckptree_command");
  }
  return found.string();
}

struct Times {
  double first_byte = 0;  // 0: it prints nothing.
  double whole = 0;
};

Times RunLine(const std::string& program, const std::string& store,
              const Line& line) {
  std::vector<const char*> arguments = {program.c_str()};
  if (!store.empty()) {
    arguments.push_back("-C");
    arguments.push_back(store.c_str());
  }
  for (const std::string& word : line.words) arguments.push_back(word.c_str());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
                                   O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  const Stopwatch watch;
  pid_t pid = 0;
  const int started =
      posix_spawn(&pid, program.c_str(), &actions, nullptr,
                  const_cast<char* const*>(arguments.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (started != 0) Fail("the command cannot be started");
  Times times;
  std::vector<char> some(1 << 16);
  while (read(ends[0], some.data(), some.size()) > 0) {
    if (times.first_byte == 0) times.first_byte = watch.Seconds() * 1e3;
    if (line.stays) kill(pid, SIGTERM);
  }
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  times.whole = line.stays ? times.first_byte : watch.Seconds() * 1e3;
  if (!WIFEXITED(status) ||
      (line.code >= 0 && WEXITSTATUS(status) != line.code)) {
    std::string said = "ckptree";
    for (const std::string& word : line.words) said += " " + word;
    Fail(said + " did not exit with " + std::to_string(line.code));
  }
  return times;
}

// A store of `steps` saves of `leaves` leaves, of which each save changes
// `changed`; kept from run to run, for it takes a minute.
std::string MadeStore(const Settings& settings, const std::string& name,
                      int steps, std::size_t leaves, std::size_t changed) {
  const fs::path folder = settings.directory + ".stores";
  const fs::path path =
      folder /
      absl::StrFormat("%s-%s-%d-%d-%d", name, kMadeAs, steps, leaves, changed);
  if (fs::exists(path)) return path.string();
  fs::create_directories(folder);
  const std::string unfinished = path.string() + ".unfinished";
  {
    Store store = FreshStore(unfinished);
    State state(leaves * kLeafBytes);
    for (std::size_t at = 0; at < state.bytes().size(); at += sizeof(float)) {
      const float value = static_cast<float>(at % 9973) * 0.001f;
      std::memcpy(state.bytes().data() + at, &value, sizeof value);
    }
    std::size_t next = 0;
    for (int step = 0; step < steps; ++step) {
      StepBuilder builder = store.Begin(step);
      for (std::size_t i = 0; i < changed; ++i) {
        const float value = static_cast<float>(step);
        std::memcpy(state.bytes().data() + next * kLeafBytes, &value,
                    sizeof value);
        next = (next + 1) % leaves;
      }
      for (std::size_t i = 0; i < leaves; ++i) {
        builder.Put(LeafName(i),
                    Floats(state.bytes().subspan(i * kLeafBytes, kLeafBytes)));
      }
      builder.SetMetric("loss", 10.0 / (1.0 + step));
      Check(std::move(builder).Commit().WaitCommitted());
    }
    Check(store.Tag("half", steps / 2));
  }
  fs::rename(unfinished, path);
  return path.string();
}

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings), program_(Program()) {}

  // `turns` runs of one line, after one that fills the page cache; `prepare`
  // runs before each, and is not measured.
  void Measure(const std::string& of, const std::string& store,
               const Line& line, const std::function<void()>& prepare = {}) {
    std::vector<double> first, whole;
    const int turns = settings_.quick ? 3 : 7;
    for (int i = 0; i <= turns; ++i) {
      if (prepare) prepare();
      const Times times = RunLine(program_, store, line);
      // A line of seconds is no matter of the page cache.
      const bool slow = times.whole > 2000;
      if (i == 0 && !slow) continue;
      first.push_back(times.first_byte);
      whole.push_back(times.whole);
      if (slow) break;
    }
    const std::string what = std::string(line.verb) + of;
    if (line.floor == 0) {
      Print("command", what, whole, "ms");
      return;
    }
    good_ &= Report(settings_, {.name = "command",
                                .what = what,
                                .unit = "ms",
                                .values = whole,
                                .floor = line.floor,
                                .at_least = false});
    if (line.floor == kWideFloor && first.back() > 0) {
      good_ &= Report(settings_, {.name = "command",
                                  .what = what + ", its first byte",
                                  .unit = "ms",
                                  .values = first,
                                  .floor = 50,
                                  .at_least = false});
    }
  }

  // One that is not measured.
  void Run(const std::string& store, const std::vector<std::string>& words) {
    RunLine(program_, store, {words[0].c_str(), words});
  }

  const std::string& program() const { return program_; }
  bool good() const { return good_; }

 private:
  const Settings& settings_;
  const std::string program_;
  bool good_ = true;
};

std::string LeafOf(std::size_t leaves) { return LeafName(leaves / 2); }

// Verbs that look, where there are many steps; `floor` of those that look at
// one step or one leaf.
std::vector<Line> OfRun(int steps, std::size_t leaves) {
  const std::string leaf = LeafOf(leaves);
  const std::string middle = std::to_string(steps / 2);
  // Of the later half of the steps.
  const std::string half = absl::StrFormat("loss<%g", 20.0 / steps);
  const auto of = [](const std::string& rev, const std::string& key) {
    return rev + ":" + key;
  };
  return {
      {"log -n 10", {"log", "-n", "10"}, 50},
      {"log", {"log"}, 50},
      {"log --json", {"log", "--json"}},
      {"log --where", {"log", "--where", half}, 50},
      {"log --graph -n 10", {"log", "--graph", "-n", "10"}},
      // Nothing is alerted: see MeasureAlerts().
      {"log -f, until it has shown what is there",
       {"log", "-f", "--alert", "loss<0", "--stall", "10m", "--until",
        std::to_string(steps - 1)}},
      {"ls", {"ls"}, 50},
      {"ls --stats", {"ls", middle, "--stats"}, 50},
      {"show", {"show"}, 50},
      {"show of a leaf", {"show", of(middle, leaf)}, 50},
      {"get", {"get", of(middle, leaf)}, 50},
      {"history", {"history", leaf}, 50},
      {"history of 100 steps",
       {"history", leaf, middle + ".." + std::to_string(steps / 2 + 100)},
       50},
      {"blame", {"blame"}, 50},
      {"diff", {"diff", "latest"}, 50, 1},
      {"diff of the ends", {"diff", "0..latest"}, 50, 1},
      {"diff --values", {"diff", "latest", "--values"}, 0, 1},
      {"find nan", {"find", "nan>0"}, 50, 1},
      {"find of a metric", {"find", half}, 50},
      {"find of one leaf", {"find", "l2>1e9", "-k", leaf}, 0, 1},
      {"find of 100 steps",
       {"find", "l2>2*prev.l2",
        middle + ".." + std::to_string(steps / 2 + 100)},
       0,
       1},
      {"stat", {"stat"}, 50},
      {"hist of two steps", {"hist", leaf, middle, "latest"}, 50},
      {"sql of a leaf's l2",
       {"sql", "select step, l2 from stats where key='" + leaf + "'"},
       50},
      {"sql of steps", {"sql", "select count(*), max(step) from steps"}, 50},
      {"sql of one step",
       {"sql", "select key, l2 from stats where step=" + middle},
       50},
      {"tag", {"tag"}, 50},
      {"fork", {"fork"}, 50},
      {"du", {"du", "-n", "10"}},
      {"du of a step", {"du", "latest"}},
      {"gc --dry-run", {"gc", "--dry-run"}},
      {"rm --dry-run", {"rm", std::to_string(steps / 2 + 1), "--dry-run"}},
      {"policy", {"policy"}},
      {"policy --set --dry-run",
       {"policy", "--set", "latest(3) | every(1000)", "--dry-run"}},
      {"verify --quick of a step", {"verify", "latest", "--quick"}},
      {"doctor", {"doctor"}, 0, -1},
      {"completion of a step", {"__complete", "--", "show", "lat"}, 50},
      {"help", {"help"}, 50},
      {"version", {"version"}, 50},
  };
}

std::vector<Line> OfWideStep(std::size_t leaves) {
  const std::string leaf = LeafOf(leaves);
  return {
      {"log", {"log"}, 50},
      {"ls", {"ls"}, kWideFloor},
      {"ls -n 10", {"ls", "-n", "10"}, kWideFloor},
      {"ls --stats", {"ls", "--stats"}, kWideFloor},
      {"ls --json", {"ls", "--json"}},
      {"show of a leaf", {"show", "latest:" + leaf}, 50},
      {"get", {"get", "latest:" + leaf}, 50},
      {"history", {"history", leaf}, 50},
      {"blame", {"blame"}, kWideFloor},
      {"diff", {"diff", "latest"}, kWideFloor, 1},
      {"find nan", {"find", "nan>0"}, kWideFloor, 1},
      {"find l2", {"find", "l2>1e9", "latest"}, kWideFloor, 1},
      {"find of all leaves", {"find", "l2>0", "latest"}, kWideFloor},
      {"stat", {"stat"}, kWideFloor},
      {"hist", {"hist", leaf}, 50},
      {"du of a step", {"du", "latest"}},
      {"sql of one step",
       {"sql", "select count(*), sum(l2) from stats where step=1"}},
  };
}

// Verbs that write into a store: `run` has many steps, and is afterwards as it
// was; `few` has some, and copies of it are written to.
void MeasureWriting(const Settings& settings, const std::string& run,
                    const std::string& of_run, const std::string& few,
                    const std::string& of_few, Bench* bench) {
  const std::string folder = settings.directory + "/command";
  fs::create_directories(folder);
  const auto at = [&](const char* name) { return folder + "/" + name; };
  const auto without = [](std::string path) {
    return [path = std::move(path)] { fs::remove_all(path); };
  };
  const std::string of_one = ", a step of 400 leaves";
  bench->Measure(of_run, run, {"tag REV", {"tag", "--move", "here", "latest"}});
  bench->Measure(of_run, run, {"tag --delete", {"tag", "-d", "here"}}, [&] {
    bench->Run(run, {"tag", "--move", "here", "latest"});
  });
  bench->Measure(of_run, run, {"pin", {"pin", "latest"}});
  bench->Measure(of_run, run, {"pin --delete", {"pin", "-d", "latest"}}, [&] {
    bench->Run(run, {"pin", "latest"});
  });
  const std::string copy = at("few");
  const auto anew = [&] {
    fs::remove_all(copy);
    fs::copy(few, copy, fs::copy_options::recursive);
  };
  bench->Measure(of_few, copy, {"fork", {"fork", "latest", "-b", "trial"}},
                 anew);
  bench->Measure(of_few, copy, {"rm of a step", {"rm", "latest", "-y"}}, anew);
  bench->Measure(of_few, copy, {"rm of ten steps", {"rm", "10..19", "-y"}},
                 anew);
  bench->Measure(of_few, copy, {"gc --full", {"gc", "--full"}}, [&] {
    anew();
    bench->Run(copy, {"rm", "10..19", "-y"});
  });
  bench->Measure(of_few, copy,
                 {"policy --set", {"policy", "--set", "latest(3)", "-y"}},
                 anew);
  fs::remove_all(copy);
  bench->Measure(of_few, few, {"backup", {"backup", at("kept")}},
                 without(at("kept")));
  bench->Measure(of_few + ", nothing new", few,
                 {"backup", {"backup", at("kept")}});
  fs::remove_all(at("kept"));
  bench->Measure(of_few, "", {"recover", {"recover", few, at("recovered")}},
                 without(at("recovered")));
  fs::remove_all(at("recovered"));
  bench->Measure(of_few, "", {"repair, nothing wrong", {"repair", few}});
  bench->Measure(of_few, few, {"verify", {"verify"}});
  bench->Measure(of_one, "", {"copy", {"copy", run, at("copied"), "latest"}},
                 without(at("copied")));
  for (const auto& [verb, name, format] :
       {std::tuple("export of safetensors", "a.safetensors", "safetensors"),
        {"export of npz", "a.npz", "npz"},
        {"export of raw files", "a.raw", "raw"}}) {
    bench->Measure(of_one, run,
                   {verb, {"export", "latest", at(name), "--format", format}},
                   without(at(name)));
  }
  bench->Measure(of_one, at("imported"),
                 {"import", {"import", at("a.safetensors"), "--step", "1"}},
                 without(at("imported")));
  bench->Measure(", a file of 400 arrays", "",
                 {"ls", {"ls", at("a.safetensors")}});
  bench->Measure("", "", {"demo", {"demo", at("demo")}}, without(at("demo")));
  fs::remove_all(folder);
}

}  // namespace

bool Command(const Settings& settings) {
  const int steps = settings.quick ? 1000 : 10000;
  constexpr std::size_t kLeaves = 400;
  const std::size_t wide = settings.quick ? 10000 : 100000;
  Bench bench(settings);
  // Of a training every leaf changes, of a run with frozen layers few.
  const std::string run = MadeStore(settings, "run", steps, kLeaves, kLeaves);
  const std::string part = MadeStore(settings, "part", steps, kLeaves, 4);
  const std::string one = MadeStore(settings, "wide", 3, wide, wide);
  const std::string of_run =
      absl::StrFormat(", %d steps of %d leaves", steps, kLeaves);
  for (const Line& line : OfRun(steps, kLeaves)) {
    bench.Measure(of_run, run, line);
  }
  for (const Line& line : OfRun(steps, kLeaves)) {
    bench.Measure(of_run + ", 4 of them new in each", part, line);
  }
  for (const Line& line : OfWideStep(wide)) {
    bench.Measure(absl::StrFormat(", a step of %d leaves", wide), one, line);
  }
  const std::string few = MadeStore(settings, "few", 100, kLeaves, kLeaves);
  MeasureWriting(settings, run, of_run, few,
                 absl::StrFormat(", 100 steps of %d leaves", kLeaves), &bench);
  MeasureAlerts(settings, bench.program());
  const std::string page = settings.directory + "/report.html";
  bench.Measure(of_run, run, {"report", {"report", "-o", page}, 5000},
                [&] { fs::remove(page); });
  bench.Measure(of_run, run,
                {.verb = "serve, until it can be asked",
                 .words = {"serve", "--port", "0"},
                 .code = -1,
                 .stays = true});
  const double bytes = static_cast<double>(fs::file_size(page)) / 1e6;
  fs::remove(page);
  return Report(settings, {.name = "command",
                           .what = "size of the report" + of_run,
                           .unit = "MB",
                           .values = {bytes},
                           .floor = 5,
                           .at_least = false}) &&
         bench.good();
}

}  // namespace ckptree::bench
