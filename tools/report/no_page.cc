// SPDX-License-Identifier: Apache-2.0

// For a build without the chart library.

#include "tools/report/page.h"

namespace ckptree::tools {

const PageParts* EmbeddedPage() { return nullptr; }

}  // namespace ckptree::tools
