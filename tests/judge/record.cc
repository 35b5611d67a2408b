// SPDX-License-Identifier: Apache-2.0

#include "tests/judge/record.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptree::testing {
namespace {

using Kind = Lack::Kind;

class Reader {
 public:
  Reader(const Store& store, const Acknowledged& acknowledged, const Told& told)
      : store_(store), known_(acknowledged), told_(told) {}

  std::vector<Lack> Run() {
    ReadBranches();
    for (const std::int64_t branch : known_.state.branches) {
      ReadSteps(branch);
      ReadLatest(branch);
      ReadOfBranch(branch);
    }
    ReadTags();
    for (const std::int64_t key : listed_) {
      ReadStep(key, *known_.state.steps.at(key));
    }
    return std::move(lacks_);
  }

 private:
  void Add(Kind kind, std::int64_t key, const std::string& leaf,
           std::string text) {
    Lack lack = {
        .kind = kind, .key = key, .leaf = leaf, .text = std::move(text)};
    if (key == Lack::kOfStore) {
      lack.text = absl::StrCat("store: ", lack.text);
    } else {
      lack.text = absl::StrCat("step ", StepName(key), leaf.empty() ? "" : ", ",
                               leaf, ": ", lack.text);
    }
    lack.named = told_(key, leaf);
    lacks_.push_back(std::move(lack));
  }

  // `error` is what the caller of a read was given: it has to say of what.
  void Fail(std::int64_t key, const std::string& leaf, const std::string& what,
            const absl::Status& error) {
    Add(Kind::kGone, key, leaf,
        absl::StrCat(what, what.empty() ? "" : ": ", error.ToString()));
    const std::string message(error.message());
    if (key == Lack::kOfStore || NamesIt(message, key, leaf)) {
      lacks_.back().named = true;
    }
  }

  void ReadBranches() {
    const absl::StatusOr<std::vector<BranchInfo>> branches = store_.Branches();
    if (!branches.ok()) {
      Fail(Lack::kOfStore, "", "Branches()", branches.status());
      return;
    }
    std::set<std::int64_t> left = known_.state.branches;
    for (const BranchInfo& branch : *branches) {
      const std::int64_t number = BranchNumber(branch.name);
      if (left.erase(number) == 0) {
        Add(Kind::kExtra, Lack::kOfStore, "", "branch " + branch.name);
        continue;
      }
      const auto origin = known_.origins.find(number);
      if (origin == known_.origins.end()) continue;
      const std::int64_t from =
          BranchNumber(branch.origin_branch == "?" ? ""
                                                   : branch.origin_branch) *
              kBranchSteps +
          branch.origin_step;
      if (branch.origin_branch == "?" || from != origin->second) {
        Add(Kind::kGone, Lack::kOfStore, "",
            absl::StrFormat("%s has lost its origin, %s", branch.name,
                            StepName(origin->second)));
      }
    }
    for (const std::int64_t branch : left) {
      Add(Kind::kGone, Lack::kOfStore, "", "no branch " + BranchName(branch));
    }
  }

  void ReadSteps(std::int64_t branch) {
    const auto steps = store_.Steps(BranchName(branch));
    std::set<std::int64_t> left;
    for (const auto& [key, content] : known_.state.steps) {
      if (key / kBranchSteps == branch) left.insert(key);
    }
    if (!steps.ok()) {
      Fail(Lack::kOfStore, "", "Steps()", steps.status());
      listed_.insert(left.begin(), left.end());
      return;
    }
    for (const StepInfo& info : *steps) {
      const std::int64_t key = branch * kBranchSteps + info.step;
      if (left.erase(key) == 0) {
        Add(Kind::kExtra, key, "", "listed");
        continue;
      }
      listed_.insert(key);
      if (info.pinned != known_.state.pins.contains(key)) {
        Add(info.pinned ? Kind::kExtra : Kind::kGone, key, "", "its pin");
      }
    }
    for (const std::int64_t key : left) Add(Kind::kGone, key, "", "not listed");
  }

  void ReadLatest(std::int64_t branch) {
    const std::optional<std::int64_t> latest = known_.Latest(branch);
    if (!latest) return;
    StepSelector selector = Latest();
    selector.branch = BranchName(branch);
    const absl::StatusOr<StepInfo> found = store_.Resolve(selector);
    if (!found.ok()) {
      Fail(*latest, "", "latest", found.status());
    } else if (branch * kBranchSteps + found->step != *latest) {
      Add(found->step < *latest % kBranchSteps ? Kind::kOlder : Kind::kExtra,
          *latest, "", absl::StrFormat("latest is %d", found->step));
    }
  }

