// SPDX-License-Identifier: Apache-2.0

// `ckptree doctor`: what is, or soon will be, wrong around a store.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ckptree/version.h"
#include "tools/line/command.h"
#include "tools/line/table_flags.h"
#include "tools/output/clock.h"
#include "tools/output/failure.h"
#include "tools/output/quantity.h"
#include "tools/verbs/diagnosis.h"
#include "tools/verbs/remote_health.h"
#include "tools/verbs/room_left.h"

namespace ckptree::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSmallestLimit = 1024;  // Of open files.

// Looks at one store. Confined to one thread.
class Doctor {
 public:
  Doctor(const Store& store, const std::string& directory)
      : store_(store), directory_(directory), now_(absl::Now()) {}

  absl::StatusOr<std::vector<Diagnosis>> Examine() {
    CKPTREE_ASSIGN_OR_RETURN(branches_, store_.Branches());
    for (const BranchInfo& branch : branches_) {
      CKPTREE_ASSIGN_OR_RETURN(const std::vector<StepInfo> steps,
                               store_.Steps(branch.name));
      steps_.insert(steps_.end(), steps.begin(), steps.end());
    }
    std::sort(steps_.begin(), steps_.end(),
              [](const StepInfo& a, const StepInfo& b) {
                return a.version < b.version;
              });
    LookAtStore();
    CKPTREE_ASSIGN_OR_RETURN(Diagnosis room,
                             RoomLeft(store_, directory_, steps_));
    found_.push_back(std::move(room));
    LookAtDisk();
    LookAtLimits();
    CKPTREE_RETURN_IF_ERROR(LookAtPolicies());
    if (std::optional<Diagnosis> remote = HealthOfRemote(store_)) {
      found_.push_back(*std::move(remote));
    }
    LookAtHealth();
    LookAtLeftovers();
    LookAtClock();
    LookAtVersions();
    return std::move(found_);
  }

 private:
  using Level = Diagnosis::Level;

  Diagnosis& Add(std::string check, Level level, std::string what,
                 std::string advice = "") {
    found_.push_back(
        {std::move(check), level, std::move(what), std::move(advice)});
    return found_.back();
  }

  void LookAtStore() {
    const std::vector<std::string> warnings = store_.Info().warnings;
    for (const std::string& warning : warnings) {
      Add("store", Level::kProblem, warning,
          absl::StrFormat("`ckptree repair %s` says what it costs",
                          Escape(directory_)));
    }
    if (warnings.empty()) {
      Add("store", Level::kGood,
          absl::StrFormat("opens; %s, %s",
                          CountText(steps_.size(), "step", "steps"),
                          CountText(branches_.size(), "branch", "branches")));
    }
  }

  void LookAtDisk() {
    struct statfs of {};
    if (::statfs(directory_.c_str(), &of) != 0) return;
    struct Kind {
      std::uint64_t magic;
      std::string_view name;
      std::string_view wrong;  // Empty: nothing.
      std::string_view advice;
    };
    constexpr Kind kinds[] = {
        {0xef53, "ext4", "", ""},
        {0x58465342, "xfs", "", ""},
        {0x9123683e, "btrfs", "", ""},
        {0x2fc12fc1, "zfs", "", ""},
        {0x01021994, "tmpfs", "is memory: it is empty after a reboot",
         "put the store on a disk"},
        {0x858458f6, "ramfs", "is memory: it is empty after a reboot",
         "put the store on a disk"},
        {0x794c7630, "overlayfs", "is of a container: it may go away with that",
         "mount a folder of the host"},
        {0x6969, "nfs", "may lose locks where it is mounted with nolock",
         "mount it with working locks; only one host writes"},
        {0x65735546, "fuse", "may not keep what it says that it has synced",
         "see whether its fsync is real"},
    };
    std::string name = absl::StrFormat("0x%x", of.f_type);
    std::string_view wrong, advice;
    for (const Kind& kind : kinds) {
      if (kind.magic != static_cast<std::uint64_t>(of.f_type)) continue;
      name = std::string(kind.name);
      wrong = kind.wrong;
      advice = kind.advice;
    }
    Add("file system", wrong.empty() ? Level::kGood : Level::kNote,
        wrong.empty() ? name : absl::StrFormat("%s %s", name, wrong),
        std::string(advice))
        .facts = {{"name", name}};
    LookAtSync();
  }

