// SPDX-License-Identifier: Apache-2.0

// What a step says of the command line that saved it.

#include "core/save/lineage.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ckptree::internal {
namespace {

TEST(LineageTest, SecretsOfACommandLineAreMasked) {
  using Words = std::vector<std::string>;
  for (const auto& [words, shown] :
       {std::pair(Words{"python", "train.py", "--api-key=hunter2", "--lr=0.1"},
                  "python train.py --api-key=*** --lr=0.1"),
        std::pair(Words{"t", "--apiKey", "hunter2", "--token", "-v"},
                  "t --apiKey *** --token -v"),
        std::pair(Words{"t", "HF_TOKEN=hunter2", "db.password=hunter2"},
                  "t HF_TOKEN=*** db.password=***"),
        std::pair(Words{"t", "--AWS_SECRET=a=b", "--credentials", "hunter2"},
                  "t --AWS_SECRET=*** --credentials ***"),
        std::pair(Words{"t", "https://u:hunter2@host/x@y", "a@b"},
                  "t https://***@host/x@y a@b"),
        std::pair(Words{"t", "--url=s3://hunter2@b/x"}, "t --url=s3://***@b/x"),
        std::pair(Words{"t", "--tokenizer", "gpt2", "--max-tokens=9", "key"},
                  "t --tokenizer gpt2 --max-tokens=9 key"),
        std::pair(Words{"python", "-c", "my key = 1"}, "python -c my key = 1"),
        std::pair(Words{""}, "")}) {
    EXPECT_EQ(WithoutSecrets(words), shown);
  }
}

}  // namespace
}  // namespace ckptree::internal
