// SPDX-License-Identifier: Apache-2.0

#include "tools/output/expression_parse.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "ckptree/path.h"
#include "tools/output/failure.h"
#include "tools/output/terminal.h"

namespace ckptree::tools {
namespace {

using Node = ExpressionNode;
using NodePtr = std::shared_ptr<Node>;
using Kind = Node::Kind;

// Deeper than anybody writes, and far from the end of the stack.
constexpr int kMostDepth = 100;
constexpr std::size_t kMostConditionBytes = 4 << 10;

struct Token {
  enum class Type { kEnd, kNumber, kText, kName, kSign };
  Type type = Type::kEnd;
  std::size_t at = 0;
  std::string text = {};  // Of a sign or a name; the text itself.
  nlohmann::ordered_json value = {};
  bool quoted = false;
};

constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {
    {{"B", 1.0},
     {"KiB", 1024.0},
     {"MiB", 1048576.0},
     {"GiB", 1073741824.0},
     {"TiB", 1099511627776.0},
     {"kB", 1e3},
     {"MB", 1e6},
     {"GB", 1e9},
     {"TB", 1e12}}};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<Token>> Run() {
    std::vector<Token> tokens;
    while (true) {
      while (at_ < text_.size() && absl::ascii_isspace(Byte(at_))) ++at_;
      Token token;
      token.at = at_;
      if (at_ == text_.size()) {
        tokens.push_back(token);
        return tokens;
      }
      absl::Status status = Take(&token);
      if (!status.ok()) return status;
      tokens.push_back(std::move(token));
    }
  }

 private:
  unsigned char Byte(std::size_t i) const {
    return static_cast<unsigned char>(text_[i]);
  }
  static bool InName(unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c >= 0x80;
  }

  absl::Status Take(Token* token) {
    const unsigned char c = Byte(at_);
    const bool number =
        absl::ascii_isdigit(c) || (c == '.' && at_ + 1 < text_.size() &&
                                   absl::ascii_isdigit(Byte(at_ + 1)));
    if (number) return TakeNumber(token);
    if (c == '"' || c == '\'' || c == '`') return TakeQuoted(token);
    if (InName(c)) {
      const std::size_t start = at_;
      while (at_ < text_.size() && InName(Byte(at_))) ++at_;
      token->type = Token::Type::kName;
      token->text = std::string(text_.substr(start, at_ - start));
      return absl::OkStatus();
    }
    token->type = Token::Type::kSign;
    for (const std::string_view sign :
         {"&&", "||", "<=", ">=", "==", "!=", "!~", "<", ">", "=",
          "~",  "!",  "(",  ")",  "[",  "]",  "+",  "-", "*", "/"}) {
      if (!text_.substr(at_).starts_with(sign)) continue;
      token->text = std::string(sign);
      at_ += sign.size();
      return absl::OkStatus();
    }
    if (c == '&' || c == '|') {
      return ErrorAt(text_, at_,
                     c == '&' ? "write `and` or && for `both hold`"
                              : "write `or` or || for `one of them holds`");
    }
    return ErrorAt(text_, at_,
                   "this sign means nothing here; a text or a name with such "
                   "signs stands in quotes: key=='a b', `a b`<2");
  }

  absl::Status TakeNumber(Token* token) {
    const std::size_t start = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && absl::ascii_isdigit(Byte(at_))) ++at_;
    };
    digits();
    bool whole = true;
    if (at_ < text_.size() && text_[at_] == '.') {
      whole = false;
      ++at_;
      digits();
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      std::size_t digit = at_ + 1;
      if (digit < text_.size() &&
          (text_[digit] == '-' || text_[digit] == '+')) {
        ++digit;
      }
      if (digit < text_.size() && absl::ascii_isdigit(Byte(digit))) {
        whole = false;
        at_ = digit;
        digits();
      }
    }
    const std::string number(text_.substr(start, at_ - start));
    const std::size_t unit_at = at_;
    while (at_ < text_.size() && InName(Byte(at_))) ++at_;
    const std::string_view unit = text_.substr(unit_at, at_ - unit_at);
    double factor = 1;
    if (!unit.empty()) {
      const auto known =
          std::find_if(kUnits.begin(), kUnits.end(),
                       [&](const auto& entry) { return entry.first == unit; });
      if (known == kUnits.end()) {
        return ErrorAt(text_, unit_at,
                       "no unit of a number: B, KiB, MiB, GiB, TiB, kB, MB, GB "
                       "or TB");
      }
      factor = known->second;
    }
    token->type = Token::Type::kNumber;
    std::int64_t integer = 0;
    std::uint64_t large = 0;
    double value = 0;
    if (whole && unit.empty() && absl::SimpleAtoi(number, &integer)) {
      token->value = integer;
    } else if (whole && unit.empty() && absl::SimpleAtoi(number, &large)) {
      token->value = large;
    } else if (absl::SimpleAtod(number, &value)) {
      token->value = value * factor;
    } else {
      return ErrorAt(text_, start, "this is no number");
    }
    return absl::OkStatus();
  }

  // A quote inside is written twice.
  absl::Status TakeQuoted(Token* token) {
    const std::size_t start = at_;
    const char quote = text_[at_++];
    while (true) {
      if (at_ == text_.size()) {
        return ErrorAt(text_, start, "this quote has no end");
      }
      if (text_[at_] == quote) {
        if (at_ + 1 == text_.size() || text_[at_ + 1] != quote) break;
        ++at_;
      }
      token->text += text_[at_++];
    }
    ++at_;
    token->quoted = quote == '`';
    token->type = token->quoted ? Token::Type::kName : Token::Type::kText;
    if (token->quoted && token->text.empty()) {
      return ErrorAt(text_, start, "this name is empty");
    }
    if (!token->quoted) token->value = token->text;
    return absl::OkStatus();
  }

  const std::string_view text_;
  std::size_t at_ = 0;
};