  // A file without a name: nothing of it is seen, nor left.
  void LookAtSync() {
    const int descriptor =
        ::open(directory_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (descriptor < 0) {
      const bool denied = errno == EACCES || errno == EPERM || errno == EROFS;
      Add("fsync", denied ? Level::kNote : Level::kGood,
          absl::StrFormat("not measured: %s", std::strerror(errno)),
          denied ? "whoever may write there can save; this user can only read"
                 : "");
      return;
    }
    std::array<char, 4096> block{};
    std::vector<absl::Duration> times;
    for (int i = 0; i < 5; ++i) {
      block.fill(static_cast<char>(i));
      const absl::Time begun = NowForWaits();
      if (::pwrite(descriptor, block.data(), block.size(), 0) !=
              static_cast<ssize_t>(block.size()) ||
          ::fsync(descriptor) != 0) {
        Add("fsync", Level::kProblem,
            absl::StrFormat("a block could not be written: %s",
                            std::strerror(errno)),
            "see whether the disk is full or failing");
        ::close(descriptor);
        return;
      }
      times.push_back(NowForWaits() - begun);
    }
    ::close(descriptor);
    std::sort(times.begin(), times.end());
    const absl::Duration median = times[times.size() / 2];
    const bool slow = median > absl::Milliseconds(100);
    Add("fsync", slow ? Level::kNote : Level::kGood,
        absl::StrFormat("%s for a block of 4 KiB", DurationText(median)),
        slow ? "each save waits for some of these: a disk that is not shared, "
               "or of flash, makes them short"
             : "")
        .facts = {{"seconds", absl::ToDoubleSeconds(median)}};
  }

  void LookAtLimits() {
    struct rlimit limit {};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    std::uint64_t files = 0;
    std::error_code error;
    for (fs::directory_iterator it(directory_ + "/db", error), end;
         !error && it != end; it.increment(error)) {
      ++files;
    }
    const std::uint64_t wanted =
        std::max<std::uint64_t>(kSmallestLimit, files + 256);
    const bool low = limit.rlim_cur < wanted;
    Add("open files", low ? Level::kProblem : Level::kGood,
        absl::StrFormat("at most %d, and the store has %d",
                        std::uint64_t{limit.rlim_cur}, files),
        low ? absl::StrFormat("`ulimit -n %d`, or LimitNOFILE= of the service",
                              std::max<std::uint64_t>(wanted, 4096))
            : "")
        .facts = {{"limit", std::uint64_t{limit.rlim_cur}}, {"files", files}};
  }

  absl::Status LookAtPolicies() {
    for (const BranchInfo& branch : branches_) {
      const std::string of =
          branch.name.empty() ? "" : " of branch " + branch.name;
      CKPTREE_ASSIGN_OR_RETURN(const PolicyInfo policy,
                               store_.Policy(branch.name));
      if (policy.text.empty()) {
        const bool many = branch.steps > 1000;
        Add("policy", many ? Level::kNote : Level::kGood,
            absl::StrFormat("none%s: all %s stay", of,
                            CountText(branch.steps, "step", "steps")),
            many ? "`ckptree policy --set 'latest(3) | every(1000)' --dry-run` "
                   "says what one would do"
                 : "");
        continue;
      }
      const absl::StatusOr<PolicyReport> report =
          store_.PreviewPolicy(branch.name);
      if (!report.ok()) {
        Add("policy", Level::kProblem,
            absl::StrFormat("`%s`%s cannot be applied: %s", policy.text, of,
                            std::string(report.status().message())),
            "`ckptree policy --set POLICY` gives it another");
        continue;
      }
      std::set<std::int64_t> kept;
      for (const PolicyVerdict& verdict : report->steps) {
        if (verdict.kept) kept.insert(verdict.step);
      }
      std::uint64_t healthy = 0, all_healthy = 0;
      for (const StepInfo& info : steps_) {
        if (info.branch != branch.name || info.nonfinite_leaves > 0 ||
            info.unknown_leaves > 0) {
          continue;
        }
        ++all_healthy;
        healthy += kept.contains(info.step) ? 1 : 0;
      }
      if (all_healthy > 0 && healthy == 0) {
        Add("policy", Level::kProblem,
            absl::StrFormat("`%s`%s would keep no step without NaN and Inf",
                            policy.text, of),
            "add `| healthy(1)`, or tag a good step");
      } else if (kept.size() < 2 && branch.steps > 1) {
        Add("policy", Level::kNote,
            absl::StrFormat("`%s`%s keeps one step: damage of it, or a NaN, "
                            "leaves nothing to go back to",
                            policy.text, of),
            "keep two or more: latest(2)");
      } else {
        Add("policy", Level::kGood,
            absl::StrFormat("`%s`%s keeps %d of %s", policy.text, of,
                            kept.size(),
                            CountText(branch.steps, "step", "steps")));
      }
    }
    return absl::OkStatus();
  }

  void LookAtHealth() {
    if (steps_.empty()) return;
    const absl::StatusOr<StepInfo> latest = store_.Resolve(Latest());
    if (!latest.ok() || latest->nonfinite_leaves == 0) return;
    const absl::StatusOr<StepInfo> healthy = store_.Resolve(LatestHealthy());
    Add("values", Level::kProblem,
        absl::StrFormat("the latest step, %d, has NaN or Inf in %s",
                        latest->step,
                        CountText(latest->nonfinite_leaves, "leaf", "leaves")),
        healthy.ok()
            ? absl::StrFormat("go on from step %d (`healthy`); `ckptree find "
                              "'nan>0 or inf>0'` says since when",
                              healthy->step)
            : "no step is known to be without; `ckptree find 'nan>0'` says "
              "since when");
  }

  // What killed programs and repairs left.
  void LookAtLeftovers() {
    const std::size_t before = found_.size();
    std::error_code error;
    std::uint64_t stale = 0;
    for (fs::directory_iterator it(directory_ + "/staging", error), end;
         !error && it != end; it.increment(error)) {
      std::error_code unknown;
      const auto written = fs::last_write_time(it->path(), unknown);
      const auto age = fs::file_time_type::clock::now() - written;
      stale += !unknown && age > std::chrono::hours(1) ? 1 : 0;
    }
    if (stale > 0) {
      Add("leftovers", Level::kNote,
          absl::StrFormat("%s of killed saves in staging/",
                          CountText(stale, "file", "files")),
          "the next program that writes to the store removes them");
    }
    for (const std::string& name : NamesIn(directory_, "db.damaged-")) {
      Add("leftovers", Level::kNote,
          absl::StrFormat("%s is an index that was replaced", Escape(name)),
          "remove it when nobody wants to look at it");
    }
    for (const std::string& name : NamesIn(directory_ + "/db", "unreadable-")) {
      Add("leftovers", Level::kProblem,
          absl::StrFormat("db/%s is a table that the disk could not give",
                          Escape(name)),
          "mend the disk: the next open for writing tries it again");
    }
    std::string path = directory_;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    for (const char* end : {".damaged", ".repairing", ".recovering"}) {
      const std::vector<std::string> there = Beside(path + end);
      if (there.empty()) continue;
      std::string what = Escape(there.front());
      if (there.size() > 1) {
        absl::StrAppendFormat(&what, " and %d more to %s", there.size() - 1,
                              Escape(there.back()));
      }
      Add("leftovers", Level::kNote,
          absl::StrFormat("%s %s there", what, there.size() > 1 ? "are" : "is"),
          AdviceOnLeftover(end));
    }
    if (found_.size() == before) Add("leftovers", Level::kGood, "none");
  }

  // Those in `folder` that begin so.
  static std::vector<std::string> NamesIn(const std::string& folder,
                                          std::string_view begin) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      std::string name = it->path().filename().string();
      if (name.starts_with(begin)) names.push_back(std::move(name));
    }
    return names;
  }

  // `path`, and those with a number behind it, in the order of these.
  static std::vector<std::string> Beside(const std::string& path) {
    std::map<std::uint64_t, std::string> there;
    std::error_code error;
    if (fs::exists(path, error)) there[1] = path;
    const fs::path folder = fs::path(path).parent_path();
    const std::string begin = fs::path(path).filename().string() + ".";
    for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end;
         !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      std::uint64_t number = 0;
      if (name.starts_with(begin) &&
          absl::SimpleAtoi(name.substr(begin.size()), &number)) {
        there[number] = absl::StrFormat("%s.%d", path, number);
      }
    }
    std::vector<std::string> paths;
    for (const auto& [number, one] : there) paths.push_back(one);
    return paths;
  }

  static std::string AdviceOnLeftover(std::string_view end) {
    if (end == ".damaged") return "remove it when nothing of it is missed";
    // The store got its name when all was saved.
    if (end == ".recovering") {
      return "a recovery was killed when it had made this store: remove that "
             "folder";
    }
    return "a repair was killed: run it again";
  }

  void LookAtClock() {
    std::uint64_t back = 0;
    for (std::size_t i = 1; i < steps_.size(); ++i) {
      back += steps_[i].committed < steps_[i - 1].committed ? 1 : 0;
    }
    if (!steps_.empty() && steps_.back().committed > now_ + absl::Minutes(1)) {
      Add("clock", Level::kProblem,
          absl::StrFormat("the newest save is from %s, in the future",
                          TimeText(steps_.back().committed)),
          "set the clock of this machine, or of the one that saved");
    } else if (back > 0) {
      Add("clock", Level::kNote,
          absl::StrFormat("went back between saves %s",
                          CountText(back, "time", "times")),
          "policies by time go by it: keep the clock synchronised");
    } else {
      Add("clock", Level::kGood, "saves are in order of their times");
    }
  }

  void LookAtVersions() {
    std::set<std::string> engines;
    for (const StepInfo& info : steps_) engines.insert(info.saved_by);
    Add("versions", Level::kGood,
        absl::StrFormat(
            "format %d; this is %s%s", store_.Info().format, Version(),
            engines.empty() ? ""
                            : ", saved by " + absl::StrJoin(engines, ", ")))
        .facts = {{"format", store_.Info().format},
                  {"version", std::string(Version())},
                  {"saved_by", engines}};
  }

  const Store& store_;
  const std::string directory_;
  const absl::Time now_;
  std::vector<BranchInfo> branches_;
  std::vector<StepInfo> steps_;  // By version.
  std::vector<Diagnosis> found_;
};

