// SPDX-License-Identifier: Apache-2.0

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kv/journal/reader.h"
#include "kv/journal/record.h"
#include "kv/journal_search.h"
#include "kv/options.h"
#include "schema/spaces.h"

namespace ckptree::kv {

absl::StatusOr<bool> JournalHasAnyOf(
    const Options& options, const std::string& directory,
    const std::map<std::string, std::string, std::less<>>& rows) {
  CKPTREE_ASSIGN_OR_RETURN(
      const JournalContent journal,
      ReadJournal(options, directory, 1, /*beside_writer=*/true));
  for (const auto& [ordinal, record] : journal.records) {
    CKPTREE_ASSIGN_OR_RETURN(const std::vector<RowChange> changes,
                             DecodeRows(record.rows));
    for (const RowChange& change : changes) {
      if (change.space != schema::Space::kRecords ||
          change.what != RowChange::What::kPut) {
        continue;
      }
      const auto wanted = rows.find(change.key);
      if (wanted != rows.end() && wanted->second == change.value) return true;
    }
  }
  return false;
}

}  // namespace ckptree::kv
