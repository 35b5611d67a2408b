// SPDX-License-Identifier: Apache-2.0

// A process that saves to a store with a remote until it is killed, and what
// it said until then.

#ifndef CKPTREE_TESTS_REMOTE_TRAINER_H_
#define CKPTREE_TESTS_REMOTE_TRAINER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "ckptree/ckptree.h"

namespace ckptree::testing {

// What a step holds: an array of new content, every third of them large enough
// for a segment of its own, and a counter.
std::size_t BytesOfStep(std::int64_t step);
SaveHandle StartStep(Store& store, std::int64_t step);
// What is wrong with it in `store`; empty: nothing.
std::string StepFault(const Store& store, std::int64_t step);

// Steps that a store must have, and those that it may also have.
struct Told {
  std::set<std::int64_t> acknowledged;
  std::set<std::int64_t> asked;
};

// What is wrong with the store at `address`, read by one that has nothing else;
// empty: nothing. `cache` is a folder for that one.
std::string RemoteFault(const std::string& address, const Told& told,
                        const std::string& cache);

// The same of each step that the directory of a trainer lists, where it is a
// store.
std::string DirectoryFault(const std::string& directory,
                           const std::string& cache);

// What a trainer meets at one of its requests.
struct AtRequest {
  enum class Act {
    kNothing,
    kDies,         // Before it is sent.
    kDiesBehind,   // When it was answered.
    kSays,         // It is sent as soon as the line was written.
    kStops,        // Before it is sent, by SIGSTOP.
    kStopsBehind,  // When it was answered, likewise.
  };
  Act act = Act::kNothing;
  // Of those that begin with `kind` ("get", "put", "create", "head", "") and
  // have `part` in their name.
  std::string kind = {};
  std::string part = {};
  int number = 1;  // Which of these, from 1 on.
};

// The program itself, started again: main() gives its arguments to
// TrainerMain() where they are a trainer's. Confined to one thread.
class Trainer {
 public:
  // Saves steps from `first` on, each acknowledged by the remote. `keep`: its
  // disk keeps the newest step alone.
  Trainer(const std::string& directory, const std::string& address,
          const std::string& endpoint, std::int64_t first, bool keep = false,
          const AtRequest& at_request = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  pid_t pid() const { return pid_; }
  // Reads one more line, and keeps what it tells; false at its end, or where
  // nothing was said for so long.
  bool Hear(absl::Duration patience, Told* told);
  // Hears it until it comes to its request; false where it ended before, or
  // saved hundreds of steps.
  bool HearUntilItCame(Told* told);
  // Kills it unless that was done, hears the rest of it.
  void End(Told* told);
  // The last thing that it said went wrong.
  const std::string& failed() const { return failed_; }
  bool opened() const { return opened_; }
  // Whether it came to that request; it is at `at()`, "get NAME" and the like.
  bool came() const { return !at_.empty(); }
  const std::string& at() const { return at_; }
  // How often it said that segments had left its disk.
  int left() const { return left_; }
  // Waits until SIGSTOP has stopped it; false where it ended instead.
  bool AwaitStopped() const;
  void Continue() const;

 private:
  bool Take(const std::string& line, Told* told);

  pid_t pid_ = 0;
  int pipe_ = -1;
  bool opened_ = false;
  std::string heard_;
  std::string failed_;
  std::string at_;
  int left_ = 0;
};

// The exit code of a trainer, or -1 where the arguments are no trainer's.
int TrainerMain(int argc, char** argv);

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_REMOTE_TRAINER_H_
