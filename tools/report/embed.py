#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a C++ file of the page of a report.

    embed.py --out FILE --page page.html --style style.css --chart chart.js
             --licence TEXT SCRIPT...

The scripts are put one behind the other into one function. What a browser may
run is named in the page by its digest (Content-Security-Policy); nothing else
in the page is run.
"""

import argparse
import base64
import hashlib
import re
from pathlib import Path

SOURCES, DATA = "@SOURCES@", "@DATA@"


def digest_of(text: str) -> str:
  digest = hashlib.sha256(text.encode()).digest()
  return f"'sha256-{base64.b64encode(digest).decode()}'"


def without_ends(name: str, text: str) -> str:
  """Returns `text`, which must not end the element it stands in."""
  if re.search(r"</(script|style)|<!--", text, re.IGNORECASE):
    raise SystemExit(f"embed.py: {name} holds </script>, </style> or <!--")
  return text


def as_array(name: str, text: str) -> str:
  """Returns the C++ of `text` as an array of bytes."""
  data = text.encode()
  rows = [",".join(str(byte) for byte in data[at:at + 24])
          for at in range(0, len(data), 24)]
  body = ",\n".join(rows)
  return f"constexpr unsigned char {name}[] = {{\n{body}}};\n"


def main() -> None:
  parser = argparse.ArgumentParser()
  for name in ("out", "page", "style", "chart", "licence"):
    parser.add_argument(f"--{name}", type=Path, required=True)
  parser.add_argument("scripts", type=Path, nargs="+")
  options = parser.parse_args()

  chart = without_ends("the chart library", options.chart.read_text())
  # It points to a file that is not here.
  chart = re.sub(r"\n//# sourceMappingURL=.*\s*$", "\n", chart)
  # What Debian says of its licence, as a comment in front of the library.
  licence = without_ends("its licence", options.licence.read_text())
  licence = licence.replace("*/", "* /").strip()
  chart = f"/*\n{licence}\n*/\n{chart}"
  scripts = "".join(path.read_text() for path in options.scripts)
  own = without_ends("a script", f'"use strict";\n(() => {{\n{scripts}}})();\n')
  style = without_ends("the style sheet", options.style.read_text())

  page = options.page.read_text()
  for mark, text in (("@STYLE@", style), ("@CHART@", chart),
                     ("@SCRIPT@", own)):
    if page.count(mark) != 1:
      raise SystemExit(f"embed.py: {options.page} needs one {mark}")
    page = page.replace(mark, text)
  page = page.replace("@STYLE_DIGEST@", digest_of(style))
  page = page.replace("@SCRIPT_DIGESTS@",
                      f"{digest_of(chart)} {digest_of(own)}")
  first, rest = page.split(SOURCES)
  second, third = rest.split(DATA)

  names = ("kFirst", "kSecond", "kThird")
  arrays = "".join(as_array(name, text)
                   for name, text in zip(names, (first, second, third)))
  views = ",\n      ".join(
      f"{{reinterpret_cast<const char*>({name}), sizeof {name}}}"
      for name in names)
  options.out.write_text(f"""// Made by tools/report/embed.py.

#include "tools/report/page.h"

namespace ckptree::tools {{
namespace {{

{arrays}
}}  // namespace

const PageParts* EmbeddedPage() {{
  static const PageParts parts = {{
      {views}}};
  return &parts;
}}

}}  // namespace ckptree::tools
""")


if __name__ == "__main__":
  main()
