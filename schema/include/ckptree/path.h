// SPDX-License-Identifier: Apache-2.0

// The typed key path of a leaf or node, its order-preserving encoding and its
// text form.
//
//   ckptree::Path path;
//   path.Key("opt").Index(0).Attribute("mu");
//   path.Text();                               // "opt/[0]/.mu"
//   ckptree::Path::Parse("opt/[0]/.mu");       // The same path.
//   step.Read("opt/[0]/.mu", destination);     // Texts do as well.
//
// A path is typed because the trees of trainers are: the key 1 of a dict, the
// key "1", and the second element of a list are three places.

#ifndef CKPTREE_PATH_H_
#define CKPTREE_PATH_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptree/export.h"

namespace ckptree {

// A dictionary key of any hashable kind. Kinds never compare equal across:
// int 1, bool true, float 1.0 and str "1" are four keys.
struct Key {
  struct None {
    friend auto operator<=>(const None&, const None&) = default;
  };
  struct Bytes {
    std::string value;
    friend auto operator<=>(const Bytes&, const Bytes&) = default;
  };
  using Tuple = std::vector<Key>;

  std::variant<None, bool, std::int64_t, double, std::string, Bytes, Tuple>
      value;

  // Bitwise: a NaN key equals itself, 0.0 and -0.0 differ.
  friend CKPTREE_EXPORT bool operator==(const Key& a, const Key& b);
};

// One step down the tree. ON DISK through the encoding: never renumber.
enum class PartKind : std::uint8_t {
  kDictKey = 1,
  kIndex = 2,      // Position in a list or tuple.
  kAttribute = 3,  // Field of a namedtuple, dataclass, module.
  kFlattened = 4,  // Child of a custom node that names none.
};

struct PathPart {
  PartKind kind = PartKind::kDictKey;
  Key key;  // kDictKey: any. kIndex, kFlattened: int64 >= 0. kAttribute: str.

  friend bool operator==(const PathPart&, const PathPart&) = default;
};

// Value type; thread-compatible.
class CKPTREE_EXPORT Path {
 public:
  Path() = default;
  explicit Path(std::vector<PathPart> parts) : parts_(std::move(parts)) {}

  const std::vector<PathPart>& parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }

  // These append a part and return *this.
  Path& Key(std::string_view name);
  Path& Key(ckptree::Key key);
  Path& Index(std::int64_t index);
  Path& Attribute(std::string_view name);
  Path& Flattened(std::int64_t index);
  Path& Part(PathPart part);

  // Removes the last part. REQUIRES: !empty().
  Path& Up();

  friend bool operator==(const Path&, const Path&) = default;

  // Order-preserving and prefix-preserving: the encoding of a subtree's root is
  // a prefix of every encoding below it, and of nothing else. Byte order of
  // encodings is the order of leaves in a tree: kinds in the order of PartKind;
  // keys by kind (none, bool, int, float, str, bytes, tuple), then by value
  // (ints and floats numerically, str and bytes bytewise, tuples element by
  // element).
  std::string Encode() const;

  // kInvalidArgument, naming the fault, unless Encode() of the result would
  // give exactly `bytes`, at most 4 KiB and 256 parts.
  static absl::StatusOr<Path> Decode(std::string_view bytes);

  // The canonical text form, unambiguous: parts joined by '/'. A str key stands
  // bare when it matches [A-Za-z0-9_-][A-Za-z0-9_.-]*, else JSON-quoted; other
  // keys stand in braces: {3} {true} {null} {1.5} {b"\x00"} {(1,"a")}; [3] is
  // an index, .name an attribute (JSON-quoted after the dot when not bare or
  // where it has a dot), <3> a flattened index. Control characters never
  // appear.
  std::string Text() const;

  // Parses the canonical form, and JAX's keystr form (['a'][0].mu). An empty
  // text is the empty path. kInvalidArgument with the offset of the fault.
  static absl::StatusOr<Path> Parse(std::string_view text);

  // kInvalidArgument where the path breaks a limit (depth, encoded size), an
  // index is negative, a str is not UTF-8 or a part is of the wrong type.
  absl::Status Validate() const;

 private:
  // Returns the key of the new part.
  ckptree::Key& Append(PartKind kind);

  std::vector<PathPart> parts_;
};

// A path as an argument: a Path, or its text form ("params/dense/kernel"),
// which is parsed when it is used. Refers to what it was made from: a type for
// parameters, never for members.
class CKPTREE_EXPORT PathRef {
 public:
  // Each converts. NOLINTBEGIN
  PathRef(const Path& path) : path_(&path) {}
  PathRef(std::string_view text) : text_(text) {}
  PathRef(const std::string& text) : text_(text) {}
  PathRef(const char* text) : text_(text) {}
  // NOLINTEND

  // The path: that which was given, or `*parsed`, made from the text.
  // kInvalidArgument quotes the text and says what is wrong with it.
  absl::StatusOr<const Path*> Get(std::optional<Path>* parsed) const;

 private:
  const Path* path_ = nullptr;  // Null: `text_`.
  std::string_view text_;
};

// True where `text` (a canonical text form) matches the glob `pattern`:
// '*' any run within one part, '**' any run of parts (also none), '?' one
// character, [abc] is NOT a class (it is an index part). An empty pattern and
// "**" match everything; a pattern that names a subtree matches all below it.
// "re:EXPR" is an ECMAScript regular expression, without references back and of
// at most 4 KiB, searched in the text; false where EXPR does not parse
// (check with ValidateGlob first).
CKPTREE_EXPORT bool MatchesGlob(std::string_view pattern,
                                std::string_view text);
CKPTREE_EXPORT absl::Status ValidateGlob(std::string_view pattern);

}  // namespace ckptree

#endif  // CKPTREE_PATH_H_
