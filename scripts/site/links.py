#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows every link between the pages of the built site.

    scripts/site/links.py FOLDER

A link is dead where the file or the anchor that it names is not there. Links
to other sites are counted and not fetched. The exit code is 1 where a link is
dead, or where this program would not notice one that it plants.
"""

import os
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
  """The anchors of a page, and the links that stand in it."""

  def __init__(self, text: str) -> None:
    super().__init__()
    self.anchors: set[str] = set()
    self.links: list[tuple[int, str]] = []
    self.feed(text)

  def handle_starttag(self, tag: str,
                      attrs: list[tuple[str, str | None]]) -> None:
    for name, value in attrs:
      if value is None:
        continue
      if name == "id" or (tag == "a" and name == "name"):
        self.anchors.add(value)
      elif name in ("href", "src"):
        self.links.append((self.getpos()[0], value))


def check(folder: Path) -> tuple[int, int, list[str]]:
  """Returns (links inside, links to other sites, complaints)."""
  pages = {
      path: Page(path.read_text(encoding="utf-8"))
      for path in sorted(folder.rglob("*.html"))
  }
  inside, outside, complaints = 0, 0, []
  for path, page in pages.items():
    for line, link in page.links:
      parts = urlsplit(link)
      if parts.scheme or parts.netloc:
        outside += 1
        continue
      inside += 1
      where = f"{path.relative_to(folder)}:{line}"
      target = path
      if parts.path:
        target = Path(os.path.normpath(path.parent / unquote(parts.path)))
        if target.is_dir():
          target /= "index.html"
      if not target.is_file() or folder not in target.parents:
        complaints.append(f"{where}: {link}: there is no such file")
        continue
      anchor = unquote(parts.fragment)
      if anchor and target in pages and anchor not in pages[target].anchors:
        complaints.append(f"{where}: {link}: the page has no such anchor")
  return inside, outside, complaints


def self_test() -> list[str]:
  """Returns what the check would not notice, or wrongly notices."""
  faults = []
  with tempfile.TemporaryDirectory() as name:
    folder = Path(name).resolve()
    (folder / "b").mkdir()
    (folder / "b" / "c.html").write_text('<h1 id="here">C</h1>')
    for link, dead in (("b/c.html#here", False), ("b/c.html", False),
                       ("#", False), ("https://example.com/x", False),
                       ("b/d.html", True), ("b/c.html#there", True),
                       ("#nowhere", True), ("../outside.html", True)):
      (folder / "a.html").write_text(f'<a href="{link}">x</a>')
      if bool(check(folder)[2]) != dead:
        faults.append(f"{link}: {'missed' if dead else 'wrongly noticed'}")
  return faults


def main() -> int:
  faults = self_test()
  inside, outside, complaints = check(Path(sys.argv[1]).resolve())
  for line in faults + complaints:
    print(line, file=sys.stderr)
  print(f"{inside} links inside the site, {len(complaints)} of them dead; "
        f"{outside} links to other sites, not followed")
  if inside < 100:
    print(f"{sys.argv[1]} does not look like the site", file=sys.stderr)
    return 1
  return 1 if faults or complaints else 0


if __name__ == "__main__":
  sys.exit(main())