  void ReadOfBranch(std::int64_t branch) {
    const absl::StatusOr<PolicyInfo> policy = store_.Policy(BranchName(branch));
    const auto expected = known_.policies.find(branch);
    if (!policy.ok()) {
      Fail(Lack::kOfStore, "", "Policy()", policy.status());
    } else if (expected != known_.policies.end() &&
               policy->text != expected->second) {
      Add(policy->text.empty() ? Kind::kGone : Kind::kWrong, Lack::kOfStore, "",
          absl::StrFormat("policy of branch %d: '%s', not '%s'", branch,
                          policy->text, expected->second));
    }
    const absl::StatusOr<std::string> text =
        store_.Metadata(BranchName(branch));
    const auto json = known_.metadata.find(branch);
    if (!text.ok()) {
      Fail(Lack::kOfStore, "", "Metadata()", text.status());
    } else if (*text != (json == known_.metadata.end() ? "" : json->second)) {
      Add(text->empty() ? Kind::kGone : Kind::kWrong, Lack::kOfStore, "",
          absl::StrFormat("metadata of branch %d", branch));
    }
  }

  void ReadTags() {
    const absl::StatusOr<std::vector<TagInfo>> tags = store_.Tags();
    if (!tags.ok()) {
      Fail(Lack::kOfStore, "", "Tags()", tags.status());
      return;
    }
    std::map<std::string, std::int64_t> left = known_.state.tags;
    for (const TagInfo& tag : *tags) {
      const std::int64_t key =
          BranchNumber(tag.branch) * kBranchSteps + tag.step;
      const auto expected = left.find(tag.name);
      if (expected == left.end()) {
        Add(Kind::kExtra, key, "", "tag " + tag.name);
        continue;
      }
      if (expected->second != key) {
        Add(Kind::kWrong, expected->second, "",
            absl::StrFormat("tag %s is at %s", tag.name, StepName(key)));
      }
      left.erase(expected);
    }
    for (const auto& [name, key] : left) {
      Add(Kind::kGone, key, "", "tag " + name);
    }
  }

  void ReadStep(std::int64_t key, const ModelStep& content) {
    const absl::StatusOr<Step> step = store_.OpenStep(SelectorOf(key));
    if (!step.ok()) {
      Fail(key, "", "Restore()", step.status());
      return;
    }
    const StepInfo& info = step->info();
    const std::map<std::string, double> metrics(info.metrics.begin(),
                                                info.metrics.end());
    if (metrics != content.metrics) {
      Add(metrics.empty() ? Kind::kGone : Kind::kWrong, key, "", "its metrics");
    }
    // A recovery adds to the note of a step that it has only a part of.
    if (info.note.find(content.note) == std::string::npos) {
      Add(info.note.empty() ? Kind::kGone : Kind::kWrong, key, "", "its note");
    }
    const absl::StatusOr<StepMetadata> metadata = step->Metadata();
    if (!metadata.ok()) {
      Fail(key, "", "Metadata()", metadata.status());
    } else if (metadata->custom != content.custom) {
      Add(metadata->custom.empty() ? Kind::kGone : Kind::kWrong, key, "",
          "its custom metadata");
    }
    ReadLeaves(key, *step, content);
  }

  void ReadLeaves(std::int64_t key, const Step& step,
                  const ModelStep& content) {
    const absl::StatusOr<std::vector<LeafInfo>> leaves = step.Leaves();
    if (!leaves.ok()) {
      Fail(key, "", "Leaves()", leaves.status());
      return;
    }
    std::map<std::string, const ModelLeaf*> left;
    for (const auto& [name, leaf] : content.leaves) left[name] = &leaf;
    std::vector<const LeafInfo*> arrays;
    for (const LeafInfo& info : *leaves) {
      const auto found = left.find(info.name);
      if (found == left.end()) {
        if (info.is_leaf()) Add(Kind::kExtra, key, info.name, "a leaf");
        continue;
      }
      const ModelLeaf& leaf = *found->second;
      left.erase(found);
      if (leaf.kind == ModelLeaf::Kind::kTie) {
        if (!info.tie_to || info.tie_to->Text() != leaf.target) {
          Add(Kind::kWrong, key, info.name, "tied to another leaf");
        }
      } else if (leaf.kind == ModelLeaf::Kind::kArray) {
        if (info.dtype != leaf.dtype || info.shape != leaf.shape) {
          Add(Kind::kWrong, key, info.name, "another dtype or shape");
        } else {
          arrays.push_back(&info);
        }
      } else {
        ReadValue(key, step, info.name, leaf);
      }
    }
    for (const auto& [name, leaf] : left) {
      Add(Kind::kGone, key, name, "not in the step");
    }
    ReadArrays(key, step, content, arrays);
  }

