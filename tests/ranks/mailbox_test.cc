// SPDX-License-Identifier: Apache-2.0

// Mailboxes of ranks whose disk is full for a while.

#include "core/ranks/mailbox.h"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kv/file_system.h"
#include "schema/rank_message.h"
#include "tests/core/fixture.h"
#include "tests/fault/fs.h"

namespace ckptree::internal {
namespace {

using schema::MailKind;
using schema::RankMail;
using testing::CallKind;
using testing::FaultCounts;
using testing::FaultFs;
using testing::FaultPlan;

RankMail Mail(std::int64_t step) {
  RankMail mail;
  mail.kind = MailKind::kBegun;
  mail.step = step;
  mail.text = std::string(200, 'x');
  return mail;
}

std::vector<std::int64_t> StepsOf(const std::vector<RankMail>& mails) {
  std::vector<std::int64_t> steps;
  for (const RankMail& mail : mails) steps.push_back(mail.step);
  return steps;
}

// Of the writes some end in the middle of a record: what follows is read all
// the same, and what failed is not.
TEST(RanksMailboxTest, HalfARecordIsWrittenOver) {
  const ckptree::testing::TempDir dir;
  FaultCounts counts;
  const auto fs = std::make_shared<FaultFs>("", &counts);
  kv::Options options;
  options.file_system = fs;
  MailFolder folder(options, dir.path());
  MailWriter writer(folder.Write("box"), absl::Hours(1));
  const std::unique_ptr<MailSource> reader = folder.Read("box");
  std::vector<std::int64_t> posted, read;
  int failed = 0;
  std::uint64_t cuts = 0;
  for (std::int64_t step = 1; step <= 200; ++step) {
    // The append, or the cut that follows half a record, or none of them.
    fs->Arm({{.mode = FaultPlan::Mode::kFail,
              .at = static_cast<std::uint64_t>(1 + step % 6),
              .error = ENOSPC,
              .seed = static_cast<std::uint64_t>(2 * step + 1)}});
    if (writer.Post(Mail(step)).ok()) {
      posted.push_back(step);
    } else {
      ++failed;
    }
    for (const auto& calls :
         counts.by_kind[static_cast<std::size_t>(CallKind::kTruncate)]) {
      cuts += calls;
    }
    fs->Disarm();
    if (step % 2 == 0) {
      const auto mails = reader->Poll();
      ASSERT_OK(mails);
      for (const std::int64_t got : StepsOf(*mails)) read.push_back(got);
    }
  }
  ASSERT_OK(writer.Post(Mail(1000)));
  posted.push_back(1000);
  const auto rest = reader->Poll();
  ASSERT_OK(rest);
  for (const std::int64_t got : StepsOf(*rest)) read.push_back(got);
  EXPECT_EQ(read, posted);
  EXPECT_GT(posted.size(), 20U);
  EXPECT_GT(failed, 20);
  EXPECT_GT(cuts, 10U);
  const std::unique_ptr<MailSource> anew = folder.Read("box");
  const auto all = anew->Poll();
  ASSERT_OK(all);
  EXPECT_EQ(StepsOf(*all), posted);
}

// What is kept comes in its order, whichever calls fail in between, and how
// often; what is not kept comes where Post() said so, and nothing comes twice.
TEST(RanksMailboxTest, WhatIsKeptComesLater) {
  const ckptree::testing::TempDir dir;
  FaultCounts counts;
  const auto fs = std::make_shared<FaultFs>("", &counts);
  kv::Options options;
  options.file_system = fs;
  MailFolder folder(options, dir.path());
  MailWriter writer(folder.Write("box"), absl::Hours(1));
  const std::unique_ptr<MailSource> reader = folder.Read("box");
  std::vector<std::int64_t> expected, read;
  int kept = 0;
  for (std::int64_t step = 1; step <= 300; ++step) {
    const auto n = static_cast<std::uint64_t>(step);
    fs->Arm({{.mode = FaultPlan::Mode::kFail,
              .at = 1 + n * 7 % 9,
              .error = ENOSPC,
              .sticky = n % 10 < 5,
              .seed = 3 * n}});
    const bool keep = step % 3 != 0;
    const absl::Status status =
        keep ? writer.PostOrKeep(Mail(step)) : writer.Post(Mail(step));
    if (keep || status.ok()) expected.push_back(step);
    kept += keep && !status.ok() ? 1 : 0;
    fs->Disarm();
    if (step % 4 != 0) continue;
    const auto mails = reader->Poll();
    if (absl::IsNotFound(mails.status())) continue;
    ASSERT_OK(mails);
    for (const std::int64_t got : StepsOf(*mails)) read.push_back(got);
  }
  ASSERT_OK(writer.Post(Mail(1000)));
  expected.push_back(1000);
  const auto rest = reader->Poll();
  ASSERT_OK(rest);
  for (const std::int64_t got : StepsOf(*rest)) read.push_back(got);
  EXPECT_EQ(read, expected);
  EXPECT_GT(kept, 30);
}

// Has what it was given, and throws at some of it: before, or behind.
class ThrowingSink : public MailSink {
 public:
  explicit ThrowingSink(std::vector<std::string>* there) : there_(there) {}

  absl::Status Append(const std::string& record, bool* /*unsure*/) override {
    ++calls_;
    if (calls_ % 5 == 1) throw std::bad_alloc();
    there_->push_back(record);
    if (calls_ % 5 == 3) throw std::bad_alloc();
    if (calls_ % 7 != 0) return absl::OkStatus();
    there_->pop_back();
    return absl::UnavailableError("full");
  }
  absl::StatusOr<bool> Settle(const std::string& record) override {
    return !there_->empty() && there_->back() == record;
  }
  void Forget(std::uint64_t /*records*/) override {}

 private:
  std::vector<std::string>* const there_;
  int calls_ = 0;
};

// What is kept is written once, whatever was thrown at it.
TEST(RanksMailboxTest, WhatIsThrownLosesNothing) {
  std::vector<std::string> there;
  MailWriter writer(std::make_unique<ThrowingSink>(&there), absl::Hours(1));
  std::vector<std::int64_t> expected;
  int thrown = 0;
  for (std::int64_t step = 1; step <= 200; ++step) {
    expected.push_back(step);
    try {
      writer.PostOrKeep(Mail(step)).IgnoreError();
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
  }
  EXPECT_GT(thrown, 50);
  for (int i = 0; i < 20; ++i) {
    try {
      if (writer.Post(Mail(1000)).ok()) break;
    } catch (const std::bad_alloc&) {
    }
  }
  std::string bytes;
  for (const std::string& record : there) bytes += record;
  std::size_t end = 0;
  std::vector<std::int64_t> read = StepsOf(ParseMail(bytes, &end));
  EXPECT_EQ(end, bytes.size());
  std::erase(read, 1000);
  EXPECT_EQ(read, expected);
  EXPECT_EQ(writer.written(), there.size());
}

}  // namespace
}  // namespace ckptree::internal
