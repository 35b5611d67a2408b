// SPDX-License-Identifier: Apache-2.0

// What the shared library shows: everything else in it is hidden.

#ifndef CKPTREE_EXPORT_H_
#define CKPTREE_EXPORT_H_

// In a static library the first does nothing that a program would notice, so
// the same object files serve both kinds.
#if defined(__GNUC__)
#define CKPTREE_EXPORT __attribute__((visibility("default")))
#define CKPTREE_LOCAL __attribute__((visibility("hidden")))
#else
#define CKPTREE_EXPORT
#define CKPTREE_LOCAL
#endif

#endif  // CKPTREE_EXPORT_H_
