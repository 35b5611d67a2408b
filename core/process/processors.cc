// SPDX-License-Identifier: Apache-2.0

#include "core/process/processors.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace ckptree::internal {
namespace {

std::string Content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Processors that a quota is worth; nothing where `text` sets none: "max", -1.
std::optional<std::int64_t> WorthOf(const std::string& text) {
  std::istringstream words(text);
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(words >> quota >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return (quota + period - 1) / period;
}

// Of one cgroup and those above it; `folder` begins with a slash or is empty.
void LimitBy(const std::string& root, std::string folder, bool version_2,
             std::int64_t* most) {
  while (true) {
    const std::string here = root + folder + "/";
    const auto worth =
        WorthOf(version_2 ? Content(here + "cpu.max")
                          : Content(here + "cpu.cfs_quota_us") + " " +
                                Content(here + "cpu.cfs_period_us"));
    if (worth.has_value()) *most = std::min(*most, *worth);
    if (folder.empty()) return;
    folder.resize(folder.rfind('/'));
  }
}

}  // namespace

int ProcessorsOfQuota(const std::string& cgroups, const std::string& mount,
                      int most) {
  std::int64_t worth = most;
  std::istringstream lines(cgroups);
  // Each is hierarchy:controllers:folder; version 2 has no controllers. In a
  // container the folder may be one of the host's: then the mount says it.
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string folder = line.substr(second + 1);
    if (!folder.starts_with('/')) continue;
    while (folder.ends_with('/')) folder.pop_back();
    if (controllers.empty()) {
      LimitBy(mount, folder, /*version_2=*/true, &worth);
      LimitBy(mount + "/unified", folder, /*version_2=*/true, &worth);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      LimitBy(mount + "/cpu", folder, /*version_2=*/false, &worth);
      LimitBy(mount + "/" + controllers, folder, /*version_2=*/false, &worth);
    }
  }
  return static_cast<int>(worth);
}

int Processors() {
  int all = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t mask;
  // Fails where the machine has more processors than the mask has bits.
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) all = CPU_COUNT(&mask);
  return ProcessorsOfQuota(Content("/proc/self/cgroup"), "/sys/fs/cgroup",
                           std::max(all, 1));
}

}  // namespace ckptree::internal
