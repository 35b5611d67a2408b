// SPDX-License-Identifier: Apache-2.0

// Diff() of any two steps of random histories, beside a model of them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckptree/history.h"
#include "ckptree/ranks.h"
#include "core/engine/difference_pieces.h"
#include "core/engine/leaf_past.h"
#include "tests/core/fixture.h"

namespace ckptree::testing {
namespace {

using ::testing::ElementsAre;

// A value: an int, an array of so many bytes of that number, None, or a tie.
struct ModelValue {
  enum class Kind { kInt, kArray, kNone, kTie } kind = Kind::kInt;
  std::int64_t number = 0;
  std::size_t size = 0;
  std::string tie_to = {};
  std::string tag = {};

  friend bool operator==(const ModelValue&, const ModelValue&) = default;
};
using Model = std::map<std::string, ModelValue>;
using Kind = ModelValue::Kind;

class DiffTest : public CoreTest {
 protected:
  // As many as three pages of a tree hold, and some.
  static constexpr int kLeaves = 1700;

  static std::string Name(std::uint64_t i) {
    return absl::StrFormat("layer%02d/w%04d", i / 100, i);
  }

  ModelValue RandomValue() {
    ModelValue value;
    value.number = static_cast<std::int64_t>(random_() % 200);
    value.kind = random_() % 2 == 0 ? Kind::kInt : Kind::kArray;
    if (value.kind == Kind::kArray) {
      value.size = 1 + random_() % 3;
      if (random_() % 8 == 0) value.tag = "scalar";
    }
    return value;
  }

  // A few changes, among them leaves that come and go.
  void Change(Model* model, int count, std::uint64_t leaves = kLeaves) {
    for (int i = 0; i < count; ++i) {
      const std::string name = Name(random_() % (leaves + leaves / 32));
      switch (random_() % 8) {
        case 0:
          model->erase(name);
          break;
        case 1:
          (*model)[name] = {.kind = Kind::kNone};
          break;
        case 2: {
          const auto target = model->lower_bound(Name(random_() % leaves));
          if (target == model->end() || target->first == name) break;
          if (target->second.kind > Kind::kArray) break;
          (*model)[name] = {.kind = Kind::kTie, .tie_to = target->first};
          break;
        }
        case 3:  // It may be what it was.
          if (model->contains(name)) (*model)[name].number ^= 1;
          break;
        default:
          (*model)[name] = RandomValue();
      }
    }
    // What lost its target becomes a value.
    for (auto& [name, value] : *model) {
      if (value.kind != Kind::kTie) continue;
      const auto target = model->find(value.tie_to);
      if (target == model->end() || target->second.kind > Kind::kArray) {
        value = {.number = 7};
      }
    }
  }

  void Put(const Model& model, StepBuilder* builder,
           std::vector<Bytes>* arrays) {
    arrays->reserve(model.size());
    for (const auto& [name, value] : model) {
      switch (value.kind) {
        case Kind::kInt:
          builder->PutInt(name, value.number);
          break;
        case Kind::kArray: {
          Tensor tensor = Uint8s(arrays->emplace_back(
              value.size, static_cast<std::byte>(value.number)));
          tensor.tag = value.tag;
          builder->Put(name, std::move(tensor));
          break;
        }
        case Kind::kNone:
          builder->PutNode(name, EntryKind::kNone);
          break;
        case Kind::kTie:
          builder->Tie(name, value.tie_to);
      }
    }
  }
  void SaveModel(std::int64_t step, const Model& model) {
    StepBuilder builder = store_->Begin(step);
    std::vector<Bytes> arrays;
    Put(model, &builder, &arrays);
    ASSERT_OK(Commit(std::move(builder)));
  }

  static ModelValue Held(const Model& model, const ModelValue& value) {
    return value.kind == Kind::kTie ? model.at(value.tie_to) : value;
  }

