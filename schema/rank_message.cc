// SPDX-License-Identifier: Apache-2.0

#include "schema/rank_message.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/limits.h"

namespace ckptree::schema {
namespace {

// No file system has as many in one file: sums with it do not overflow.
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 50;

using base::kDigestBytes;

// A name of one folder: nothing outside of staging is ever reached by it.
bool IsFolderName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool IsWorld(std::uint32_t world) {
  return world >= 1 && world <= static_cast<std::uint32_t>(kMaxParts);
}

}  // namespace

std::string EncodeRankPlan(const RankPlan& plan) {
  pb::RankPlan out;
  out.set_uuid(plan.uuid);
  out.set_incarnation(plan.incarnation);
  out.set_session(plan.session);
  out.set_version(plan.version);
  out.set_base(plan.base);
  out.set_full(plan.full);
  out.set_step(plan.step);
  out.set_branch(plan.branch);
  out.set_branch_created_ns(plan.branch_created_ns);
  out.set_attempt(plan.attempt);
  out.set_world(plan.world);
  out.set_options(plan.options);
  return EnvelopeOf(RecordKind::kRankPlan, out);
}

absl::StatusOr<RankPlan> DecodeRankPlan(std::string_view bytes) {
  pb::RankPlan in;
  if (absl::Status status = ParseEnvelope(RecordKind::kRankPlan, bytes, &in);
      !status.ok()) {
    return status;
  }
  RankPlan plan;
  plan.uuid = in.uuid();
  plan.incarnation = in.incarnation();
  plan.session = in.session();
  plan.version = in.version();
  plan.base = in.base();
  plan.full = in.full();
  plan.step = in.step();
  plan.branch = in.branch();
  plan.branch_created_ns = in.branch_created_ns();
  plan.attempt = in.attempt();
  plan.world = in.world();
  plan.options = in.options();
  if (plan.uuid.size() != kUuidBytes) {
    return Fault(RecordKind::kRankPlan, "the uuid is not 16 bytes");
  }
  if (plan.version == 0 || plan.base >= plan.version) {
    return Fault(RecordKind::kRankPlan, "its version does not follow its base");
  }
  if (!IsFolderName(plan.attempt)) {
    return Fault(RecordKind::kRankPlan, "its attempt is no name of a folder");
  }
  if (!IsWorld(plan.world)) {
    return Fault(RecordKind::kRankPlan,
                 "it is for no possible number of ranks");
  }
  return plan;
}

std::string EncodePartToken(const PartToken& token) {
  pb::PartToken out;
  out.set_rank(token.rank);
  out.set_world(token.world);
  out.set_attempt(token.attempt);
  out.set_session(token.session);
  out.set_nonce(token.nonce);
  out.set_handoff(token.handoff);
  out.set_file_bytes(token.file_bytes);
  if (token.handoff.empty()) {
    out.set_file_digest(token.file_digest.view().data(), kDigestBytes);
  }
  return EnvelopeOf(RecordKind::kPartToken, out);
}

absl::StatusOr<PartToken> DecodePartToken(std::string_view bytes) {
  pb::PartToken in;
  if (absl::Status status = ParseEnvelope(RecordKind::kPartToken, bytes, &in);
      !status.ok()) {
    return status;
  }
  PartToken token;
  token.rank = in.rank();
  token.world = in.world();
  token.attempt = in.attempt();
  token.session = in.session();
  token.nonce = in.nonce();
  token.handoff = in.handoff();
  token.file_bytes = in.file_bytes();
  if (!IsWorld(token.world) || token.rank >= token.world) {
    return Fault(RecordKind::kPartToken, "its job does not have that rank");
  }
  if (token.handoff.empty() == (token.file_bytes == 0)) {
    return Fault(RecordKind::kPartToken, "neither a handoff nor a file of one");
  }
  if (token.file_bytes > kMostFileBytes) {
    return Fault(RecordKind::kPartToken, "a file of more bytes than can be");
  }
  if (token.handoff.empty()) {
    if (in.file_digest().size() != kDigestBytes) {
      return Fault(RecordKind::kPartToken, "the digest is not 16 bytes");
    }
    token.file_digest = base::Digest::FromBytes(in.file_digest());
  }
  return token;
}

std::string EncodeRankMail(const RankMail& mail) {
  pb::RankMail out;
  out.set_kind(static_cast<std::uint32_t>(mail.kind));
  out.set_step(mail.step);
  out.set_nth(mail.nth);
  out.set_rank(mail.rank);
  out.set_world(mail.world);
  out.set_nonce(mail.nonce);
  out.set_session(mail.session);
  out.set_uuid(mail.uuid);
  out.set_job(mail.job);
  out.set_host(mail.host);
  out.set_pid(mail.pid);
  out.set_body(mail.body);
  out.set_code(mail.code);
  out.set_text(mail.text);
  out.set_ordinal(mail.ordinal);
  for (const std::uint64_t nonce : mail.taken) out.add_taken(nonce);
  out.set_topic(mail.topic);
  out.set_call(mail.call);
  return EnvelopeOf(RecordKind::kRankMail, out);
}

absl::StatusOr<RankMail> DecodeRankMail(std::string_view bytes) {
  pb::RankMail in;
  if (absl::Status status = ParseEnvelope(RecordKind::kRankMail, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.kind() < static_cast<std::uint32_t>(MailKind::kOpen) ||
      in.kind() > static_cast<std::uint32_t>(MailKind::kRefused)) {
    return Fault(RecordKind::kRankMail, "its kind is not known");
  }
  RankMail mail;
  mail.kind = static_cast<MailKind>(in.kind());
  mail.step = in.step();
  mail.nth = in.nth();
  mail.rank = in.rank();
  mail.world = in.world();
  mail.nonce = in.nonce();
  mail.session = in.session();
  mail.uuid = in.uuid();
  mail.job = in.job();
  mail.host = in.host();
  mail.pid = in.pid();
  mail.body = in.body();
  mail.code = in.code();
  mail.text = in.text();
  mail.ordinal = in.ordinal();
  mail.taken.assign(in.taken().begin(), in.taken().end());
  mail.topic = in.topic();
  mail.call = in.call();
  return mail;
}

}  // namespace ckptree::schema
