// SPDX-License-Identifier: Apache-2.0

#include "ckptree/options.h"

#include "absl/strings/str_format.h"
#include "ckptree/version.h"
#include "schema/limits.h"

#define CKPTREE_TEXT_(x) #x
#define CKPTREE_TEXT(x) CKPTREE_TEXT_(x)

namespace ckptree {

std::string_view Version() {
  return CKPTREE_TEXT(CKPTREE_VERSION_MAJOR) "." CKPTREE_TEXT(
      CKPTREE_VERSION_MINOR) "." CKPTREE_TEXT(CKPTREE_VERSION_PATCH);
}

int FormatNumber() { return static_cast<int>(schema::kFormatNumber); }

std::string PrometheusText(const Stats& stats) {
  std::string text;
  const auto counter = [&text](const char* name, const char* help,
                               std::uint64_t value) {
    absl::StrAppendFormat(&text,
                          "# HELP ckptree_%s %s\n# TYPE ckptree_%s counter\n"
                          "ckptree_%s %d\n",
                          name, help, name, name, value);
  };
  const auto gauge = [&text](const char* name, const char* help,
                             std::uint64_t value) {
    absl::StrAppendFormat(&text,
                          "# HELP ckptree_%s %s\n# TYPE ckptree_%s gauge\n"
                          "ckptree_%s %d\n",
                          name, help, name, name, value);
  };
  const auto seconds = [&text](const char* phase, double value) {
    absl::StrAppendFormat(
        &text, "ckptree_save_seconds_total{phase=\"%s\"} %g\n", phase, value);
  };
  counter("saves_committed_total", "Saves committed.", stats.saves_committed);
  counter("saves_failed_total", "Saves failed or cancelled.",
          stats.saves_failed);
  gauge("saves_in_flight", "Saves begun and not ended.", stats.saves_in_flight);
  counter("staged_bytes_total", "Bytes copied into the staging pool.",
          stats.bytes_staged);
  counter("hashed_bytes_total", "Bytes compared with a base.",
          stats.bytes_hashed);
  counter("written_bytes_total", "New bytes of values.", stats.bytes_written);
  counter("unchanged_bytes_total", "Bytes shared with a base.",
          stats.bytes_unchanged);
  counter("coded_bytes_total", "New bytes of values that were coded.",
          stats.bytes_coded);
  counter("coded_to_bytes_total", "What coded bytes take on the disk.",
          stats.bytes_coded_to);
  counter("read_bytes_total", "Bytes read from chunks.", stats.bytes_read);
  counter("chunks_written_total", "Chunks written.", stats.chunks_written);
  counter("leaf_records_written_total", "Leaf records written.",
          stats.leaf_records_written);
  counter("segments_written_total", "Segments written.",
          stats.segments_written);
  gauge("staging_bytes_in_use", "Bytes lent by the staging pool.",
        stats.staging_bytes_in_use);
  text +=
      "# HELP ckptree_save_seconds_total Seconds spent in each phase of a "
      "save.\n# TYPE ckptree_save_seconds_total counter\n";
  seconds("staging", stats.seconds_staging);
  seconds("writing", stats.seconds_comparing_and_writing);
  seconds("committing", stats.seconds_committing);
  return text;
}

}  // namespace ckptree
