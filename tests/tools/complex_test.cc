// SPDX-License-Identifier: Apache-2.0

// What the command says of complex arrays, against sums made here.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/tools/command_runner.h"

namespace ckptree {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::size_t kElements = 500;

struct Expected {
  double max_abs = 0, relative = 0;
  std::uint64_t changed = 0;
  std::uint64_t nan[2] = {}, inf[2] = {};
};

template <typename Part>
using Values = std::vector<std::complex<Part>>;

// Part by part, without the arithmetic of complex numbers.
template <typename Part>
Expected Compare(const Values<Part>& a, const Values<Part>& b) {
  Expected expected;
  double apart_squares = 0, squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double parts[2][2] = {{a[i].real(), a[i].imag()},
                                {b[i].real(), b[i].imag()}};
    bool finite = true;
    for (int side = 0; side < 2; ++side) {
      for (const double part : parts[side]) {
        expected.nan[side] += std::isnan(part) ? 1 : 0;
        expected.inf[side] += std::isinf(part) ? 1 : 0;
        finite = finite && std::isfinite(part);
      }
    }
    const bool same = a[i] == b[i];  // No NaN is on both sides.
    expected.changed += same ? 0 : 1;
    if (!finite) continue;
    double square = 0;
    for (int part = 0; part < 2; ++part) {
      square += std::pow(parts[1][part] - parts[0][part], 2);
      squares += std::pow(parts[0][part], 2);
    }
    apart_squares += square;
    expected.max_abs = std::max(expected.max_abs, std::sqrt(square));
  }
  expected.relative = std::sqrt(apart_squares / squares);
  return expected;
}

class ComplexTest : public CommandRunner {
 protected:
  template <typename Part>
  void Save(Store* store, std::int64_t step, DType dtype,
            const Values<Part>& values) {
    StepBuilder builder = store->Begin(step);
    builder.Put("z",
                {.dtype = dtype, .shape = {20, 25}, .data = values.data()});
    ASSERT_OK(std::move(builder).Commit().WaitCommitted(absl::Minutes(1)));
  }

  template <typename Part>
  void Check(DType dtype, const std::string& name) {
    SCOPED_TRACE(name);
    constexpr Part kNan = std::numeric_limits<Part>::quiet_NaN();
    constexpr Part kInf = std::numeric_limits<Part>::infinity();
    std::mt19937 chance(7);
    std::uniform_real_distribution<Part> part(1, 2);
    Values<Part> a(kElements), b;
    for (auto& z : a) z = {part(chance), -part(chance)};
    b = a;
    for (std::size_t i = 0; i < kElements; i += 3) {
      b[i] = {b[i].real(), part(chance)};
    }
    a[4] = {kNan, 1};
    a[5] = {1, kInf};
    b[6] = {kNan, kNan};
    b[7] = {kNan, -kInf};
    const std::string folder = scratch_ / name;
    {
      ASSERT_OK_AND_ASSIGN(Store store,
                           Store::Open(folder, {.create_if_missing = true}));
      Save(&store, 1, dtype, a);
      Save(&store, 2, dtype, b);
      ASSERT_OK(store.Close());
    }
    const auto in = [&](std::vector<std::string> words) {
      words.insert(words.begin(), {"-C", folder});
      return Run(std::move(words));
    };
    std::vector<std::string> revs[2] = {{"1"}, {"2"}};
    for (int side = 0; side < 2; ++side) {
      const std::string file = folder + revs[side][0] + ".npz";
      ASSERT_EQ(in({"export", revs[side][0], file}).code, 0);
      revs[side].push_back(file);
    }
    const Expected expected = Compare(a, b);
    for (const std::string& first : revs[0]) {
      for (const std::string& second : revs[1]) {
        SCOPED_TRACE(first + " " + second);
        const Result result = in({"diff", first, second, "--values", "--json"});
        ASSERT_EQ(result.code, 1) << result.err;
        const json change = json::parse(result.out)["changes"][0];
        EXPECT_NEAR(change["max_abs"], expected.max_abs, 1e-12);
        EXPECT_NEAR(change["relative"], expected.relative, 1e-12);
        EXPECT_EQ(change["changed_elements"], expected.changed);
        EXPECT_EQ(change["nan_before"], expected.nan[0]);
        EXPECT_EQ(change["nan_after"], expected.nan[1]);
        EXPECT_EQ(change["inf_before"], expected.inf[0]);
        EXPECT_EQ(change["inf_after"], expected.inf[1]);
      }
    }
    // The numbers of parts, in every verb that counts.
    const auto count_of = [](const json& document) {
      return document["arrays"][0]["count"];
    };
    const json stat = json::parse(in({"stat", "--json"}).out);
    EXPECT_EQ(count_of(stat), 2 * kElements);
    EXPECT_EQ(stat["totals"][name]["elements"], 2 * kElements);
    EXPECT_THAT(in({"stat"}).out, HasSubstr("1 array, 1000 elements"));
    EXPECT_EQ(count_of(json::parse(in({"stat", revs[1][1], "--json"}).out)),
              2 * kElements);
    EXPECT_EQ(json::parse(in({"show", revs[1][1], "--json"}).out)["elements"],
              2 * kElements);
    EXPECT_EQ(
        json::parse(
            in({"ls", "--depth", "1", "--json"}).out)["leaves"][0]["elements"],
        2 * kElements);
    EXPECT_EQ(in({"sql", "select count, nan, inf from stats where step=2", "-o",
                  "csv", "--no-header"})
                  .out,
              "1000,3,1\n");
    EXPECT_EQ(in({"find", "count==1000 and nan==3", "-o", "csv", "--columns",
                  "key,first,last", "--no-header"})
                  .out,
              "z,2,2\n");
    EXPECT_EQ(in({"hist", "z"}).code, 2);
  }
};

TEST_F(ComplexTest, DistancesAndCounts) {
  Check<float>(DType::kComplex64, "complex64");
  Check<double>(DType::kComplex128, "complex128");
}

}  // namespace
}  // namespace ckptree
