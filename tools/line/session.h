// SPDX-License-Identifier: Apache-2.0

// What a command works with: its arguments, the store, the terminal.

#ifndef CKPTREE_TOOLS_LINE_SESSION_H_
#define CKPTREE_TOOLS_LINE_SESSION_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptree/store.h"
#include "tools/line/address.h"
#include "tools/line/arguments.h"
#include "tools/output/byte_sink.h"
#include "tools/output/printed_table.h"
#include "tools/output/table.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {

// Confined to one thread.
class Session {
 public:
  Session(Arguments arguments, ByteSink* out);

  const Arguments& arguments() const { return arguments_; }
  const std::vector<std::string>& words() const { return arguments_.words(); }
  const Terminal& terminal() const { return terminal_; }
  const Terminal& error_terminal() const { return error_terminal_; }
  ByteSink& out() { return *out_; }

  // Of what looks at several steps and ends: where OpenStore() opens a store
  // beside a trainer, that frees nothing until then, so that each step that is
  // listed can be read.
  void HoldListed() { holds_listed_ = true; }

  // The store of -C, $CKPTREE_STORE or the folder we are in, opened for reading
  // (safe beside a live trainer), or for writing. kNotFound where there is
  // none.
  absl::StatusOr<Store*> OpenStore();
  // With `create` it is made where StoreOptions::create_if_missing makes one.
  absl::StatusOr<Store*> OpenStoreForWriting(
      bool create = false, absl::Duration lock_wait = absl::ZeroDuration());
  // To close it soon: a trainer that starts until then waits.
  absl::StatusOr<Store*> OpenStoreForAChange();
  const std::string& directory() const { return directory_; }
  // True once it tried to open a store that is no directory of this machine.
  bool ByAddress() const;
  // The directory that these would open. kNotFound where none is named.
  absl::StatusOr<std::string> FindDirectory() const;
  // So that it can be opened again.
  void CloseStore() {
    held_.reset();
    store_.reset();
  }
  // From now on the store is that of `directory`, whatever -C says. REQUIRES:
  // none was opened yet.
  void UseStore(std::string directory) { chosen_ = std::move(directory); }

  // The step of `selector`; kNotFound names the steps next to it.
  absl::StatusOr<Step> OpenStep(const StepSelector& selector);
  absl::StatusOr<StepInfo> Resolve(const StepSelector& selector);

  // Prints `table` as the flags say, as WriteTable(); `layout`: as of Render().
  absl::Status Print(Table table, const TableOptions& options,
                     Layout* layout = nullptr);

  // Whether the store can be changed, and somebody asked yes or no.
  // kInvalidArgument: it is named by an address, which is only read.
  // kFailedPrecondition where there is nobody to ask, with `hint`.
  absl::Status CheckCanAsk(std::string_view question, std::string_view hint);
  bool Ask(std::string_view question);

  // A line on standard error, unless --quiet.
  void Note(std::string_view text);

 private:
  absl::StatusOr<Store*> Open(bool read_only, bool create,
                              absl::Duration lock_wait, bool brief);
  absl::Status Explain(absl::Status status, const StepSelector& selector);

  Arguments arguments_;
  Terminal terminal_;
  Terminal error_terminal_;
  ByteSink* out_;
  std::string chosen_;
  std::string directory_;
  std::optional<Store> store_;
  bool holds_listed_ = false;
  std::shared_ptr<const void> held_;  // Of store_.
};

// True where `directory` looks like a store.
bool IsStore(const std::string& directory);

}  // namespace ckptree::tools

#endif  // CKPTREE_TOOLS_LINE_SESSION_H_
