// SPDX-License-Identifier: Apache-2.0

// What the processes that save one step tell each other. None of it is ever
// part of a store.

#ifndef CKPTREE_SCHEMA_RANK_MESSAGE_H_
#define CKPTREE_SCHEMA_RANK_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"

namespace ckptree::schema {

// The coordinator to the ranks: one attempt to save one step.
struct RankPlan {
  std::string uuid;  // Of the store.
  std::uint64_t incarnation = 0;
  std::uint64_t session = 0;  // Of the coordinator's open for writing.
  std::uint64_t version = 0;
  std::uint64_t base = 0;  // Every rank compares with this version,
  bool full = false;       // or, where that cannot be read, with nothing.
  std::int64_t step = 0;
  std::uint32_t branch = 0;
  std::int64_t branch_created_ns = 0;  // Of that number: which one.
  std::string attempt;                 // Name of its folder in staging.
  std::uint32_t world = 0;             // How many ranks there are.
  std::string options;  // What must be the same on all ranks, as text.

  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

// A rank to the coordinator: its part is built, and here is its handoff.
struct PartToken {
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  std::string attempt;
  std::uint64_t session = 0;
  std::uint64_t nonce = 0;  // Of the process: another of that rank has another.
  // The handoff, or, where it is large, the size and digest of its file.
  std::string handoff;
  std::uint64_t file_bytes = 0;
  base::Digest file_digest;

  friend bool operator==(const PartToken&, const PartToken&) = default;
};

enum class MailKind : std::uint8_t {
  kOpen = 1,     // Coordinator: it is there, and who it is.
  kWelcome = 2,  // It takes the rank of that nonce; with a code: it does not.
  kPlan = 3,
  kOutcome = 4,
  kBeat = 5,  // Either: it is alive.
  kClosed = 6,
  kHello = 7,  // Rank: it is there, and who it is.
  kBegun = 8,  // It is in the call that saves this step.
  kHandoff = 9,
  kFailed = 10,
  kTold = 11,    // Coordinator: its answer to a call of a topic, for all ranks.
  kNotice = 12,  // Rank: something of a topic came to it alone.
  // Rank 0, in no mailbox: it was refused the store.
  kRefused = 13,
};

// A record of a mailbox. Which fields count goes by the kind.
struct RankMail {
  MailKind kind = MailKind::kBeat;
  std::int64_t step = 0;
  std::uint32_t nth = 0;  // Which call for that step since its process opened.
  std::uint32_t rank = 0;
  std::uint32_t world = 0;
  std::uint64_t nonce = 0;
  std::uint64_t session = 0;
  std::string uuid;
  std::string job;
  std::string host;
  std::uint32_t pid = 0;
  std::string body;        // A plan, a token, or what is told.
  std::uint32_t code = 0;  // absl::StatusCode; 0: OK.
  std::string text;
  // Outcome: of the store's newest commit by then. Refused: when that was, in
  // nanoseconds since 1970.
  std::uint64_t ordinal = 0;
  std::vector<std::uint64_t> taken;  // Outcome: nonces, by rank.
  std::string topic;                 // Told, notice: what it is about,
  std::string call;                  // and which of its questions.

  friend bool operator==(const RankMail&, const RankMail&) = default;
};

// Each decoder: kDataLoss where the bytes are not whole or contradict
// themselves.
std::string EncodeRankPlan(const RankPlan& plan);
absl::StatusOr<RankPlan> DecodeRankPlan(std::string_view bytes);
std::string EncodePartToken(const PartToken& token);
absl::StatusOr<PartToken> DecodePartToken(std::string_view bytes);
std::string EncodeRankMail(const RankMail& mail);
absl::StatusOr<RankMail> DecodeRankMail(std::string_view bytes);

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_RANK_MESSAGE_H_
