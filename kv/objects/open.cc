// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kv/object_store.h"
#include "kv/object_store_wrapper.h"
#include "kv/objects/file_store.h"
#include "kv/objects/module.h"
#include "kv/objects/names.h"
#include "kv/objects/rados_store.h"
#include "kv/objects/s3_store.h"
#include "kv/objects/text.h"

namespace ckptree::kv {

bool HasObjectStore(std::string_view scheme) {
#ifdef CKPTREE_WITH_S3
  if (scheme == "s3" || scheme == "gs") return true;
#endif
#ifdef CKPTREE_WITH_RADOS
  if (scheme == "rados") return true;
#endif
  return scheme == "file";
}

std::string GoogleEndpoint() { return EnvironmentText("CKPTREE_GS_ENDPOINT"); }

namespace {

ObjectStoreWrapper& Wrapper() {
  static ObjectStoreWrapper* const wrapper = new ObjectStoreWrapper();
  return *wrapper;
}

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenPlain(
    const std::string& given,
    [[maybe_unused]] const ObjectStoreOptions& options,
    [[maybe_unused]] const Call& call) {
  CKPTREE_ASSIGN_OR_RETURN(const ObjectAddress parsed,
                           ParseObjectAddress(given));
  const std::string address = TextOf(parsed);
  if (parsed.scheme == "file") return OpenFileStore(address, parsed.path);
  if (!HasObjectStore(parsed.scheme)) {
    return absl::UnimplementedError(absl::StrCat(
        address, ": this build of ckptree is without ", parsed.scheme, "://; ",
        parsed.scheme == "rados" ? "librados" : "libcurl, OpenSSL and pugixml",
        " were not there (scripts/install_packages remote)"));
  }
  // Nobody is to find out in the middle of a run that a bucket of Google takes
  // no writer: who wants it says so.
  if (parsed.scheme == "gs" && options.endpoint.empty() &&
      GoogleEndpoint().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        address, ": an address begins with file://, s3:// or rados://, and ",
        "with gs:// only where CKPTREE_GS_ENDPOINT names the endpoint that ",
        "Google has for clients of S3: set it to ",
        "https://storage.googleapis.com, and GS_ACCESS_KEY_ID and ",
        "GS_SECRET_ACCESS_KEY to an HMAC key"));
  }
#ifdef CKPTREE_OBJECT_MODULES
  CKPTREE_ASSIGN_OR_RETURN(
      const ObjectModule* const module,
      LoadObjectModule(parsed.scheme == "gs" ? "s3" : parsed.scheme));
  return module->open(address, parsed, options, call);
#else
#ifdef CKPTREE_WITH_S3
  if (parsed.scheme == "s3" || parsed.scheme == "gs") {
    return OpenS3Store(address, parsed, options);
  }
#endif
#ifdef CKPTREE_WITH_RADOS
  if (parsed.scheme == "rados") {
    return OpenRadosStore(address, parsed, options, call);
  }
#endif
  return absl::InternalError(absl::StrCat(address, ": no such kind"));
#endif
}

}  // namespace

void SetObjectStoreWrapper(ObjectStoreWrapper wrapper) {
  Wrapper() = std::move(wrapper);
}

absl::StatusOr<std::unique_ptr<ObjectStore>> OpenObjectStore(
    const std::string& address, const ObjectStoreOptions& options,
    const Call& call) {
  absl::StatusOr<std::unique_ptr<ObjectStore>> opened =
      OpenPlain(address, options, call);
  if (!opened.ok() || Wrapper() == nullptr) return opened;
  return Wrapper()(*std::move(opened));
}

}  // namespace ckptree::kv
