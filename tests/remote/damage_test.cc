// SPDX-License-Identifier: Apache-2.0

// Each object of a store in an object store, damaged in each way: who reads it
// gets what was saved, or an error that says what is wrong; never other bytes,
// and never silently less.

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ckptree/ckptree.h"
#include "gtest/gtest.h"
#include "kv/object_store.h"
#include "tests/core/fixture.h"
#include "tests/fault/random.h"
#include "tests/fault/scale.h"
#include "tests/objects/fixture.h"
#include "tests/remote/fixture.h"
#include "tests/remote/trainer.h"
#include "tests/testutil/temp_dir.h"

namespace ckptree::testing {
namespace {

namespace fs = std::filesystem;

class TextSource : public kv::ObjectSource {
 public:
  explicit TextSource(const std::string& text) : text_(text) {}
  std::uint64_t size() const override { return text_.size(); }
  absl::Status Read(std::uint64_t offset,
                    std::span<std::byte> into) const override {
    text_.copy(reinterpret_cast<char*>(into.data()), into.size(), offset);
    return absl::OkStatus();
  }

 private:
  const std::string text_;
};

class RemoteDamageTest : public ObjectStoreTest {
 protected:
  void SetUp() override {
    UseServers();
    ObjectStoreTest::SetUp();
    StoreOptions options = QuietOptions();
    options.remote = Address();
    absl::StatusOr<Store> store = Store::Open(disks_ / "disk", options);
    ASSERT_TRUE(store.ok()) << store.status();
    for (std::int64_t step = 1; step <= 4; ++step) {
      ASSERT_TRUE(StartStep(*store, step).WaitCommitted(kLong).ok());
      ASSERT_TRUE(store->WaitReplicated(kLong).ok());
      told_.asked.insert(step);
      told_.acknowledged.insert(step);
    }
    ASSERT_TRUE(store->Close().ok());
    for (const std::string& name : List("")) {
      objects_[name] = Read(name, 0, std::size_t{4} << 20);
    }
  }
  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(store_->Put(name, TextSource(bytes), Soon()).ok()) << name;
  }
  std::string Judge() {
    const std::string cache = disks_ / "cache";
    const std::string wrong = RemoteFault(Address(), told_, cache);
    fs::remove_all(cache);
    return wrong;
  }

  TempDir disks_;
  Told told_;
  std::map<std::string, std::string> objects_;
};

// What a caller gets that is no error.
bool Silent(const std::string& wrong) {
  for (const char* bad : {"other bytes", "is lost", "nobody saved"}) {
    if (absl::StrContains(wrong, bad)) return true;
  }
  return false;
}

TEST_F(RemoteDamageTest, IsFoundOrDoesNotMatter) {
  ASSERT_EQ(Judge(), "");
  ASSERT_GE(objects_.size(), 7);
  for (const char* kind : {"/segment/", "/commit/", "/index/"}) {
    int found = 0;
    for (const auto& [name, bytes] : objects_) {
      found += absl::StrContains(name, kind);
    }
    ASSERT_GT(found, 0) << kind;
  }
  FaultRandom random(TrialSeed());
  const int flips = StoreKind() == "file" ? Scaled(10) : ScaledWithServers(10);
  int trials = 0, refused = 0, unharmed = 0, silent = 0;
  std::string newest;
  for (const auto& [name, bytes] : objects_) {
    if (absl::StrContains(name, "/commit/")) newest = name;
  }
  const auto look = [&](const std::string& what) {
    ++trials;
    const std::string wrong = Judge();
    if (wrong.empty()) {
      ++unharmed;
    } else if (Silent(wrong)) {
      ++silent;
      ADD_FAILURE() << what << ": " << wrong;
    } else {
      ++refused;
    }
  };
  for (const auto& [name, bytes] : objects_) {
    for (int i = 0; i < flips; ++i) {
      std::string other = bytes;
      other[random.Below(bytes.size())] ^=
          static_cast<char>(1 << random.Below(8));
      Write(name, other);
      look(absl::StrCat("a bit of ", name));
    }
    Write(name, bytes.substr(0, random.Below(bytes.size())));
    look(absl::StrCat("half of ", name));
    Write(name, bytes + "x");
    look(absl::StrCat("more than ", name));
    // Of the same kind, where there is one.
    for (const auto& [other, others] : objects_) {
      if (other == name || others == bytes ||
          other.substr(0, other.rfind('/')) !=
              name.substr(0, name.rfind('/'))) {
        continue;
      }
      Write(name, others);
      look(absl::StrCat(other, " as ", name));
      break;
    }
    // Nothing tells a chain whose end was taken away from a shorter one.
    if (name != newest) {
      const std::vector<std::string> names = {name};
      ASSERT_TRUE(store_->Delete(names, Soon()).ok());
      look(absl::StrCat("without ", name));
    }
    Write(name, bytes);
  }
  EXPECT_EQ(Judge(), "");
  EXPECT_GT(refused, 0);
  absl::PrintF(
      "trial remote, %s, %d objects damaged: %d trials, %d fired, %d lost (%d "
      "refused by name, %d did not matter)\n",
      StoreKind(), objects_.size(), trials, trials, silent, refused, unharmed);
}

}  // namespace
}  // namespace ckptree::testing
