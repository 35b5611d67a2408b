// SPDX-License-Identifier: Apache-2.0

#include "schema/store_record.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "schema/checkpoint.pb.h"
#include "schema/envelope.h"
#include "schema/fault.h"
#include "schema/limits.h"

namespace ckptree::schema {
namespace {

template <typename Strings>
absl::Status ReadNames(const Strings& in, std::vector<std::string>* out) {
  for (const std::string& name : in) {
    if (name.empty() ||
        static_cast<std::int64_t>(name.size()) > kMaxNameBytes) {
      return Fault(RecordKind::kStore,
                   "the name of a feature is empty or too long");
    }
    out->push_back(name);
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeStoreRecord(const StoreRecord& record) {
  pb::StoreRecord out;
  out.set_uuid(record.uuid);
  out.set_format(record.format);
  out.set_created_ns(record.created_ns);
  out.set_created_by(record.created_by);
  for (const std::string& name : record.incompat) out.add_incompat(name);
  for (const std::string& name : record.ro_compat) out.add_ro_compat(name);
  for (const std::string& name : record.compat) out.add_compat(name);
  return EnvelopeOf(RecordKind::kStore, out);
}

absl::StatusOr<StoreRecord> DecodeStoreRecord(std::string_view bytes) {
  pb::StoreRecord in;
  if (absl::Status status = ParseEnvelope(RecordKind::kStore, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.format() > kFormatNumber) {
    return absl::FailedPreconditionError(
        absl::StrFormat("store record: the store has format %d, this engine "
                        "reads up to %d: use "
                        "a newer one",
                        in.format(), kFormatNumber));
  }
  if (in.uuid().size() != kUuidBytes) {
    return Fault(RecordKind::kStore, "the uuid is not 16 bytes");
  }
  StoreRecord record;
  record.uuid = in.uuid();
  record.format = in.format();
  record.created_ns = in.created_ns();
  record.created_by = in.created_by();
  absl::Status status = ReadNames(in.incompat(), &record.incompat);
  if (status.ok()) status = ReadNames(in.ro_compat(), &record.ro_compat);
  if (status.ok()) status = ReadNames(in.compat(), &record.compat);
  if (!status.ok()) return status;
  return record;
}

std::string EncodeBranchRecord(const BranchRecord& record) {
  pb::BranchRecord out;
  out.set_tip(record.tip);
  out.set_name(record.name);
  out.set_origin_branch(record.origin_branch);
  out.set_origin_step(record.origin_step);
  out.set_origin_version(record.origin_version);
  out.set_created_ns(record.created_ns);
  return EnvelopeOf(RecordKind::kBranch, out);
}

absl::StatusOr<BranchRecord> DecodeBranchRecord(std::string_view bytes) {
  pb::BranchRecord in;
  if (absl::Status status = ParseEnvelope(RecordKind::kBranch, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.name().size() > static_cast<std::size_t>(kMaxNameBytes) ||
      in.name().empty() != (in.origin_version() == 0)) {
    return Fault(RecordKind::kBranch, "a fork has a name and an origin");
  }
  return BranchRecord{in.tip(),         in.name(),           in.origin_branch(),
                      in.origin_step(), in.origin_version(), in.created_ns()};
}

std::string EncodeBranchSettings(const BranchSettings& settings) {
  pb::BranchSettings out;
  out.set_policy(settings.policy);
  out.set_set_by(settings.set_by);
  out.set_set_ns(settings.set_ns);
  out.set_metadata(settings.metadata);
  out.set_from_program(settings.from_program);
  return EnvelopeOf(RecordKind::kBranchSettings, out);
}

absl::StatusOr<BranchSettings> DecodeBranchSettings(std::string_view bytes) {
  pb::BranchSettings in;
  if (absl::Status status =
          ParseEnvelope(RecordKind::kBranchSettings, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (static_cast<std::int64_t>(in.policy().size()) > kMaxPolicyBytes ||
      static_cast<std::int64_t>(in.metadata().size()) >
          kMaxCustomMetadataBytes) {
    return Fault(RecordKind::kBranchSettings, "a text is too long");
  }
  return BranchSettings{in.policy(), in.set_by(), in.set_ns(), in.metadata(),
                        in.from_program()};
}

std::string EncodeTagRecord(const TagRecord& record) {
  pb::TagRecord out;
  out.set_branch(record.branch);
  out.set_step(record.step);
  out.set_version(record.version);
  out.set_created_ns(record.created_ns);
  return EnvelopeOf(RecordKind::kTag, out);
}

absl::StatusOr<TagRecord> DecodeTagRecord(std::string_view bytes) {
  pb::TagRecord in;
  if (absl::Status status = ParseEnvelope(RecordKind::kTag, bytes, &in);
      !status.ok()) {
    return status;
  }
  if (in.version() == 0) return Fault(RecordKind::kTag, "it is of version 0");
  return TagRecord{in.branch(), in.step(), in.version(), in.created_ns()};
}

std::string EncodePinRecord(const PinRecord& record) {
  pb::PinRecord out;
  out.set_branch(record.branch);
  out.set_step(record.step);
  out.set_created_ns(record.created_ns);
  return EnvelopeOf(RecordKind::kPin, out);
}

absl::StatusOr<PinRecord> DecodePinRecord(std::string_view bytes) {
  pb::PinRecord in;
  if (absl::Status status = ParseEnvelope(RecordKind::kPin, bytes, &in);
      !status.ok()) {
    return status;
  }
  return PinRecord{in.branch(), in.step(), in.created_ns()};
}

}  // namespace ckptree::schema
