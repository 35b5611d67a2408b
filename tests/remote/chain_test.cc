// SPDX-License-Identifier: Apache-2.0

// The chain of commits over an object store whose requests are lost, late and
// repeated, and whose answers are lost, with writers that are killed at any
// request. What must hold is judged by the objects that are there in the end,
// read here, and by what the writers were told.

#include "core/remote/chain.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/digest.h"
#include "core/remote/remote_objects.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "schema/remote_record.h"

namespace ckptree::internal {
namespace {

using schema::RemoteCommit;

const std::string kUuid(16, 'u');

const std::string kPage = "<html>portal</html>";

// What the writer does not outlive; nothing of its process goes on.
struct Killed {};

// Objects in memory. Confined to one thread.
class FaultyStore : public kv::ObjectStore {
 public:
  explicit FaultyStore(std::uint64_t seed) : random_(seed) {}

  // With faults from now on, or without.
  bool faulty = false;
  // How many requests from now on the process is killed; 0: it is not.
  int kill_in = 0;
  // How many answers from now on are not of the store: to a PUT, which arrives,
  // none, and else a page.
  int portals = 0;
  // How many creations from now on arrive though an error says that they never
  // will.
  int lies = 0;
  // Called before a request, where it is not called already.
  std::function<void()> between;
  std::function<void()> on_list;
  std::map<std::string, std::uint64_t> fired;
  std::map<std::string, std::string> objects;

  const std::string& address() const override { return address_; }

  absl::StatusOr<kv::PutAnswer> PutIfAbsent(const std::string& name,
                                            std::string_view bytes,
                                            const std::string&,
                                            const kv::Call&) override {
    Begin();
    const auto arrive = [this, name, bytes = std::string(bytes)] {
      return objects.emplace(name, bytes).second;
    };
    const kv::PutAnswer unknown{kv::PutOutcome::kUnknown,
                                absl::DeadlineExceededError("no answer")};
    if (Portal()) {
      arrive();
      return unknown;
    }
    if (lies > 0) {
      --lies;
      ++fired["lie"];
      arrive();
      return absl::UnavailableError("not created");
    }
    if (Chance("lost", 8)) return unknown;
    if (Chance("late", 6)) {
      late_.emplace_back(arrive);
      return unknown;
    }
    const bool created = arrive();
    if (Chance("repeated", 8)) late_.emplace_back(arrive);
    EndOfRequest();
    if (Chance("answer lost", 6)) return unknown;
    // The store repeats what it was asked by itself: the second says it exists.
    if (Chance("answered twice", 10)) {
      return kv::PutAnswer{kv::PutOutcome::kExists, absl::OkStatus()};
    }
    return kv::PutAnswer{
        created ? kv::PutOutcome::kCreated : kv::PutOutcome::kExists,
        absl::OkStatus()};
  }

