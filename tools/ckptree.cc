// SPDX-License-Identifier: Apache-2.0

// The `ckptree` command.

#include <clocale>
#include <string>
#include <vector>

#include "tools/line/command.h"

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  return ckptree::tools::RunCommandLine(
      std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
