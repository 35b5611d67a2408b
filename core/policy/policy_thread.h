// SPDX-License-Identifier: Apache-2.0

// Which threads ask a policy, and so call functions of the user.

#ifndef CKPTREE_CORE_POLICY_POLICY_THREAD_H_
#define CKPTREE_CORE_POLICY_POLICY_THREAD_H_

#include "core/process/thread_mark.h"

namespace ckptree::internal {

// Of a thread that asks a policy of a store. It holds locks of that store,
// which a call of a function that is asked would wait for.
using PolicyThread = ThreadMark<struct PolicyRole>;

}  // namespace ckptree::internal

#endif  // CKPTREE_CORE_POLICY_POLICY_THREAD_H_