  absl::StatusOr<std::size_t> GetRange(const std::string& name,
                                       std::uint64_t offset,
                                       std::span<std::byte> into,
                                       const kv::Call&) override {
    Begin();
    if (Chance("no read", 10)) return absl::UnavailableError("no answer");
    const bool portal = Portal();
    const auto it = objects.find(name);
    if (it == objects.end() && !portal) return absl::NotFoundError(name);
    const std::string& bytes = portal ? kPage : it->second;
    const std::string piece = bytes.substr(offset, into.size());
    piece.copy(reinterpret_cast<char*>(into.data()), piece.size());
    return piece.size();
  }
  absl::StatusOr<std::optional<kv::ObjectInfo>> Head(const std::string& name,
                                                     const kv::Call&) override {
    Begin();
    if (Chance("no head", 10)) return absl::UnavailableError("no answer");
    if (Portal()) {
      return kv::ObjectInfo{name, kPage.size(), absl::UnixEpoch(),
                            std::nullopt};
    }
    const auto it = objects.find(name);
    if (it == objects.end()) return std::nullopt;
    return kv::ObjectInfo{name, it->second.size(), absl::UnixEpoch(),
                          std::nullopt};
  }
  absl::Status Put(const std::string&, const kv::ObjectSource&,
                   const kv::Call&) override {
    return absl::UnimplementedError("Put");
  }
  absl::StatusOr<kv::ObjectPage> List(const std::string& prefix,
                                      const std::string& after,
                                      const kv::Call&) override {
    Begin();
    if (Chance("no list", 10)) return absl::UnavailableError("no answer");
    if (on_list) on_list();
    kv::ObjectPage page;
    for (auto it = objects.upper_bound(after);
         it != objects.end() && it->first.starts_with(prefix); ++it) {
      page.objects.push_back(
          {it->first, it->second.size(), absl::UnixEpoch(), std::nullopt});
    }
    return page;
  }
  absl::Status Delete(std::span<const std::string>, const kv::Call&) override {
    return absl::UnimplementedError("Delete");
  }
  absl::StatusOr<std::vector<kv::Upload>> ListUploads(
      const std::string&, const kv::Call&) override {
    return std::vector<kv::Upload>();
  }
  absl::Status AbortUpload(const kv::Upload&, const kv::Call&) override {
    return absl::OkStatus();
  }

  // All that is on its way arrives.
  void Deliver() {
    for (const std::function<bool()>& arrive : late_) arrive();
    late_.clear();
  }
  bool Chance(const std::string& what, unsigned one_of) {
    if (!faulty || random_() % one_of != 0) return false;
    ++fired[what];
    return true;
  }
  bool Portal() {
    if (portals == 0) return false;
    --portals;
    ++fired["portal"];
    return true;
  }
  std::mt19937_64& random() { return random_; }

 private:
  void Begin() {
    if (kill_in > 0 && --kill_in == 0) {
      ++fired["killed before a request"];
      throw Killed();
    }
    while (!late_.empty() && Chance("arrives late", 3)) {
      const std::size_t which = random_() % late_.size();
      const std::function<bool()> arrive = late_[which];
      if (random_() % 2 == 0) {
        late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(which));
      }
      arrive();
    }
    if (between != nullptr && Chance("another in between", 4)) {
      const std::function<void()> other = std::exchange(between, nullptr);
      const int mine = std::exchange(kill_in, 0);
      other();
      kill_in = mine;
      between = other;
    }
  }
  // Killed when the request was carried out and before its answer is there.
  void EndOfRequest() {
    if (kill_in > 0 && --kill_in == 0) {
      ++fired["killed after a request"];
      throw Killed();
    }
  }

  const std::string address_ = "fake://store";
  std::mt19937_64 random_;
  std::vector<std::function<bool()>> late_;
};

// One that begins, and asks once: what is not answered then is unknown.
kv::Call Once() { return kv::Call::Within(absl::ZeroDuration()); }

absl::Status Ignore(const RemoteCommit&) { return absl::OkStatus(); }

// What the writers were told.
struct Told {
  std::set<std::string> committed;  // Names of local steps.
  std::set<std::string> failed;
  int fenced = 0;
};

// A process that ships steps: each has a name that no other has.
class Writer {
 public:
  Writer(FaultyStore* store, std::string name, Told* told)
      : store_(store), name_(std::move(name)), told_(told) {}

  // One thing at random, or its end.
  void Turn() {
    if (busy_) return;  // It is in the middle of a request of its own.
    busy_ = true;
    try {
      if (store_->faulty && store_->kill_in == 0 &&
          store_->random()() % 6 == 0) {
        store_->kill_in = 1 + static_cast<int>(store_->random()() % 5);
      }
      Step();
    } catch (const Killed&) {
      chain_.reset();
      shipping_.clear();
    }
    store_->kill_in = 0;
    busy_ = false;
  }

