// SPDX-License-Identifier: Apache-2.0

// Hot path: per record scanned.

#include "kv/iterator.h"

#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kv/rocks/iterator_impl.h"

namespace ckptree::kv {

Iterator::Iterator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Iterator::Iterator(Iterator&&) noexcept = default;

Iterator& Iterator::operator=(Iterator&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Iterator::~Iterator() {
  // In a forked child the threads that closing may wait for are missing.
  if (impl_ != nullptr && !impl_->mark.Holds()) {
    static_cast<void>(impl_.release());
  }
}

bool Iterator::Valid() const { return impl_->cursor->Valid(); }

void Iterator::Next() { impl_->cursor->Next(); }

void Iterator::Seek(std::string_view key) { impl_->cursor->Seek(key); }

std::string_view Iterator::key() const { return impl_->cursor->key(); }

std::string_view Iterator::value() const { return impl_->cursor->value(); }

absl::Status Iterator::status() const { return impl_->cursor->status(); }

}  // namespace ckptree::kv