  // The same as the model says of the two.
  static void ExpectAs(const DiffReport& report, const Model& before,
                       const Model& after, const std::string& glob) {
    std::map<std::string, std::string> expected;
    std::uint64_t same = 0;
    const auto matches = [&glob](const std::string& name) {
      return glob.empty() || MatchesGlob(glob, name);
    };
    for (const auto& [name, value] : before) {
      if (!matches(name)) continue;
      const auto other = after.find(name);
      if (other == after.end()) {
        expected[name] = "removed";
        continue;
      }
      const ModelValue a = Held(before, value);
      const ModelValue b = Held(after, other->second);
      if (a == b) {
        same += a.kind == Kind::kNone || value.kind == Kind::kTie ? 0 : 1;
      } else {
        const bool typed =
            a.kind == b.kind && a.size == b.size && a.tag == b.tag;
        expected[name] = typed ? "changed" : "retyped";
      }
    }
    for (const auto& [name, value] : after) {
      if (matches(name) && !before.contains(name)) expected[name] = "added";
    }
    std::map<std::string, std::string> found;
    std::vector<std::string> names;
    for (const LeafChange& change : report.changes) {
      found[change.name] = std::string(ckptree::Name(change.kind));
      names.push_back(change.name);
      EXPECT_EQ(change.before.has_value(), before.contains(change.name));
      EXPECT_EQ(change.after.has_value(), after.contains(change.name));
      if (change.after.has_value() && change.after->is_leaf()) {
        EXPECT_EQ(change.after_detail->digest.size(), 32);
      }
    }
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    EXPECT_EQ(report.same, same);
  }

  static void ExpectSide(const internal::LeafSide& side,
                         const std::optional<LeafInfo>& leaf,
                         const std::optional<LeafDetail>& detail) {
    ASSERT_EQ(side.type != nullptr, leaf.has_value());
    if (!leaf.has_value()) return;
    EXPECT_EQ(side.type->kind, leaf->kind);
    EXPECT_EQ(side.type->dtype, leaf->dtype);
    EXPECT_EQ(side.type->packed, leaf->packed);
    EXPECT_EQ(side.type->shape, leaf->shape);
    EXPECT_EQ(side.type->tag, leaf->tag);
    EXPECT_EQ(side.bytes, detail->bytes);
    EXPECT_EQ(side.statistics, detail->statistics);
  }

  // The same by pieces of so many leaves.
  static void ExpectPieces(const Step& before, const Step& after,
                           const DiffReport& report, std::size_t leaves) {
    internal::DifferencePieces pieces(before, after);
    internal::DifferencePieces::Runs runs;
    for (bool more = true; more;) {
      ASSERT_OK_AND_ASSIGN(more, pieces.Next(leaves, &runs));
    }
    ASSERT_OK_AND_ASSIGN(const bool again, pieces.Next(leaves, &runs));
    EXPECT_FALSE(again);
    EXPECT_EQ(pieces.same(), report.same);
    auto change = report.changes.begin();
    for (const auto& run : runs) {
      for (const internal::LeafDifference& difference : run) {
        ASSERT_NE(change, report.changes.end());
        SCOPED_TRACE(change->name);
        EXPECT_EQ(difference.name, change->name);
        EXPECT_EQ(difference.kind, change->kind);
        ExpectSide(difference.before, change->before, change->before_detail);
        ExpectSide(difference.after, change->after, change->after_detail);
        ++change;
      }
    }
    EXPECT_EQ(change, report.changes.end());
  }

  void ExpectAllPairs(const Store& a, const Store& b,
                      const std::vector<Model>& models) {
    for (std::size_t i = 0; i < models.size(); ++i) {
      for (std::size_t j = i; j < models.size(); ++j) {
        const bool back = (i + j) % 3 == 0;  // The later one first.
        SCOPED_TRACE(absl::StrFormat("%d and %d", i, j));
        const Step before =
            a.OpenStep(AtStep(static_cast<std::int64_t>(back ? j : i))).value();
        const Step after =
            b.OpenStep(AtStep(static_cast<std::int64_t>(back ? i : j))).value();
        constexpr const char* kGlobs[] = {"layer03/**", "re:.*7$"};
        for (const char* const glob : {"", kGlobs[(i + j) % 2]}) {
          ASSERT_OK_AND_ASSIGN(const DiffReport report,
                               Diff(before, after, glob));
          ExpectAs(report, models[back ? j : i], models[back ? i : j], glob);
          if (*glob != '\0') continue;
          ExpectPieces(before, after, report, 100 + 50 * (i + j));
        }
      }
    }
  }

