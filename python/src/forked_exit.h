// How a child leaves that was forked off a process with an open store.

#ifndef CKPTREE_PYTHON_SRC_FORKED_EXIT_H_
#define CKPTREE_PYTHON_SRC_FORKED_EXIT_H_

namespace ckptree::python {

// To be called in the child. RocksDB 7.8 has a timer of its own whose thread is
// not in the child; when that exits, the timer's destructor waits for it, for
// ever. So what the process had registered for its exit before, destructors
// among it, is left out; what Python does at exit comes before.
void ExitWithoutDestructors();

}  // namespace ckptree::python

#endif  // CKPTREE_PYTHON_SRC_FORKED_EXIT_H_