class Parser {
 public:
  Parser(std::shared_ptr<const std::string> text, std::vector<Token> tokens)
      : text_(std::move(text)), tokens_(std::move(tokens)) {}

  absl::StatusOr<NodePtr> Run() {
    absl::StatusOr<NodePtr> root = Or();
    if (!root.ok()) return root;
    if (Now().type == Token::Type::kEnd) return root;
    return Error(Now().text == ")" ? "no parenthesis was opened for this one"
                                   : "`and` or `or` is missing before this");
  }

 private:
  const Token& Now() const { return tokens_[next_]; }
  bool Is(std::string_view sign) const {
    return Now().type == Token::Type::kSign && Now().text == sign;
  }
  bool IsWord(std::string_view word) const {
    return Now().type == Token::Type::kName && !Now().quoted &&
           Now().text == word;
  }
  absl::Status Error(std::string_view what) const {
    return ErrorAt(*text_, Now().at, what);
  }
  NodePtr Make(Kind kind, std::size_t at, std::vector<NodePtr> operands) {
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->text = text_;
    node->at = at;
    node->operands = std::move(operands);
    return node;
  }

  // `next` joined by `kind` where `joins` finds a sign of it.
  template <typename Joins>
  absl::StatusOr<NodePtr> Chain(absl::StatusOr<NodePtr> (Parser::*next)(),
                                Joins joins) {
    absl::StatusOr<NodePtr> left = (this->*next)();
    while (left.ok()) {
      const std::optional<Kind> kind = joins();
      if (!kind) return left;
      const std::size_t at = Now().at;
      ++next_;
      absl::StatusOr<NodePtr> right = (this->*next)();
      if (!right.ok()) return right;
      left = Make(*kind, at, {*std::move(left), *std::move(right)});
    }
    return left;
  }

  absl::StatusOr<NodePtr> Or() {
    return Chain(&Parser::And, [&]() -> std::optional<Kind> {
      if (IsWord("or") || Is("||")) return Kind::kOr;
      return std::nullopt;
    });
  }
  absl::StatusOr<NodePtr> And() {
    return Chain(&Parser::Not, [&]() -> std::optional<Kind> {
      if (IsWord("and") || Is("&&")) return Kind::kAnd;
      return std::nullopt;
    });
  }

  absl::StatusOr<NodePtr> Not() {
    if (!IsWord("not") && !Is("!")) return Comparison();
    if (++depth_ > kMostDepth) return Error("nested too deeply");
    const std::size_t at = Now().at;
    ++next_;
    absl::StatusOr<NodePtr> operand = Not();
    --depth_;
    if (!operand.ok()) return operand;
    return Make(Kind::kNot, at, {*std::move(operand)});
  }

  std::optional<Kind> Operator() const {
    if (Now().type != Token::Type::kSign) return std::nullopt;
    for (const auto& [sign, kind] :
         {std::pair<std::string_view, Kind>{"<", Kind::kLess},
          {"<=", Kind::kLessEqual},
          {">", Kind::kGreater},
          {">=", Kind::kGreaterEqual},
          {"==", Kind::kEqual},
          {"=", Kind::kEqual},
          {"!=", Kind::kUnequal},
          {"~", Kind::kMatches},
          {"!~", Kind::kMatchesNot}}) {
      if (Now().text == sign) return kind;
    }
    return std::nullopt;
  }