  // The values that a leaf had in `models`, by the step: each as often as it
  // stays.
  static std::vector<std::string> HistoryInModel(
      const std::map<std::int64_t, Model>& models, const std::string& name) {
    std::vector<std::string> entries;
    std::optional<ModelValue> before;
    std::int64_t first = 0, last = 0;
    int steps = 0;
    const auto end = [&] {
      if (steps == 0) return;
      entries.push_back(absl::StrFormat("%d to %d: %d", first, last, steps));
      steps = 0;
    };
    for (const auto& [step, model] : models) {
      const auto found = model.find(name);
      std::optional<ModelValue> now;
      if (found != model.end()) now = Held(model, found->second);
      if (now != before) end();
      if (now.has_value()) {
        if (steps++ == 0) first = step;
        last = step;
      }
      before = now;
    }
    end();
    return entries;
  }

  // That a command is told the same.
  static void ExpectSamePast(
      const Store& store, const std::string& name,
      const absl::StatusOr<std::vector<HistoryEntry>>& entries) {
    ASSERT_OK_AND_ASSIGN(const Path path, Path::Parse(name));
    const auto past = internal::PastOf(store, path, {});
    ASSERT_EQ(past.status(), entries.status());
    if (!past.ok()) return;
    ASSERT_EQ(past->values.size(), entries->size());
    for (std::size_t i = 0; i < entries->size(); ++i) {
      const HistoryEntry& entry = (*entries)[i];
      const internal::PastValue& value = past->values[i];
      ASSERT_EQ(value.first_step, entry.first_step);
      ASSERT_EQ(value.last_step, entry.last_step);
      ASSERT_EQ(value.steps, entry.steps);
      ASSERT_EQ(value.begun, entry.begun);
      ASSERT_EQ(value.leaf->name, entry.leaf.name);
      ASSERT_EQ(value.leaf->kind, entry.leaf.kind);
      ASSERT_EQ(value.leaf->dtype, entry.leaf.dtype);
      ASSERT_EQ(value.leaf->shape, entry.leaf.shape);
      ASSERT_EQ(value.leaf->tie_to, entry.leaf.tie_to);
      ASSERT_EQ(value.bytes, entry.detail.bytes);
      ASSERT_EQ(value.since_step, entry.detail.since_step);
      ASSERT_EQ(value.digest ? value.digest->Hex() : "", entry.detail.digest);
      ASSERT_EQ(value.statistics, entry.detail.statistics);
    }
  }

  // What History() says of a leaf: its entries, and all that is in them.
  struct Told {
    std::vector<std::string> entries;
    std::string all;
  };
  static Told HistoryIn(const Store& store, const std::string& name) {
    Told told;
    const auto entries = History(store, name);
    ExpectSamePast(store, name, entries);
    if (absl::IsNotFound(entries.status())) return told;
    EXPECT_OK(entries.status());
    for (const HistoryEntry& entry : *entries) {
      told.entries.push_back(absl::StrFormat("%d to %d: %d", entry.first_step,
                                             entry.last_step, entry.steps));
      const LeafInfo& leaf = entry.leaf;
      const LeafDetail& detail = entry.detail;
      told.all += absl::StrFormat(
          "%s %s %s %s %s %s %d %d %d %s %d %d %d %d %d\n", told.entries.back(),
          leaf.name, leaf.path.Text(), ckptree::Name(leaf.kind),
          absl::StrCat(ElementCount(leaf.shape).value_or(-1)), leaf.tag,
          leaf.tie_to.has_value(), detail.bytes, detail.since_step,
          detail.digest,
          detail.statistics.has_value() ? detail.statistics->count : 0,
          detail.chunk_count, detail.boxes.size(), detail.stored_bytes,
          absl::ToUnixNanos(entry.begun));
    }
    return told;
  }

