// SPDX-License-Identifier: Apache-2.0

#include "core/remote/early_uploads.h"

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/process/guarded_call.h"
#include "core/remote/segment_upload.h"
#include "schema/keys.h"
#include "schema/remote_record.h"

namespace ckptree::internal {

void EarlyUploads::Add(const std::string& row_key, std::string path) {
  const auto fields = schema::DecodeSegmentKey(row_key);
  if (!fields.has_value()) return;
  const absl::MutexLock lock(&mu_);
  if (stopping_) return;
  segments_[row_key] = {*fields, std::move(path), State::kWaiting, {}};
  waiting_.push_back(row_key);
  if (threads_.size() >= kAtOnce) return;
  try {
    threads_.emplace_back([this] { Work(); });
  } catch (const std::exception&) {
    // No thread for it: what those there are do not get to begins behind the
    // commit.
  }
}

void EarlyUploads::Work() {
  while (true) {
    std::string row_key;
    Segment segment;
    {
      const absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(this, &EarlyUploads::HasWork));
      if (stopping_) return;
      row_key = std::move(waiting_.front());
      waiting_.pop_front();
      const auto found = segments_.find(row_key);
      if (found == segments_.end() || found->second.state != State::kWaiting) {
        continue;
      }
      // One of which there is no copy in memory is uploaded behind the commit.
      const absl::Status copied = GuardedStatus("uploading", [&] {
        segment = found->second;
        return absl::OkStatus();
      });
      if (!copied.ok()) continue;
      found->second.state = State::kSending;
    }
    // Why it failed is heard of where it is uploaded behind the commit.
    absl::StatusOr<schema::RemoteSegment> uploaded =
        GuardedResult("uploading", [&] {
          return UploadStaged(options_, segment.path, segment.fields, era_,
                              uuid_, *store_, stop_.get_token());
        });
    const absl::MutexLock lock(&mu_);
    // It is there as long as it is sent.
    Segment& ended = segments_.find(row_key)->second;
    ended.state = State::kEnded;
    if (uploaded.ok()) ended.uploaded = *std::move(uploaded);
  }
}

std::optional<schema::RemoteSegment> EarlyUploads::Find(
    const std::string& row_key, const std::stop_token& cancelled) {
  // Conditions are looked at again when the mutex is given back.
  const std::stop_callback wake(cancelled,
                                [this] { const absl::MutexLock lock(&mu_); });
  const absl::MutexLock lock(&mu_);
  const auto found = segments_.find(row_key);
  if (found == segments_.end()) return std::nullopt;
  Segment& segment = found->second;
  if (segment.state == State::kWaiting) segment.state = State::kEnded;
  const auto ended = [&] {
    return segment.state == State::kEnded || cancelled.stop_requested();
  };
  mu_.Await(absl::Condition(&ended));
  return segment.uploaded;
}

void EarlyUploads::Forget(std::uint64_t version) {
  const absl::MutexLock lock(&mu_);
  // Those that are sent now end by themselves, and go the next time.
  std::erase_if(segments_, [version](const auto& each) {
    return each.second.fields.version <= version &&
           each.second.state != State::kSending;
  });
}

void EarlyUploads::Stop() {
  std::vector<std::thread> threads;
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
    threads.swap(threads_);
  }
  stop_.request_stop();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ckptree::internal