  absl::StatusOr<NodePtr> Comparison() {
    absl::StatusOr<NodePtr> left = Sum();
    if (!left.ok()) return left;
    const std::optional<Kind> kind = Operator();
    if (!kind) return left;
    const std::size_t at = Now().at;
    ++next_;
    absl::StatusOr<NodePtr> right = Sum();
    if (!right.ok()) return right;
    if (Operator()) {
      return Error("one comparison after another: join them by `and`");
    }
    Node* alone = right->get();
    if (alone->kind == Kind::kNegate) alone = alone->operands[0].get();
    if (alone->kind == Kind::kName) alone->right = true;
    const bool matches = *kind == Kind::kMatches || *kind == Kind::kMatchesNot;
    if (matches && (*right)->kind == Kind::kLiteral) {
      const nlohmann::ordered_json& glob = (*right)->literal;
      if (!glob.is_string()) {
        return ErrorAt(*text_, (*right)->at,
                       "a pattern is a text: key~'params/**'");
      }
      const absl::Status valid = ValidateGlob(glob.get<std::string>());
      if (!valid.ok()) {
        return ErrorAt(*text_, (*right)->at, std::string(valid.message()));
      }
    }
    return Make(*kind, at, {*std::move(left), *std::move(right)});
  }

  absl::StatusOr<NodePtr> Sum() {
    return Chain(&Parser::Product, [&]() -> std::optional<Kind> {
      if (Is("+")) return Kind::kAdd;
      if (Is("-")) return Kind::kSubtract;
      return std::nullopt;
    });
  }
  absl::StatusOr<NodePtr> Product() {
    return Chain(&Parser::Unary, [&]() -> std::optional<Kind> {
      if (Is("*")) return Kind::kMultiply;
      if (Is("/")) return Kind::kDivide;
      return std::nullopt;
    });
  }

  absl::StatusOr<NodePtr> Unary() {
    if (!Is("-")) return Primary();
    if (++depth_ > kMostDepth) return Error("nested too deeply");
    const std::size_t at = Now().at;
    ++next_;
    absl::StatusOr<NodePtr> operand = Unary();
    --depth_;
    if (!operand.ok()) return operand;
    return Make(Kind::kNegate, at, {*std::move(operand)});
  }

  absl::StatusOr<NodePtr> Primary() {
    const Token token = Now();
    if (Is("(")) {
      if (++depth_ > kMostDepth) return Error("nested too deeply");
      ++next_;
      absl::StatusOr<NodePtr> inner = Or();
      --depth_;
      if (!inner.ok()) return inner;
      if (!Is(")")) {
        return ErrorAt(*text_, token.at, "this parenthesis is not closed");
      }
      ++next_;
      return inner;
    }
    NodePtr node = Make(Kind::kLiteral, token.at, {});
    switch (token.type) {
      case Token::Type::kNumber:
      case Token::Type::kText:
        node->literal = token.value;
        ++next_;
        return node;
      case Token::Type::kName:
        break;
      case Token::Type::kEnd:
        return Error("something is missing here");
      case Token::Type::kSign:
        return Error("a name or a value is missing before this");
    }
    const bool plain = !token.quoted;
    if (plain &&
        (token.text == "and" || token.text == "or" || token.text == "not")) {
      return Error("a condition is missing before this");
    }
    ++next_;
    if (plain && (token.text == "true" || token.text == "false")) {
      node->literal = token.text == "true";
      return node;
    }
    node->kind = Kind::kName;
    node->name = token.text;
    node->quoted = token.quoted;
    if (!Is("[")) return node;
    ++next_;
    const bool negative = Is("-");
    if (negative) ++next_;
    if (Now().type != Token::Type::kNumber ||
        !Now().value.is_number_integer()) {
      return Error("a whole number stands in brackets: shape[0]");
    }
    const auto index = Now().value.get<std::int64_t>();
    ++next_;
    if (!Is("]")) return Error("`]` is missing here");
    ++next_;
    NodePtr member = Make(Kind::kMember, token.at, {std::move(node)});
    member->index = negative ? -index : index;
    return member;
  }

  const std::shared_ptr<const std::string> text_;
  const std::vector<Token> tokens_;
  std::size_t next_ = 0;
  int depth_ = 0;
};

}  // namespace

absl::Status ErrorAt(std::string_view text, std::size_t at,
                     std::string_view what) {
  // Of a long text what is around the place.
  constexpr std::size_t kAround = 60;
  std::size_t begin = at > kAround ? at - kAround : 0;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80)
    --begin;
  std::size_t end = std::min(text.size(), at + kAround);
  while (end < text.size() &&
         (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    ++end;
  const std::string head =
      (begin > 0 ? "..." : "") + Escape(text.substr(begin, at - begin));
  const std::string tail =
      Escape(text.substr(at, end - at)) + (end < text.size() ? "..." : "");
  return WithPlace(
      absl::InvalidArgumentError(
          absl::StrFormat("the condition is wrong: %s", what)),
      absl::StrFormat("  %s%s\n  %*s^", head, tail, DisplayWidth(head), ""));
}

absl::StatusOr<NodePtr> ParseExpression(std::string_view text) {
  if (text.size() > kMostConditionBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a condition of %d bytes: at most %d", text.size(),
                        kMostConditionBytes));
  }
  absl::StatusOr<std::vector<Token>> tokens = Lexer(text).Run();
  if (!tokens.ok()) return tokens.status();
  return Parser(std::make_shared<const std::string>(text), *std::move(tokens))
      .Run();
}

}  // namespace ckptree::tools
