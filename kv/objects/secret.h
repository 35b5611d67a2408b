// SPDX-License-Identifier: Apache-2.0

// Memory for secret keys, which a core dump of the process leaves out.

#ifndef CKPTREE_KV_OBJECTS_SECRET_H_
#define CKPTREE_KV_OBJECTS_SECRET_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ckptree::kv {

// Zeros at first, in pages of their own: they are in no core dump, and are
// overwritten before the pages go back. Whoever reads the memory of the process
// while it runs sees them. Not thread-safe while somebody writes.
class SecretBytes {
 public:
  explicit SecretBytes(std::size_t size);
  ~SecretBytes();
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;

  char* data() { return data_; }
  std::size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }

 private:
  char* data_;
  const std::size_t size_;
};

// Null where there is none.
using Secret = std::shared_ptr<const SecretBytes>;

// A copy; null of no bytes. `text` stays where it is.
Secret SecretOf(std::string_view text);

// All of a file, which no other memory of the process has held; null where it
// cannot be read, or is empty.
Secret ReadSecretFile(const std::string& path);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_SECRET_H_