  void ReadValue(std::int64_t key, const Step& step, const std::string& name,
                 const ModelLeaf& leaf) {
    const absl::StatusOr<LeafValue> value = step.Value(name);
    if (!value.ok()) {
      Fail(key, name, "", value.status());
      return;
    }
    const std::string_view bytes(
        reinterpret_cast<const char*>(value->bytes.data()),
        value->bytes.size());
    if (bytes != leaf.bytes) Add(Kind::kWrong, key, name, "another value");
  }

  // As a trainer reads them: at once; one by one where that fails.
  void ReadArrays(std::int64_t key, const Step& step, const ModelStep& content,
                  const std::vector<const LeafInfo*>& arrays) {
    std::vector<std::string> read;
    std::vector<ReadRequest> requests;
    read.reserve(arrays.size());
    for (const LeafInfo* info : arrays) {
      read.emplace_back(content.leaves.at(info->name).bytes.size(), '\x5a');
      requests.push_back(
          {.path = info->path,
           .box = std::nullopt,
           .destination = std::as_writable_bytes(std::span(read.back()))});
    }
    const bool at_once = step.ReadMany(requests).ok();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const std::string& name = arrays[i]->name;
      const absl::Status status =
          at_once ? absl::OkStatus()
                  : step.Read(requests[i].path, requests[i].destination);
      if (!status.ok()) {
        Fail(key, name, "", status);
      } else if (read[i] != content.leaves.at(name).bytes) {
        Add(Kind::kWrong, key, name, "WRONG BYTES");
      } else if ((i + static_cast<std::size_t>(key)) % 7 == 0) {
        // Others in other steps: each open maps its tables anew.
        View(key, step, *arrays[i], read[i]);
      }
    }
  }

  // Of an array that can be read: its view shows the same.
  void View(std::int64_t key, const Step& step, const LeafInfo& info,
            std::string_view bytes) {
    const absl::StatusOr<LeafView> view = step.View(info.path);
    if (!view.ok()) {
      Fail(key, info.name, "View()", view.status());
      return;
    }
    // Each box is read by itself: of an array with many of them some do.
    const std::size_t stride =
        std::max<std::size_t>(1, view->pieces().size() / 4);
    for (std::size_t i = 0; i < view->pieces().size(); i += stride) {
      const LeafView::Piece& piece = view->pieces()[i];
      std::string of_box;
      // A small one has no box.
      if (view->pieces().size() > 1) {
        of_box.resize(piece.bytes.size(), '\x5a');
        const absl::Status status = step.ReadBox(
            info.path, piece.box, std::as_writable_bytes(std::span(of_box)));
        if (!status.ok()) Fail(key, info.name, "ReadBox()", status);
        if (!status.ok()) return;
      }
      const std::string_view expected = of_box.empty() ? bytes : of_box;
      if (!std::ranges::equal(std::as_bytes(std::span(expected)),
                              piece.bytes)) {
        Add(Kind::kWrong, key, info.name, "WRONG BYTES of a view");
      }
    }
  }

  const Store& store_;
  const Acknowledged& known_;
  const Told& told_;
  std::set<std::int64_t> listed_;
  std::vector<Lack> lacks_;
};

}  // namespace

std::optional<std::int64_t> Acknowledged::Latest(std::int64_t branch) const {
  auto step = state.steps.lower_bound((branch + 1) * kBranchSteps);
  if (step == state.steps.begin()) return std::nullopt;
  --step;
  if (step->first / kBranchSteps != branch) return std::nullopt;
  return step->first;
}

std::string StepName(std::int64_t key) {
  return StepText(BranchName(key / kBranchSteps), key % kBranchSteps);
}

std::int64_t BranchNumber(const std::string& branch) {
  return branch.starts_with("branch") ? std::atoll(branch.c_str() + 6) : 0;
}

bool NamesIt(std::string_view text, std::int64_t key, std::string_view leaf) {
  if (text.find(leaf) == std::string_view::npos) return false;
  const std::string number = absl::StrCat(key % kBranchSteps);
  const auto digit = [&](std::size_t at) {
    return at < text.size() &&
           std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = 0; (at = text.find(number, at)) != text.npos; ++at) {
    if ((at == 0 || !digit(at - 1)) && !digit(at + number.size())) return true;
  }
  return false;
}

std::vector<Lack> Lacks(const Store& store, const Acknowledged& acknowledged,
                        const Told& told) {
  return Reader(store, acknowledged, told).Run();
}

}  // namespace ckptree::testing