 private:
  void Step() {
    if (chain_ == nullptr) {
      chain_ = std::make_unique<RemoteChain>(store_, kUuid, 1);
      return;
    }
    if (chain_->pending()) return Told_(chain_->Settle(Once()));
    if (!chain_->fenced().ok()) {
      // A new process takes the store over again.
      chain_.reset();
      return;
    }
    if (chain_->era() == 0) {
      if (!chain_->ReadOn(Ignore, Once()).ok()) return;
      return Told_(chain_->Append(Draft(RemoteCommit::Shape::kOpen), Once()));
    }
    RemoteCommit ship = Draft(RemoteCommit::Shape::kShip);
    ship.from = steps_;
    ship.to = ++steps_;
    shipping_ = absl::StrCat(name_, "-", steps_);
    ship.rows.push_back({schema::Space::kRecords, shipping_, "value"});
    Told_(chain_->Append(std::move(ship), Once()));
  }

  RemoteCommit Draft(RemoteCommit::Shape shape) const {
    RemoteCommit draft;
    draft.shape = shape;
    draft.local = std::string(16, name_[0]);
    draft.host = name_;
    return draft;
  }

  void Told_(const absl::Status& status) {
    ASSERT_FALSE(absl::IsDataLoss(status)) << status;
    if (chain_->pending()) return;
    if (status.ok()) {
      if (!shipping_.empty()) told_->committed.insert(shipping_);
    } else if (!shipping_.empty()) {
      told_->failed.insert(shipping_);
      told_->fenced += !chain_->fenced().ok();
    }
    shipping_.clear();
  }

  FaultyStore* const store_;
  const std::string name_;
  Told* const told_;
  std::unique_ptr<RemoteChain> chain_;
  std::string shipping_;
  std::uint64_t steps_ = 0;
  bool busy_ = false;
};

// The names of the steps in the chain, as its objects have them.
std::multiset<std::string> Judge(const FaultyStore& store) {
  std::multiset<std::string> steps;
  base::Digest before;
  std::uint64_t newest_open = 0;
  std::size_t count = 0;
  for (std::uint64_t ordinal = 1;; ++ordinal) {
    const auto it = store.objects.find(RemoteCommitName(kUuid, ordinal));
    if (it == store.objects.end()) break;
    ++count;
    const absl::StatusOr<RemoteCommit> commit =
        schema::DecodeRemoteCommit(it->second);
    EXPECT_TRUE(commit.ok()) << commit.status();
    if (!commit.ok()) break;
    EXPECT_EQ(commit->before, before) << "a fork at " << ordinal;
    before = base::DigestOf(it->second);
    if (commit->shape == RemoteCommit::Shape::kOpen) newest_open = ordinal;
    EXPECT_EQ(commit->era, newest_open) << "of a fenced writer, " << ordinal;
    for (const schema::RemoteRow& row : commit->rows) steps.insert(row.key);
  }
  EXPECT_EQ(count, store.objects.size()) << "something lies behind a hole";
  return steps;
}

TEST(RemoteChainTest, TwoWritersOverAStoreThatLosesAndRepeats) {
  std::map<std::string, std::uint64_t> fired;
  std::size_t committed = 0;
  std::size_t failed = 0;
  int fenced = 0;
  constexpr int kSeeds = 400;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    FaultyStore store(seed);
    Told told;
    Writer a(&store, "a", &told);
    Writer b(&store, "b", &told);
    store.faulty = true;
    for (int turn = 0; turn < 60; ++turn) {
      Writer& one = store.random()() % 3 == 0 ? b : a;
      Writer& other = &one == &a ? b : a;
      store.between = [&other] { other.Turn(); };
      one.Turn();
      if (::testing::Test::HasFatalFailure()) return;
    }
    store.between = nullptr;
    store.faulty = false;
    store.Deliver();
    const std::multiset<std::string> steps = Judge(store);
    for (const std::string& step : told.committed) {
      EXPECT_EQ(steps.count(step), 1) << step << " was acknowledged";
    }
    for (const std::string& step : told.failed) {
      EXPECT_EQ(steps.count(step), 0) << step << " was said to have failed";
    }
    for (const std::string& step : steps) EXPECT_EQ(steps.count(step), 1);
    // A reader takes just that.
    RemoteChain reader(&store, kUuid, 1);
    std::multiset<std::string> read;
    EXPECT_EQ(reader.ReadOn(
                  [&](const RemoteCommit& commit) {
                    for (const schema::RemoteRow& row : commit.rows) {
                      read.insert(row.key);
                    }
                    return absl::OkStatus();
                  },
                  Once()),
              absl::OkStatus());
    EXPECT_EQ(read, steps);
    committed += told.committed.size();
    failed += told.failed.size();
    fenced += told.fenced;
    for (const auto& [what, times] : store.fired) fired[what] += times;
    if (::testing::Test::HasFailure()) return;
  }
  for (const char* what :
       {"lost", "late", "repeated", "answer lost", "answered twice", "no read",
        "no head", "arrives late", "another in between",
        "killed before a request", "killed after a request"}) {
    EXPECT_GE(fired[what], 50) << what;
    RecordProperty(what, static_cast<int>(fired[what]));
  }
  EXPECT_GE(committed, 1000);
  EXPECT_GE(failed, 50);
  EXPECT_GE(fenced, 50);
  std::printf("%zu steps acknowledged, %zu refused, %d writers fenced\n",
              committed, failed, fenced);
}

