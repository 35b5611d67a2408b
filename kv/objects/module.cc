// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/module.h"

#include <dlfcn.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

namespace ckptree::kv {
namespace {

absl::Status NotLoaded(std::string_view scheme, std::string_view why) {
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s:// needs a part of ckptree that cannot be loaded (%s); install "
      "ckptree with all its files, and what they need",
      scheme, why));
}

}  // namespace

absl::StatusOr<const ObjectModule*> LoadObjectModule(std::string_view scheme) {
  const std::string file = absl::StrFormat("ckptree_%s.so", scheme);
  // Never closed: threads of its libraries may run until the process ends.
  // Loaded once, it is only counted.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* found =
      library == nullptr ? nullptr : dlsym(library, kObjectModuleName);
  if (found == nullptr) {
    // That names the file, or the library that it lacks.
    const char* why = dlerror();
    return NotLoaded(scheme, why == nullptr ? file : why);
  }
  const auto* module = static_cast<const ObjectModule*>(found);
  if (std::string_view(module->version) != CKPTREE_VERSION) {
    return NotLoaded(scheme,
                     absl::StrFormat("%s is of ckptree %s, this is %s", file,
                                     module->version, CKPTREE_VERSION));
  }
  return module;
}

}  // namespace ckptree::kv
