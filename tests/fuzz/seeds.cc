// SPDX-License-Identifier: Apache-2.0

// Writes the seeds of tests/fuzz/corpus, one folder per target. To run again
// where the format or an input's layout changes:
//   build/fuzz/tests/fuzz/seeds tests/fuzz/corpus

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "ckptree/path.h"
#include "core/coding/block_coder.h"
#include "core/coding/coded_block.h"
#include "core/coding/rounded_copy.h"
#include "kv/journal/preface.h"
#include "kv/journal/record.h"
#include "kv/write_batch.h"
#include "schema/dead_list.h"
#include "schema/envelope.h"
#include "schema/keys.h"
#include "schema/step_record.h"
#include "schema/tree.h"
#include "tests/fuzz/stored_record.h"
#include "tests/schema/samples.h"

namespace ckptree::fuzz {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

// Numbers the seeds of one target.
class Folder {
 public:
  Folder(const std::filesystem::path& corpus, std::string_view target)
      : folder_(corpus / target) {
    std::filesystem::create_directories(folder_);
  }

  void Add(std::string_view seed) {
    char name[8];
    std::snprintf(name, sizeof(name), "%02d", count_++);
    std::ofstream(folder_ / name, std::ios::binary) << seed;
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

void AddPolicies(Folder folder) {
  for (const char* text :
       {"all", "latest(3) | every(1000)", "every(2h)",
        "every(5, spaced, last=2)", "closest(10, last=3)", "within(7d12h)",
        "steps(0, 4, 25)", "best(loss, min, 2) & healthy",
        "best(\"a b\", max, all, unmeasured=drop)", "best(score(), max, 1)",
        "healthy(2) | log(8)", "budget(20GB)",
        "(latest(1) | keep_if(f)) & custom(g)"}) {
    folder.Add(std::string("\x14") + text);
  }
}

void AddKeys(Folder folder) {
  const base::Digest digest = base::DigestOf("a tree");
  for (const std::string& key :
       {schema::StoreKey(), schema::StepKey(1, 258), schema::StepMetaKey(7),
        schema::TreeKey(digest), schema::TreePageKey(digest),
        schema::DeadKey(7), schema::SegmentKey(7, 1, schema::Space::kChunks, 2),
        schema::CommitKey(9), schema::RemovedKey(7), schema::BranchKey(1),
        schema::TagKey("best"), schema::PinKey(7),
        schema::BlockKey(7, 1, schema::BlockNumber(2, 3)),
        schema::BlockKey(7, 1, schema::BlockNumber(2, 3)) + '\0',
        schema::SmallKey(7, 1, schema::BlockKind::kChunk,
                         schema::BlockNumber(0, 1))}) {
    folder.Add(key);
  }
}

std::vector<Path> SamplePaths() {
  const Key::Tuple tuple = {Key{std::int64_t{1}}, Key{std::string("a")},
                            Key{Key::Tuple{Key{Key::None{}}}}};
  return {Path().Key("params").Key("layer 0").Index(3),
          Path().Key("opt").Attribute("mu").Flattened(1),
          Path()
              .Key(Key{std::int64_t{-70000}})
              .Key(Key{true})
              .Key(Key{Key::None{}}),
          Path().Key(Key{1.5}).Key(Key{Key::Bytes{std::string("\0\1\xff", 3)}}),
          Path().Key(Key{tuple}).Attribute("a.b")};
}

void AddPaths(Folder bytes, Folder text) {
  for (const Path& path : SamplePaths()) {
    bytes.Add(path.Encode());
    text.Add(path.Text());
  }
  text.Add("['params'][0].mu[<flat index 2>]");
  text.Add("{nan:7ff0000000000001}/{-inf}/{1e-300}/\"\\u00e9\\ud83d\\ude00\"");
}

void AddGlobs(Folder folder) {
  for (const std::string_view seed :
       {"params/**/kernel\0params/a/b/kernel"sv, "*.b?as\0hidden.bias"sv,
        "\"a/*\"/[3]\0\"a/b\"/[3]"sv, "re:^l[0-9]+$\0l12"sv,
        "*\xc3\xa9?\0\xe2\x82\xac\xc3\xa9x"sv}) {
    folder.Add(seed);
  }
}

// As a body for an envelope, and as it is stored.
void AddRecord(schema::RecordKind kind, std::string_view stored,
               Folder* folder) {
  const auto number = static_cast<std::uint8_t>(kind);
  folder->Add(std::string(1, static_cast<char>(number))
                  .append(stored.substr(schema::kEnvelopeBytes)));
  folder->Add(
      std::string(1, static_cast<char>(number | kAsStored)).append(stored));
}

void AddRecords(Folder rows, Folder tree, Folder leaf, Folder segment) {
  using schema::RecordKind;
  for (const schema::Sample& sample : schema::Samples()) {
    Folder* folder = &rows;
    switch (sample.kind) {
      case RecordKind::kTreeRoot:
      case RecordKind::kTreePage:
        folder = &tree;
        break;
      case RecordKind::kLeafRecord:
      case RecordKind::kDeadList:
        folder = &leaf;
        break;
      case RecordKind::kSegmentRow:
      case RecordKind::kSegmentHeader:
      case RecordKind::kSegmentTable:
      case RecordKind::kSmallHeader:
      case RecordKind::kPartHandoff:
      case RecordKind::kRankPlan:
      case RecordKind::kPartToken:
      case RecordKind::kRankMail:
      case RecordKind::kStoreRequest:
      case RecordKind::kStoreAnswer:
        folder = &segment;
        break;
      default:
        break;
    }
    AddRecord(sample.kind, sample.bytes, folder);
  }
  // A leaf map has a number of its own.
  leaf.Add("\x10" + schema::EncodeLeafMap(schema::SampleMap()));
}

void AddJournal(Folder folder) {
  constexpr std::size_t kChecksum = 8;
  constexpr std::size_t kPrefaceFields = 144;
  constexpr std::size_t kTipFields = 68;
  kv::Preface preface;
  preface.file = 3;
  preface.session = 2;
  preface.follows = 9;
  preface.engine = "0.1.0";
  const std::string front = kv::EncodePreface(preface);
  folder.Add(std::string(1, '\0') + front.substr(0, kPrefaceFields));
  folder.Add('\4' + front.substr(0, kPrefaceFields + kChecksum));
  const std::string tip = kv::EncodeTip({.session = 2, .ordinal = 9});
  folder.Add('\1' + tip.substr(0, kTipFields));
  kv::WriteBatch batch;
  batch.Put(schema::Space::kRecords, "key", "value");
  batch.PutBlock("block", "bytes");
  batch.Delete(schema::Space::kSmall, "gone");
  const kv::EncodedBatch encoded = kv::EncodeBatch(batch);
  kv::RecordHeader header;
  header.ordinal = 9;
  header.rows_bytes = encoded.rows.size();
  std::string record = kv::EncodeRecord(header, encoded.rows);
  folder.Add('\6' + record);
  record.erase(kv::kRecordHeaderBytes - kChecksum, kChecksum);
  folder.Add('\2' + record);
  folder.Add('\3' + encoded.rows);
}

void AddCoded(Folder folder) {
  std::string words;
  for (int i = 0; i < 700; ++i) {
    words += {static_cast<char>(i * 37 % 256), static_cast<char>(i % 3)};
  }
  internal::BlockCoder coder;
  const std::string stored(
      coder.Encode(std::as_bytes(std::span(words)), base::DigestOf(words)));
  const std::size_t head =
      internal::CodedHeadBytes(internal::BlockCoding::kPlanes, words.size());
  folder.Add('\0' + stored);
  // Width, map, length; what a cell of them is.
  folder.Add("\1\2\1\x05\x78"s + stored.substr(head));
  folder.Add('\2' + words);
  folder.Add('\4' + words);
  std::string copy(words.size() / 2, '\0');
  internal::RoundWords(std::as_bytes(std::span(words)),
                       std::as_writable_bytes(std::span(copy)).data());
  const std::string both = words + copy;
  const std::string rounded(
      coder.Encode(std::as_bytes(std::span(both)), base::DigestOf(both)));
  folder.Add('\0' + rounded);
  // The length is that of both.
  folder.Add("\3\2\1\x08\x34"s +
             rounded.substr(internal::CodedHeadBytes(
                 internal::BlockCoding::kRoundedCopy, both.size())));
}

void AddTexts(Folder command, Folder arguments, Folder slice) {
  for (const std::string_view seed :
       {"latest~2:params/out/bias[:4]"sv, "best:loss:max~1:a/b"sv,
        "@tag..1200"sv, "12..15"sv, "loss<2.5 && nan>0"sv,
        "size>=1.5GiB && name!='a b'"sv, "best:a:min:min~0"sv}) {
    command.Add(seed);
  }
  for (const std::string_view seed :
       {"latest:a\0--json\0-n\0003"sv, "--color=always\0--where\0a<1"sv,
        "--\0-q\0--limit"sv, "-jn5\0--qiet"sv, "--limit=-1\0[1,2]"sv}) {
    arguments.Add(seed);
  }
  for (const std::string_view seed :
       {"\2\5\4[0:10, ::2]"sv, "\3\3\2\4[..., -1]"sv, "\1\7[-1:-5:-2]"sv,
        "\x81\x30[5:9223372036854775807:3]"sv, "\0[...]"sv,
        "\2\3\3a/b[1][ 0 , : ,]"sv}) {
    slice.Add(seed);
  }
}

}  // namespace
}  // namespace ckptree::fuzz

int main(int argc, char** argv) {
  using ckptree::fuzz::Folder;
  if (argc != 2) {
    std::fprintf(stderr, "usage: seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path corpus = argv[1];
  ckptree::fuzz::AddKeys({corpus, "keys"});
  ckptree::fuzz::AddPolicies({corpus, "policy"});
  ckptree::fuzz::AddPaths({corpus, "path"}, {corpus, "path_text"});
  ckptree::fuzz::AddGlobs({corpus, "glob"});
  ckptree::fuzz::AddRecords({corpus, "record"}, {corpus, "tree"},
                            {corpus, "leaf"}, {corpus, "segment"});
  ckptree::fuzz::AddJournal({corpus, "journal"});
  ckptree::fuzz::AddCoded({corpus, "coded"});
  ckptree::fuzz::AddTexts({corpus, "command"}, {corpus, "arguments"},
                          {corpus, "slice"});
  return 0;
}