class QuietChainTest : public ::testing::Test {
 protected:
  RemoteCommit Open() {
    RemoteCommit open;
    open.local = std::string(16, 'l');
    open.host = "host";
    open.pid = 7;
    return open;
  }
  RemoteCommit Ship(std::uint64_t from) {
    RemoteCommit ship = Open();
    ship.shape = RemoteCommit::Shape::kShip;
    ship.from = from;
    ship.to = from + 1;
    return ship;
  }
  FaultyStore store_{1};
};

TEST_F(QuietChainTest, AFencedWriterStaysSo) {
  RemoteChain first(&store_, kUuid, 1);
  ASSERT_EQ(first.Append(Open(), Once()), absl::OkStatus());
  ASSERT_EQ(first.Append(Ship(0), Once()), absl::OkStatus());
  RemoteChain second(&store_, kUuid, 1);
  ASSERT_EQ(second.ReadOn(Ignore, Once()), absl::OkStatus());
  ASSERT_EQ(second.Append(Open(), Once()), absl::OkStatus());
  const absl::Status fenced = first.Append(Ship(1), Once());
  EXPECT_TRUE(absl::IsFailedPrecondition(fenced)) << fenced;
  EXPECT_NE(fenced.message().find("host host, pid 7, at commit 3"),
            std::string::npos)
      << fenced;
  EXPECT_EQ(first.Append(Ship(1), Once()), fenced);
  EXPECT_EQ(first.Append(Open(), Once()), fenced);
  EXPECT_EQ(first.Settle(Once()), fenced);
  EXPECT_EQ(second.Append(Ship(5), Once()), absl::OkStatus());
}

TEST_F(QuietChainTest, AnEarlierCommitOfItsOwnFencesNobody) {
  RemoteChain writer(&store_, kUuid, 1);
  ASSERT_EQ(writer.Append(Open(), Once()), absl::OkStatus());
  store_.lies = 1;
  EXPECT_TRUE(absl::IsUnavailable(writer.Append(Ship(0), Once())));
  EXPECT_FALSE(writer.pending());
  EXPECT_TRUE(absl::IsAlreadyExists(writer.Append(Ship(0), Once())));
  EXPECT_FALSE(writer.pending());
  EXPECT_EQ(writer.fenced(), absl::OkStatus());
  ASSERT_EQ(writer.ReadOn(Ignore, Once()), absl::OkStatus());
  EXPECT_EQ(writer.ordinal(), 2);
  EXPECT_EQ(writer.Append(Ship(0), Once()), absl::OkStatus());
  EXPECT_EQ(writer.ordinal(), 3);
  EXPECT_EQ(store_.fired["lie"], 1);
}

