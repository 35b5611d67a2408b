// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/require.h"

namespace ckptree::kv {

SecretBytes::SecretBytes(std::size_t size) : size_(size) {
  void* const pages =
      mmap(nullptr, std::max<std::size_t>(size, 1), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  base::Require(pages != MAP_FAILED, "a page for a secret");
  data_ = static_cast<char*>(pages);
  // Where the system knows no such thing they are as all other memory.
  madvise(pages, std::max<std::size_t>(size, 1), MADV_DONTDUMP);
}

SecretBytes::~SecretBytes() {
  explicit_bzero(data_, size_);
  munmap(data_, std::max<std::size_t>(size_, 1));
}

Secret SecretOf(std::string_view text) {
  if (text.empty()) return nullptr;
  const auto bytes = std::make_shared<SecretBytes>(text.size());
  text.copy(bytes->data(), text.size());
  return bytes;
}

Secret ReadSecretFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  constexpr std::size_t kFirst = 4096;
  auto room = std::make_unique<SecretBytes>(kFirst);
  std::size_t filled = 0;
  while (true) {
    if (filled == room->size()) {
      auto larger = std::make_unique<SecretBytes>(2 * filled);
      room->view().copy(larger->data(), filled);
      room = std::move(larger);
    }
    const ssize_t some =
        read(file, room->data() + filled, room->size() - filled);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;
    filled += static_cast<std::size_t>(some);
  }
  close(file);
  return SecretOf(room->view().substr(0, filled));
}

}  // namespace ckptree::kv
