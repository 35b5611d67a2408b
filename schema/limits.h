// SPDX-License-Identifier: Apache-2.0

// Every limit of the format, in one place; FORMAT.md gives the arithmetic.

#ifndef CKPTREE_SCHEMA_LIMITS_H_
#define CKPTREE_SCHEMA_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace ckptree::schema {

inline constexpr std::uint32_t kFormatNumber = 1;

inline constexpr std::size_t kUuidBytes = 16;

inline constexpr std::int64_t kMaxChunkBytes = 16 << 20;
inline constexpr std::int64_t kMaxInlineBytes = 256;
inline constexpr std::int64_t kMaxPathBytes = 4 << 10;  // Encoded.
inline constexpr int kMaxPathDepth = 256;
inline constexpr std::int64_t kMaxLeaves = 1 << 20;  // Of one step.
inline constexpr int kMaxDims = 64;
inline constexpr std::int64_t kMaxBatchBytes = 16 << 20;
inline constexpr std::int64_t kMaxCustomMetadataBytes = 8 << 20;
inline constexpr std::int64_t kMaxPolicyBytes = 16 << 10;  // Text form.
inline constexpr int kMaxMetrics = 16;
inline constexpr std::int64_t kMaxStepRecordBytes = 2 << 10;  // Without maps.
inline constexpr std::int64_t kMaxNoteBytes = 512;
// So that a step's record has room for them whatever else it says. A metric
// takes its name and kMetricBytes.
inline constexpr std::int64_t kMetricBytes = 15;
inline constexpr std::int64_t kMaxMetricsAndNoteBytes = 1856;
inline constexpr std::int64_t kMaxNameBytes = 128;  // Tags, metrics, items.
inline constexpr int kMaxParts = 4096;
inline constexpr std::int64_t kMaxRecordBytes = 64 << 20;  // Any one value.
inline constexpr int kLeavesPerTreePage = 512;
inline constexpr std::int64_t kMaxTreeEntries = 4 << 20;  // Leaves and nodes.
inline constexpr std::int64_t kMaxEntryTagBytes = 4 << 10;

// Of the files in `requests`.
inline constexpr std::int64_t kMaxRequestBytes = 4 << 20;
inline constexpr std::int64_t kMaxRequestSteps = 1 << 16;

// Largest number of array bytes: keeps every product and sum in an int64.
inline constexpr std::int64_t kMaxArrayBytes = std::int64_t{1} << 56;

}  // namespace ckptree::schema

#endif  // CKPTREE_SCHEMA_LIMITS_H_