  std::mt19937_64 random_{20261125};
};

TEST_F(DiffTest, SaysWhatTheModelSays) {
  Model model;
  for (std::uint64_t i = 0; i < kLeaves; ++i) model[Name(i)] = RandomValue();
  std::vector<Model> models;
  for (const int changes : {0, 1, 0, 5, 200, 3}) {
    Change(&model, changes);
    SaveModel(static_cast<std::int64_t>(models.size()), model);
    models.push_back(model);
  }
  ExpectAllPairs(*store_, *store_, models);
  // Of another store there is nothing to share.
  const absl::StatusOr<Store> reader = Store::Open(path(), ReadOnly());
  ASSERT_OK(reader);
  models.resize(3);
  ExpectAllPairs(*store_, *reader, models);
}

// Of a store at rest a history is read without opening a step; beside a writer,
// and in it, each step is held. All of them say what the model says.
TEST_F(DiffTest, HistoriesSayWhatTheModelSays) {
  constexpr std::uint64_t kFew = 40;
  Model model;
  for (std::uint64_t i = 0; i < kFew; ++i) model[Name(i)] = RandomValue();
  std::map<std::int64_t, Model> models;
  for (std::int64_t step = 0; step < 40; ++step) {
    Change(&model, static_cast<int>(random_() % 8), kFew);
    SaveModel(step, model);
    models[step] = model;
  }
  for (const std::int64_t gone : {0, 7, 8, 39}) {
    ASSERT_OK(store_->Delete(gone));
    models.erase(gone);
  }
  std::map<std::string, Told> told;
  std::size_t entries = 0;
  const absl::StatusOr<Store> beside = Store::Open(path(), ReadOnly());
  ASSERT_OK(beside);
  ASSERT_TRUE(beside->Info().following);
  for (std::uint64_t i = 0; i < kFew + 2; ++i) {
    const std::string name = Name(i);
    SCOPED_TRACE(name);
    told[name] = HistoryIn(*store_, name);
    EXPECT_EQ(told[name].entries, HistoryInModel(models, name));
    EXPECT_EQ(HistoryIn(*beside, name).all, told[name].all);
    entries += told[name].entries.size();
  }
  EXPECT_GT(entries, 3 * kFew);
  store_.reset();
  const absl::StatusOr<Store> at_rest = Store::Open(path(), ReadOnly());
  ASSERT_OK(at_rest);
  ASSERT_FALSE(at_rest->Info().following);
  for (const auto& [name, expected] : told) {
    SCOPED_TRACE(name);
    EXPECT_EQ(HistoryIn(*at_rest, name).all, expected.all);
  }
}

// So many steps and records that several threads read them. Where a step must
// be opened, as one with None, entries come that are in no record.
TEST_F(DiffTest, AHistoryOfManySteps) {
  constexpr std::int64_t kSteps = 2100;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    StepBuilder builder = store_->Begin(step);
    builder.PutInt("changes", step);
    builder.PutInt("stays", 7);
    builder.PutInt("sometimes", step / 3);
    if (step / 3 == 500) {
      builder.PutNode("or_none", EntryKind::kNone);
    } else {
      builder.PutInt("or_none", step);
    }
    // The tree is another one then: what stays has another record.
    if (step < 1600 || step > 1606) builder.PutInt("or_not", 7);
    ASSERT_OK(Commit(std::move(builder)));
  }
  store_.reset();
  const absl::StatusOr<Store> reader = Store::Open(path(), ReadOnly());
  ASSERT_OK(reader);
  ASSERT_OK_AND_ASSIGN(const auto changes, History(*reader, "changes"));
  ASSERT_EQ(changes.size(), static_cast<std::size_t>(kSteps));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const HistoryEntry& entry = changes[static_cast<std::size_t>(step)];
    ASSERT_EQ(entry.first_step, step);
    ASSERT_EQ(entry.last_step, step);
    ASSERT_EQ(entry.leaf.name, "changes");
    ASSERT_EQ(entry.detail.since_step, step);
  }
  ASSERT_OK_AND_ASSIGN(const auto stays, History(*reader, "stays"));
  ASSERT_EQ(stays.size(), 1u);
  EXPECT_EQ(stays[0].steps, static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(stays[0].last_step, kSteps - 1);
  ASSERT_OK_AND_ASSIGN(const auto some, History(*reader, "sometimes"));
  ASSERT_EQ(some.size(), static_cast<std::size_t>(kSteps / 3));
  for (std::int64_t at = 0; at < kSteps / 3; ++at) {
    const HistoryEntry& entry = some[static_cast<std::size_t>(at)];
    ASSERT_EQ(entry.first_step, 3 * at);
    ASSERT_EQ(entry.last_step, 3 * at + 2);
    ASSERT_EQ(entry.steps, 3u);
    ASSERT_EQ(entry.detail.since_step, 3 * at);
  }
  ASSERT_OK_AND_ASSIGN(const auto or_none, History(*reader, "or_none"));
  ASSERT_EQ(or_none.size(), static_cast<std::size_t>(kSteps - 2));
  for (std::int64_t at = 0; at < kSteps - 2; ++at) {
    const HistoryEntry& entry = or_none[static_cast<std::size_t>(at)];
    ASSERT_EQ(entry.first_step, at <= 1500 ? at : at + 2);
    ASSERT_EQ(entry.leaf.kind, at == 1500 ? EntryKind::kNone : EntryKind::kInt);
    ASSERT_EQ(entry.steps, at == 1500 ? 3u : 1u);
  }
  ASSERT_OK_AND_ASSIGN(const auto or_not, History(*reader, "or_not"));
  ASSERT_EQ(or_not.size(), 2u);
  EXPECT_EQ(or_not[0].last_step, 1599);
  EXPECT_EQ(or_not[1].first_step, 1607);
  int asked = 0;
  HistoryOptions stopped;
  stopped.cancelled = [&asked] { return ++asked > 2; };
  EXPECT_THAT(History(*reader, "changes", stopped).status(),
              StatusIs(absl::StatusCode::kCancelled));
}

// What is nothing but leaves: whole pages are passed over.
TEST_F(DiffTest, OnlyLeaves) {
  Model model;
  for (std::uint64_t i = 0; i < kLeaves; ++i) {
    model[Name(i)] = {.number = static_cast<std::int64_t>(i)};
  }
  std::vector<Model> models;
  for (const std::uint64_t changed :
       {0u, 0u, 511u, 512u, 1023u, 1024u, 1699u}) {
    model[Name(changed)].number = -1 - static_cast<std::int64_t>(changed);
    SaveModel(static_cast<std::int64_t>(models.size()), model);
    models.push_back(model);
  }
  model.erase(Name(600));
  model.erase(Name(0));
  SaveModel(static_cast<std::int64_t>(models.size()), model);
  models.push_back(model);
  ExpectAllPairs(*store_, *store_, models);
}

// More than one thread compares at once, and types that no neighbour has.
TEST_F(DiffTest, PiecesOfManyLeaves) {
  constexpr int kMany = 5000;
  const Bytes zeros(200);
  for (const std::int64_t step : {1, 2}) {
    StepBuilder builder = store_->Begin(step);
    for (int i = 0; i < kMany; ++i) {
      Tensor tensor = Uint8s(zeros);
      tensor.shape = {1 + (i * 7 + step) % (i % 3 == 0 ? 190 : 2)};
      tensor.size_bytes = static_cast<std::size_t>(tensor.shape[0]);
      builder.Put(Name(static_cast<std::uint64_t>(i)), std::move(tensor));
    }
    ASSERT_OK(Commit(std::move(builder)));
  }
  const Step before = Restored(AtStep(1));
  const Step after = Restored(AtStep(2));
  ASSERT_OK_AND_ASSIGN(const DiffReport report, Diff(before, after));
  EXPECT_EQ(report.changes.size(), static_cast<std::size_t>(kMany));
  for (const std::size_t leaves : {1u, 1500u, 10000u}) {
    ExpectPieces(before, after, report, leaves);
  }
}

// Its digests do not tell whether an array that is cut otherwise is the same.
TEST_F(DiffTest, ArraysCutOtherwise) {
  const Bytes some = RandomBytes(4 * kChunk, 7);
  Bytes other = some;
  other.back() ^= std::byte{1};
  for (const std::int64_t step : {1, 2}) {
    StepBuilder builder = store_->Begin(step);
    Tensor same = Uint8s(some);
    Tensor changed = Uint8s(step == 1 ? some : other);
    const auto rows = static_cast<std::int64_t>(kChunk) / step;
    same.chunk_shape = changed.chunk_shape = {rows};
    for (const char* const name : {"a", "c"}) builder.Put(name, same);
    builder.Put("b", changed);
    builder.Tie("tied", "a");
    ASSERT_OK(Commit(std::move(builder)));
  }
  const Step before = Restored(AtStep(1));
  const Step after = Restored(AtStep(2));
  ASSERT_OK_AND_ASSIGN(const DiffReport report, Diff(before, after));
  EXPECT_EQ(report.same, 2u);
  ASSERT_EQ(report.changes.size(), 1u);
  EXPECT_EQ(report.changes[0].name, "b");
  for (const std::size_t leaves : {1u, 10u}) {
    ExpectPieces(before, after, report, leaves);
  }
}

// The first leaves are there before the last are read.
TEST_F(DiffTest, PiecesReadNoMoreThanTheyGive) {
  Model model;
  for (std::uint64_t i = 0; i < kLeaves; ++i) {
    model[Name(i)] = {.number = static_cast<std::int64_t>(i)};
  }
  SaveModel(1, model);
  for (auto& [name, value] : model) value.number += 1000;
  SaveModel(2, model);
  const Step before = Restored(AtStep(1));
  const Step after = Restored(AtStep(2));
  internal::DifferencePieces pieces(before, after);
  internal::DifferencePieces::Runs runs;
  ASSERT_OK_AND_ASSIGN(const bool more, pieces.Next(100, &runs));
  EXPECT_TRUE(more);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_GE(runs[0].size(), 100u);
  EXPECT_LT(runs[0].size(), kLeaves / 2);
  EXPECT_EQ(runs[0][0].name, Name(0));
}

// Steps of two parts each, and of one: leaves move from one to the other.
TEST_F(DiffTest, StepsOfSeveralParts) {
  Model model;
  for (std::uint64_t i = 0; i < kLeaves; ++i) model[Name(i)] = RandomValue();
  std::vector<Model> models;
  for (int round = 0; round < 4; ++round) {
    Change(&model, 10 * round);
    const auto step = static_cast<std::int64_t>(models.size());
    if (round == 2) {
      SaveModel(step, model);
      models.push_back(model);
      continue;
    }
    ASSERT_OK_AND_ASSIGN(RankedSave save,
                         RankedSave::Begin(store_->Begin(step), {.world = 2}));
    const absl::StatusOr<Store> rank = Store::Open(path(), ReadOnly());
    ASSERT_OK(rank);
    std::vector<std::string> built;
    for (int part = 0; part < 2; ++part) {
      Model own;
      for (const auto& [name, value] : model) {
        // Ties are where their targets are.
        const std::string& at = value.kind == Kind::kTie ? value.tie_to : name;
        const bool second = at.back() - '0' < 3 + round;
        if (second == (part == 1)) own[name] = value;
      }
      StepBuilder builder = BeginPart(*rank, save.plan(), part);
      std::vector<Bytes> arrays;
      Put(own, &builder, &arrays);
      for (const auto& [name, value] : own) {
        builder.SetPerRank(name.substr(0, name.find('/')));
      }
      absl::StatusOr<std::string> finished = FinishPart(std::move(builder));
      ASSERT_OK(finished);
      built.push_back(*std::move(finished));
    }
    ASSERT_OK(save.Commit(std::move(built)).WaitCommitted(kLong));
    models.push_back(model);
  }
  ExpectAllPairs(*store_, *store_, models);
}

}  // namespace
}  // namespace ckptree::testing
