// SPDX-License-Identifier: Apache-2.0

#include "kv/objects/s3_signature.h"

#include <openssl/evp.h>

#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/require.h"
#include "kv/objects/aws_credentials.h"
#include "kv/objects/http.h"
#include "kv/objects/secret.h"
#include "kv/objects/text.h"

namespace ckptree::kv {
namespace {

constexpr std::size_t kBlock = 64;   // Of SHA-256.
constexpr std::size_t kDigest = 32;  // Likewise.
constexpr std::string_view kVersion = "AWS4";

// Writes kDigest bytes.
void Sha256(std::initializer_list<std::string_view> parts, char* into) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(
      EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool ok = context != nullptr &&
            EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const std::string_view part : parts) {
    ok = ok && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  }
  ok = ok &&
       EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(into),
                          nullptr) == 1;
  base::Require(ok, "SHA-256 is there");
}

std::string Hex(std::string_view bytes) {
  return absl::BytesToHexString(std::string(bytes));
}

std::string Sha256Hex(std::string_view text) {
  std::string digest(kDigest, '\0');
  Sha256({text}, digest.data());
  return Hex(digest);
}

// The keyed digests by which a signature is derived from a secret. Made of the
// digest alone: OpenSSL's own keep a copy of the key in memory that a core dump
// has, while they work.
class KeyedDigest {
 public:
  explicit KeyedDigest(std::string_view secret)
      : bytes_(kBlock + kDigest + kVersion.size() + secret.size()) {
    char* const key = bytes_.data() + kBlock + kDigest;
    kVersion.copy(key, kVersion.size());
    secret.copy(key + kVersion.size(), secret.size());
    key_ = {key, kVersion.size() + secret.size()};
  }

  // HMAC of `text` by the key, which is then the key of the next one.
  void Next(std::string_view text) {
    char* const pad = bytes_.data();
    char* const digest = pad + kBlock;
    if (key_.size() > kBlock) {
      Sha256({key_}, digest);
      key_ = {digest, kDigest};
    }
    constexpr char kInner = 0x36, kOuter = 0x5c;
    for (std::size_t i = 0; i < kBlock; ++i) {
      pad[i] = static_cast<char>((i < key_.size() ? key_[i] : 0) ^ kInner);
    }
    Sha256({{pad, kBlock}, text}, digest);
    for (std::size_t i = 0; i < kBlock; ++i) {
      pad[i] = static_cast<char>(pad[i] ^ kInner ^ kOuter);
    }
    Sha256({{pad, kBlock}, {digest, kDigest}}, digest);
    key_ = {digest, kDigest};
  }
  std::string_view signature() const { return key_; }

 private:
  SecretBytes bytes_;  // A padded key, a digest, the first key.
  std::string_view key_;
};

// "host:port" as the request names it: without the port of its scheme.
std::string_view SignedHost(std::string_view url) {
  const bool plain = url.starts_with("http://");
  url.remove_prefix(url.find("://") + 3);
  url = url.substr(0, url.find('/'));
  const std::string_view port = plain ? ":80" : ":443";
  if (url.ends_with(port)) url.remove_suffix(port.size());
  return url;
}

}  // namespace

void SignS3Request(const AwsKeys& keys, const std::string& region,
                   absl::Time now, HttpRequest* request) {
  const std::string date =
      absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone());
  const std::string day = date.substr(0, date.find('T'));
  const std::string digest = Sha256Hex(request->body);
  const std::string_view url = request->url;
  request->headers.push_back("Host: " + std::string(SignedHost(url)));
  request->headers.push_back("x-amz-content-sha256: " + digest);
  request->headers.push_back("x-amz-date: " + date);
  if (!keys.token.empty() && IsOneLine(keys.token)) {
    request->headers.push_back("x-amz-security-token: " + keys.token);
  }

  std::map<std::string, std::string_view> headers;  // In order of their names.
  for (const std::string& header : request->headers) {
    const std::size_t colon = header.find(':');
    headers[absl::AsciiStrToLower(header.substr(0, colon))] =
        Trim(std::string_view(header).substr(colon + 1));
  }
  std::string named, signed_headers;
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&named, name, ":", std::string(value), "\n");
    absl::StrAppend(&signed_headers, signed_headers.empty() ? "" : ";", name);
  }

  const std::size_t path = url.find('/', url.find("://") + 3);
  const std::size_t question = url.find('?', path);
  const std::string_view query =
      question == std::string_view::npos ? "" : url.substr(question + 1);
  const std::string scope = absl::StrCat(day, "/", region, "/s3/aws4_request");
  const std::string canonical = absl::StrCat(
      request->method, "\n", std::string(url.substr(path, question - path)),
      "\n", std::string(query), "\n", named, "\n", signed_headers, "\n",
      digest);
  KeyedDigest key(keys.secret->view());
  key.Next(day);
  key.Next(region);
  key.Next("s3");
  key.Next("aws4_request");
  key.Next(absl::StrCat("AWS4-HMAC-SHA256\n", date, "\n", scope, "\n",
                        Sha256Hex(canonical)));
  request->headers.push_back(absl::StrCat(
      "Authorization: AWS4-HMAC-SHA256 Credential=", keys.key, "/", scope,
      ",SignedHeaders=", signed_headers, ",Signature=", Hex(key.signature())));
}

}  // namespace ckptree::kv