// Nor is one said to be there that nobody asked for.
TEST_F(QuietChainTest, NothingThatWasNotAskedForIsSettled) {
  RemoteChain writer(&store_, kUuid, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(writer.Settle(Once())));
  ASSERT_EQ(writer.Append(Open(), Once()), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(writer.Settle(Once())));
  EXPECT_EQ(writer.fenced(), absl::OkStatus());
  EXPECT_EQ(writer.Append(Ship(0), Once()), absl::OkStatus());
}

TEST_F(QuietChainTest, TheSecondOfTwoOpenersReadsOn) {
  RemoteChain first(&store_, kUuid, 1);
  RemoteChain second(&store_, kUuid, 1);
  ASSERT_EQ(first.Append(Open(), Once()), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(second.Append(Open(), Once())));
  ASSERT_EQ(second.ReadOn(Ignore, Once()), absl::OkStatus());
  EXPECT_EQ(second.Append(Open(), Once()), absl::OkStatus());
  EXPECT_EQ(second.era(), 2);
}

TEST_F(QuietChainTest, WhoReadsOnSeesThatItIsFenced) {
  RemoteChain first(&store_, kUuid, 1);
  ASSERT_EQ(first.Append(Open(), Once()), absl::OkStatus());
  RemoteChain second(&store_, kUuid, 1);
  ASSERT_EQ(second.ReadOn(Ignore, Once()), absl::OkStatus());
  ASSERT_EQ(second.Append(Open(), Once()), absl::OkStatus());
  ASSERT_EQ(first.ReadOn(Ignore, Once()), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(first.fenced()));
}

TEST_F(QuietChainTest, AForeignOrDamagedCommitIsNamed) {
  RemoteChain writer(&store_, kUuid, 1);
  ASSERT_EQ(writer.Append(Open(), Once()), absl::OkStatus());
  ASSERT_EQ(writer.Append(Ship(0), Once()), absl::OkStatus());
  const std::string name = RemoteCommitName(kUuid, 2);
  const std::string whole = store_.objects[name];
  const auto read = [&] {
    RemoteChain reader(&store_, kUuid, 1);
    return std::string(reader.ReadOn(Ignore, Once()).message());
  };
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  store_.objects[name] = damaged;
  EXPECT_NE(read().find(name), std::string::npos) << read();
  EXPECT_NE(read().find("checksum"), std::string::npos) << read();
  RemoteCommit other = *schema::DecodeRemoteCommit(whole);
  other.before = base::DigestOf("another");
  store_.objects[name] = schema::EncodeRemoteCommit(other);
  EXPECT_NE(read().find("does not follow"), std::string::npos) << read();
  other = *schema::DecodeRemoteCommit(whole);
  other.uuid = std::string(16, 'x');
  store_.objects[name] = schema::EncodeRemoteCommit(other);
  EXPECT_NE(read().find("another store's"), std::string::npos) << read();
}

// Neither damage nor another's: the writer asks on, and hears in the end.
TEST_F(QuietChainTest, AnswersThatAreNotOfTheStoreEndNothing) {
  RemoteChain writer(&store_, kUuid, 1);
  ASSERT_EQ(writer.Append(Open(), Once()), absl::OkStatus());
  // To the PUT, the look whether it arrived, and so many reads of it.
  for (const int portals : {2, 3, 4, 8}) {
    store_.portals = portals;
    absl::Status shipped = writer.Append(Ship(writer.ordinal() - 1), Once());
    for (int tries = 0; absl::IsUnavailable(shipped) && tries < 9; ++tries) {
      ASSERT_TRUE(writer.pending());
      shipped = writer.Settle(Once());
    }
    EXPECT_EQ(shipped, absl::OkStatus()) << portals;
    EXPECT_EQ(store_.portals, 0) << portals;
  }
  EXPECT_EQ(store_.fired["portal"], 17);
  EXPECT_EQ(writer.fenced(), absl::OkStatus());
  // Who reads takes it for no damage either, where it does not come again.
  store_.portals = 1;
  RemoteChain reader(&store_, kUuid, 1);
  EXPECT_EQ(reader.ReadOn(Ignore, Once()), absl::OkStatus());
  EXPECT_EQ(reader.hash(), writer.hash());
  EXPECT_EQ(store_.fired["portal"], 18);
}

