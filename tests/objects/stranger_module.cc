// SPDX-License-Identifier: Apache-2.0

// A library that has nothing of a module but its name.

extern "C" __attribute__((visibility("default"))) int CkptreeStranger();
int CkptreeStranger() { return 1; }
