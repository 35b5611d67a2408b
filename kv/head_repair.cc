#include "kv/head_repair.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kv/commit_chain.h"
#include "kv/commit_log.h"
#include "kv/file_system.h"
#include "kv/guard.h"
#include "kv/instance.h"
#include "kv/iterator.h"
#include "kv/rocksdb_options.h"
#include "kv/status_macros.h"
#include "kv/store_directory.h"
#include "kv/table_source.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/metadata.h"
#include "schema/spaces.h"

namespace ckptree::kv {
namespace {

using schema::Space;

// What the commit records say, from the oldest that was kept on.
struct Chain {
  ChainTip tip;
  std::uint64_t version = 0;  // The highest.
  std::optional<Hash> at_head;
};

// Every record that is there, unlike the check of an open.
absl::StatusOr<Chain> ReadChain(const Database& database,
                                std::uint64_t head_ordinal) {
  CKPTREE_ASSIGN_OR_RETURN(
      Iterator scan,
      database.Scan(
          Space::kRecords, CommitRecordKey(0),
          CommitRecordKey(std::numeric_limits<std::uint64_t>::max())));
  Chain chain;
  std::uint64_t oldest = 0;
  for (; scan.Valid(); scan.Next()) {
    CKPTREE_ASSIGN_OR_RETURN(const CommitRecord record,
                             DecodeCommitRecord(scan.value()));
    if (oldest == 0) {
      oldest = record.ordinal;
    } else if (record.ordinal != chain.tip.ordinal + 1 ||
               record.previous != chain.tip.hash) {
      return absl::DataLossError(
          absl::StrFormat("commit %d does not follow commit %d", record.ordinal,
                          chain.tip.ordinal));
    }
    chain.tip = {record.ordinal, HashOf(scan.value())};
    chain.version = std::max(chain.version, record.version);
    if (record.ordinal == head_ordinal) chain.at_head = chain.tip.hash;
  }
  CKPTREE_RETURN_IF_ERROR(scan.status());
  if (oldest == 0) return absl::DataLossError("the store has no commit at all");
  // Trimming keeps that many.
  if (oldest > 1 && chain.tip.ordinal - oldest + 1 < kKeptCommits) {
    return absl::DataLossError(
        absl::StrFormat("commits up to %d are missing", oldest - 1));
  }
  return chain;
}

// How HEAD, which can be read and is this store's, and the chain disagree.
void Compare(const HeadSlot& head, const Chain& chain, HeadFinding* finding) {
  if (chain.tip.ordinal < head.ordinal) {
    finding->first_lost = chain.tip.ordinal + 1;
    finding->last_lost = head.ordinal;
    finding->problem =
        finding->first_lost == finding->last_lost
            ? absl::StrFormat("commit %d was acknowledged and is missing",
                              finding->last_lost)
            : absl::StrFormat(
                  "commits %d to %d were acknowledged and are missing",
                  finding->first_lost, finding->last_lost);
  } else if (chain.at_head.has_value() && *chain.at_head != head.hash) {
    finding->problem = absl::StrFormat(
        "commit %d is not the one that HEAD acknowledges", head.ordinal);
  } else if (chain.tip.ordinal > head.ordinal + 1) {
    finding->problem = absl::StrFormat(
        "HEAD acknowledges commit %d but the newest one is %d: HEAD is an old "
        "copy",
        head.ordinal, chain.tip.ordinal);
  }
}

}  // namespace

absl::StatusOr<HeadFinding> HoldAgainstHead(const Options& options,
                                            const std::string& directory,
                                            const Database& database,
                                            std::string_view uuid,
                                            std::uint64_t incarnation) {
  const absl::StatusOr<HeadSlot> head = HeadFile::Read(options, directory);
  if (!head.ok() && !absl::IsNotFound(head.status()) &&
      !absl::IsDataLoss(head.status())) {
    return head.status();
  }
  CKPTREE_ASSIGN_OR_RETURN(const Chain chain,
                           ReadChain(database, head.ok() ? head->ordinal : 0));
  HeadFinding finding;
  HeadSlot& wanted = finding.wanted;
  if (uuid.size() != wanted.uuid.size()) {
    return absl::DataLossError("the store record has no uuid");
  }
  std::copy(uuid.begin(), uuid.end(), wanted.uuid.begin());
  if (head.ok() && head->uuid == wanted.uuid) {
    wanted = *head;
    Compare(*head, chain, &finding);
  } else {
    finding.problem = head.ok() ? "HEAD belongs to another store"
                      : absl::IsNotFound(head.status())
                          ? "HEAD is gone"
                          : "HEAD cannot be read: none of its slots is whole";
    // The next open raises it, for no directory is named: it may be a copy.
    wanted.incarnation = std::max<std::uint64_t>(incarnation, 1);
  }
  wanted.ordinal = chain.tip.ordinal;
  wanted.hash = chain.tip.hash;
  wanted.version_ceiling = std::max({wanted.version_ceiling, chain.version,
                                     database.report().highest_version});
  return finding;
}

absl::StatusOr<bool> MayLeadFurther(const Options& options_in,
                                    const std::string& directory,
                                    std::uint64_t ordinal,
                                    SegmentSpaceFn space_of) {
  const Options options = Guarded(options_in, Guard::kReader, nullptr);
  const std::string db = Join(directory, kDbName);
  CKPTREE_ASSIGN_OR_RETURN(
      const std::shared_ptr<Instance> instance,
      Instance::Open(Role::kForensic, db, options, nullptr, nullptr));
  CKPTREE_ASSIGN_OR_RETURN(const ChainTip tip, ReadTip(*instance));
  if (tip.ordinal > ordinal) return true;
  const std::set<std::string, std::less<>> known =
      LiveTableNames(instance->db());
  const std::unique_ptr<rocksdb::Env> env =
      rocksdb::NewCompositeEnv(FileSystemOf(options));
  CKPTREE_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                           ListDirectory(options, db));
  for (const std::string& name : names) {
    if (!name.ends_with(".sst") || known.contains(name)) continue;
    // A segment that no row names is of no use without its row.
    const absl::StatusOr<TableSource> table =
        LookAtTable(Join(db, name), env.get(), space_of);
    if (!table.ok() || !table->space.has_value() ||
        *table->space == Space::kRecords || *table->space == Space::kSmall) {
      return true;
    }
  }
  return false;
}

absl::Status WriteHead(const Options& options, const std::string& directory,
                       const HeadFinding& finding) {
  absl::StatusOr<std::unique_ptr<HeadFile>> file =
      HeadFile::Open(options, directory);
  // As every commit does it: another slot than the one that counts.
  if (file.ok()) return (*file)->Write(finding.wanted);
  if (!absl::IsNotFound(file.status()) && !absl::IsDataLoss(file.status())) {
    return file.status();
  }
  return HeadFile::Create(options, directory, finding.wanted).status();
}

}  // namespace ckptree::kv