TEST_F(QuietChainTest, GoesOnFromWhatWasSeenOnce) {
  RemoteChain writer(&store_, kUuid, 1);
  ASSERT_EQ(writer.Append(Open(), Once()), absl::OkStatus());
  ASSERT_EQ(writer.Append(Ship(0), Once()), absl::OkStatus());
  const base::Digest hash = writer.hash();
  ASSERT_EQ(writer.Append(Ship(1), Once()), absl::OkStatus());
  RemoteChain reader(&store_, kUuid, 1);
  ASSERT_EQ(reader.GoOnFrom(2, hash, Once()), absl::OkStatus());
  int seen = 0;
  ASSERT_EQ(reader.ReadOn(
                [&](const RemoteCommit&) {
                  ++seen;
                  return absl::OkStatus();
                },
                Once()),
            absl::OkStatus());
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(reader.hash(), writer.hash());
  RemoteChain lost(&store_, kUuid, 1);
  EXPECT_TRUE(absl::IsDataLoss(lost.GoOnFrom(3, hash, Once())));
  EXPECT_TRUE(absl::IsDataLoss(lost.GoOnFrom(9, hash, Once())));
}

// A reader would take the store for an older one, and a writer would go on from
// there.
TEST_F(QuietChainTest, ACommitThatIsGoneIsNamed) {
  RemoteChain writer(&store_, kUuid, 1);
  ASSERT_EQ(writer.Append(Open(), Once()), absl::OkStatus());
  ASSERT_EQ(writer.Append(Ship(0), Once()), absl::OkStatus());
  ASSERT_EQ(writer.Append(Ship(1), Once()), absl::OkStatus());
  const std::string name = RemoteCommitName(kUuid, 2);
  const std::string kept = store_.objects.at(name);
  store_.objects.erase(name);
  RemoteChain reader(&store_, kUuid, 1);
  const absl::Status gone = reader.ReadOn(Ignore, Once());
  EXPECT_TRUE(absl::IsDataLoss(gone)) << gone;
  EXPECT_NE(gone.message().find("commit 2"), std::string::npos) << gone;
  // It was only late: made between the look at it and the list.
  store_.on_list = [&] { store_.objects[name] = kept; };
  RemoteChain late(&store_, kUuid, 1);
  EXPECT_EQ(late.ReadOn(Ignore, Once()), absl::OkStatus());
  EXPECT_EQ(late.ordinal(), 3);
}

// One answer that is not of the store, or is damaged on its way, costs a second
// request; two of them are an object that is not what was put there.
TEST_F(QuietChainTest, WhatComesDamagedIsAskedForOnceMore) {
  const std::string name = "rows/1";
  const std::string put = "what was put there";
  store_.objects[name] = put;
  const auto get = [&] {
    return GetChecked(store_, name, put.size(), base::DigestOf(put), Once());
  };
  store_.portals = 1;
  EXPECT_EQ(get().value(), put);
  EXPECT_EQ(store_.portals, 0);
  store_.portals = 2;
  const absl::Status twice = get().status();
  EXPECT_TRUE(absl::IsDataLoss(twice)) << twice;
  EXPECT_NE(twice.message().find(name), std::string::npos) << twice;
  EXPECT_EQ(store_.portals, 0);
  EXPECT_EQ(store_.fired["portal"], 3u);
  // As many bytes as it should have, and others.
  store_.objects[name] = "what was put here.";
  EXPECT_TRUE(absl::IsDataLoss(get().status()));
  store_.objects.erase(name);
  const absl::Status gone = get().status();
  EXPECT_TRUE(absl::IsDataLoss(gone)) << gone;
  EXPECT_NE(gone.message().find("missing"), std::string::npos) << gone;
}

}  // namespace
}  // namespace ckptree::internal