constexpr const char* kLevelNames[] = {"good", "note", "PROBLEM"};

absl::StatusOr<std::vector<Diagnosis>> Examined(Session& session) {
  const absl::StatusOr<Store*> store = session.OpenStore();
  if (!store.ok() && session.ByAddress() && IsOutOfReach(store.status())) {
    return std::vector{OutOfReachAt(session.directory(), store.status())};
  }
  if (absl::IsDataLoss(store.status())) {
    return std::vector{Diagnosis{
        "store", Diagnosis::Level::kProblem,
        std::string(store.status().message()),
        session.ByAddress() ? "" : "`ckptree repair` says what can be mended"}};
  }
  if (!store.ok()) return store.status();
  // Of a store that is read by its address: where it was fetched to.
  const StoreInfo info = (*store)->Info();
  return Doctor(**store,
                info.remote.empty() ? session.directory() : info.directory)
      .Examine();
}

}  // namespace

absl::StatusOr<int> RunDoctor(Session& session) {
  CKPTREE_ASSIGN_OR_RETURN(const TableOptions options,
                           ParseTableOptions(session.arguments()));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<Diagnosis> found,
                           Examined(session));
  Table table;
  table.schema = "ckptree.doctor/1";
  table.rows_name = "checks";
  table.columns = {{.name = "check", .title = "CHECK"},
                   {.name = "level", .title = "LEVEL"},
                   {.name = "what", .title = "WHAT"},
                   {.name = "advice", .title = "WHAT TO DO"},
                   {.name = "facts", .flat = false}};
  std::size_t problems = 0;
  for (const Diagnosis& diagnosis : found) {
    const bool problem = diagnosis.level == Diagnosis::Level::kProblem;
    problems += problem ? 1 : 0;
    Cell level =
        TextCell(kLevelNames[static_cast<int>(diagnosis.level)],
                 problem                                      ? Tone::kBad
                 : diagnosis.level == Diagnosis::Level::kNote ? Tone::kWarning
                                                              : Tone::kGood);
    if (problem) level.value = "problem";
    table.rows.push_back(
        {TextCell(diagnosis.check), std::move(level), TextCell(diagnosis.what),
         diagnosis.advice.empty() ? NoCell() : TextCell(diagnosis.advice),
         Cell{diagnosis.facts, diagnosis.facts.dump()}});
  }
  table.extra = {{"ok", problems == 0}};
  CKPTREE_RETURN_IF_ERROR(session.Print(std::move(table), options));
  return problems == 0 ? kExitOk : kExitNegative;
}

}  // namespace ckptree::tools
