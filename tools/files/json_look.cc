// SPDX-License-Identifier: Apache-2.0

#include "tools/files/json_look.h"

#include <set>
#include <utility>

namespace ckptree::tools {
namespace {

// A callback of parse() could say that, too, but takes time by the square of
// the number of names.
class Look final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Look(int most_depth) : most_depth_(most_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.name = name;
    if (level.names.insert(name).second || twice_) return true;
    twice_.emplace();
    for (const Level& one : levels_) twice_->push_back(one.name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception&) override {
    return false;
  }

  std::optional<std::vector<std::string>>& twice() { return twice_; }

 private:
  struct Level {
    std::string name;  // The last; of a list "".
    std::set<std::string> names;
  };

  bool Enter() {
    levels_.emplace_back();
    return static_cast<int>(levels_.size()) <= most_depth_;
  }
  bool Leave() {
    levels_.pop_back();
    return true;
  }

  const int most_depth_;
  std::vector<Level> levels_;
  std::optional<std::vector<std::string>> twice_;
};

}  // namespace

ForeignJson ParseForeignJson(std::string_view text, int most_depth) {
  Look look(most_depth);
  ForeignJson seen;
  if (nlohmann::json::sax_parse(text, &look)) {
    seen.value = nlohmann::json::parse(text);
  }
  seen.twice = std::move(look.twice());
  return seen;
}

std::string TextOf(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', /*ensure_ascii=*/true);
}

}  // namespace ckptree::tools
