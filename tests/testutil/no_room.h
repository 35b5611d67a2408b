// SPDX-License-Identifier: Apache-2.0

// A disk that is full, as far as this process is concerned.

#ifndef CKPTREE_TESTS_TESTUTIL_NO_ROOM_H_
#define CKPTREE_TESTS_TESTUTIL_NO_ROOM_H_

#include <signal.h>
#include <sys/resource.h>

namespace ckptree::testing {

// No file grows while it lives: writes fail with EFBIG.
class NoRoom {
 public:
  NoRoom() {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    struct rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoom() { setrlimit(RLIMIT_FSIZE, &before_); }
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;

 private:
  struct rlimit before_ {};
};

}  // namespace ckptree::testing

#endif  // CKPTREE_TESTS_TESTUTIL_NO_ROOM_H_
