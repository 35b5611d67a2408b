// SPDX-License-Identifier: Apache-2.0

// How a request to S3 is signed: by version 4 of AWS's signatures, as the
// service `s3`. Not by libcurl, which leaves copies of the key in its memory.

#ifndef CKPTREE_KV_OBJECTS_S3_SIGNATURE_H_
#define CKPTREE_KV_OBJECTS_S3_SIGNATURE_H_

#include <string>

#include "absl/time/time.h"
#include "kv/objects/aws_credentials.h"
#include "kv/objects/http.h"

namespace ckptree::kv {

// Adds the headers Host, x-amz-date, x-amz-content-sha256,
// x-amz-security-token where the keys have one, and Authorization. All other
// headers are signed as well: nobody on the way may leave out a condition.
//
// REQUIRES: the URL is as it is sent, encoded, with its parameters in the order
// of their names, each with "="; the keys have a secret.
void SignS3Request(const AwsKeys& keys, const std::string& region,
                   absl::Time now, HttpRequest* request);

}  // namespace ckptree::kv

#endif  // CKPTREE_KV_OBJECTS_S3_SIGNATURE_H_
