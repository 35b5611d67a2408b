#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pages that Sphinx reads, made from the files of the repository.

    scripts/site/stage.py FOLDER [--command CKPTREE]

Every Markdown file becomes the page of its own path; the README becomes the
start. A link to a file that is no page leads to a page that lists the file, so
the site is complete in itself. The public headers become the pages of the C++
API, and what `ckptree help` prints becomes the page of the command.

FOLDER is written anew. The exit code is 1 where a link leads to nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headers

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent
# Folders that hold nothing of ours, or nothing to read.
OUTSIDE = {"build", "scripts/site"}
# These are no pages, and other pages name them without a link.
LISTED = {"schema/checkpoint.proto": "schema/FORMAT.md"}
LANGUAGES = {
    ".cc": "cpp", ".h": "cpp", ".py": "python", ".cmake": "cmake",
    ".proto": "protobuf", ".toml": "toml", ".json": "json", ".sh": "bash",
}
LINK = re.compile(r"(?P<text>\[[^\]\[]*\])\((?P<target>[^()\s]+)\)")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
CODE = re.compile(r"(`+)(?:(?!\1).)*?\1")


def pages_of_repository(root: Path) -> list[str]:
  """Returns the paths of all Markdown files, relative to `root`."""
  found = []
  for parent, folders, files in os.walk(root):
    here = Path(parent).relative_to(root)
    folders[:] = sorted(
        name for name in folders
        if not name.startswith(".") and str(here / name) not in OUTSIDE)
    found += [str(here / name) for name in files if name.endswith(".md")]
  return sorted(found)


def page_name(path: str) -> str:
  """Returns the path of the page that the Markdown file `path` becomes."""
  return "index.md" if path == "README.md" else path


def relative(page: str, target: str) -> str:
  """Returns the link from one staged page to another."""
  return os.path.relpath(target, os.path.dirname(page) or ".")


def listing_page(path: str) -> str:
  """Returns the path of the page that lists the file `path`."""
  return f"source/{path}.md"


def listing(path: str, text: str) -> str:
  """Returns a page that shows a file as it is."""
  language = LANGUAGES.get(Path(path).suffix, "text")
  if text.startswith("#!") and "bash" in text.splitlines()[0]:
    language = "bash"
  if text.startswith("#!") and "python" in text.splitlines()[0]:
    language = "python"
  fence = "`" * max([3] + [len(run) + 1 for run in re.findall("`+", text)])
  return (f"---\norphan: true\n---\n\n# `{path}`\n\n"
          f"{fence}{language}\n{text.rstrip()}\n{fence}\n")


class Stage:
  """The pages to be written, and the files that they link to."""

  def __init__(self, root: Path) -> None:
    self.root = root
    self.sources = pages_of_repository(root)
    self.pages: dict[str, str] = {}
    self.listed: set[str] = set()
    self.pictures: set[str] = set()
    self.complaints: list[str] = []

  def link(self, source: str, number: int, match: re.Match[str]) -> str:
    """Returns what stands in the page instead of one link of `source`."""
    target, _, anchor = match["target"].partition("#")
    if not target or re.match(r"[a-z]+:", target):
      return match[0]
    path = os.path.normpath(os.path.join(os.path.dirname(source), target))
    if path in self.sources:
      page = page_name(path)
    elif path.endswith(".png") and (self.root / path).is_file():
      self.pictures.add(path)
      page = path
    elif (self.root / path).is_file() and not path.startswith(".."):
      self.listed.add(path)
      page = listing_page(path)
    else:
      self.complaints.append(
          f"{source}:{number}: the link leads to {target}, which is not a "
          "file of the repository")
      return match[0]
    link = relative(page_name(source), page)
    return f"{match['text']}({link}{'#' + anchor if anchor else ''})"

  def rewrite(self, source: str, text: str) -> str:
    """Returns `text` with links that lead to pages of the site."""
    lines = text.splitlines()
    prose = []
    fence = None
    for number, line in enumerate(lines):
      mark = FENCE.match(line)
      if mark and fence is None:
        fence = mark[1]
      elif mark and line.strip() == fence:
        fence = None
      elif fence is None:
        prose.append(number)
    # A link may begin on one line and end on the next one.
    marks = {number: [] for number in prose}
    for number in prose:
      kept: list[str] = marks[number]

      def hide(match: re.Match[str], kept: list[str] = kept) -> str:
        kept.append(match[0])
        return f"\x00{len(kept) - 1}\x00"

      lines[number] = CODE.sub(hide, lines[number])
    body = "\n".join(
        line if number in marks else "\x01" + line
        for number, line in enumerate(lines))
    body = LINK.sub(
        lambda match: self.link(
            source, body.count("\n", 0, match.start()) + 1, match), body)
    lines = body.split("\n")
    for number, kept in marks.items():
      lines[number] = re.sub(
          "\x00(\\d+)\x00", lambda match, kept=kept: kept[int(match[1])],
          lines[number])
    return "\n".join(line.removeprefix("\x01") for line in lines) + "\n"

  def below(self, source: str) -> list[str]:
    """Returns the pages for which the README `source` is the nearest one."""
    folder = os.path.dirname(source)
    found = []
    for path in self.sources:
      above = os.path.dirname(path)
      if path == source or not path.startswith(folder + "/"):
        continue
      if path.endswith("/README.md"):
        above = os.path.dirname(above)
      while above != folder and f"{above}/README.md" not in self.sources:
        above = os.path.dirname(above)
      if above == folder:
        found.append(path)
    return found

  def markdown(self) -> None:
    """Adds the Markdown files of the repository."""
    for source in self.sources:
      text = self.rewrite(
          source, (self.root / source).read_text(encoding="utf-8"))
      if source == "README.md":
        text += (SITE / "contents.md").read_text(encoding="utf-8")
      elif source.endswith("/README.md"):
        children = self.below(source)
        if children:
          rows = "\n".join(
              relative(source, path).removesuffix(".md") for path in children)
          text += f"\n```{{toctree}}\n:hidden:\n\n{rows}\n```\n"
      for path, page in LISTED.items():
        if page == source:
          self.listed.add(path)
          link = relative(source, listing_page(path)).removesuffix(".md")
          text += ("\n```{toctree}\n:hidden:\n\n"
                   f"{Path(path).name} <{link}>\n```\n")
      self.pages[page_name(source)] = text

  def headers(self) -> None:
    """Adds a page for each public header, and the page that lists them."""
    pages, listed = headers.pages(self.root)
    self.pages.update(pages)
    self.listed.update(listed)

  def command(self, program: str | None) -> None:
    """Adds the page of the command."""
    self.pages["api/command.md"] = command_page(program)

  def write(self, folder: Path) -> None:
    """Writes all pages to `folder`, which is made anew."""
    for path in sorted(self.listed):
      text = (self.root / path).read_text(encoding="utf-8")
      page = listing(path, text)
      if path in LISTED:
        page = page.replace("---\norphan: true\n---\n\n", "")
      self.pages[listing_page(path)] = page
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SITE / "pages", folder)
    for path, text in self.pages.items():
      (folder / path).parent.mkdir(parents=True, exist_ok=True)
      (folder / path).write_text(text, encoding="utf-8")
    for path in self.pictures:
      (folder / path).parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(self.root / path, folder / path)


def output_of(program: str, *words: str) -> str:
  """Returns what `ckptree` prints, without spaces at the ends of lines."""
  done = subprocess.run([program, *words], check=True, text=True,
                        stdout=subprocess.PIPE)
  return "\n".join(line.rstrip() for line in done.stdout.rstrip().split("\n"))


def command_page(program: str | None) -> str:
  """Returns the page of the command, from its own help texts."""
  text = "# The command\n\n"
  text += ("[The README](../index.md#the-command) has a table of the verbs and "
           "some examples.\n")
  if program is None:
    return text + (
        "\n`ckptree help` and `ckptree help VERB` print the rest. This site "
        "was made\nwithout the program, so their output is not here.\n")
  overview = output_of(program, "help")
  verbs = re.findall(r"^  ([a-z]+)  +\S", overview, re.MULTILINE)
  verbs = [verb for verb in verbs if verb not in ("ckptree", "help", "version")]
  text += f"\n```text\n{overview}\n```\n"
  topics = [("REV, KEY and SLICE", "rev"), *((verb, verb) for verb in verbs)]
  for title, topic in topics:
    printed = output_of(program, "help", topic)
    text += f"\n## {title}\n\n```text\n{printed}\n```\n"
  return text


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("folder", type=Path)
  parser.add_argument("--command", help="the program of which to show the help")
  parser.add_argument("--root", type=Path, default=ROOT)
  arguments = parser.parse_args()
  stage = Stage(arguments.root)
  stage.markdown()
  stage.headers()
  stage.command(arguments.command)
  for complaint in stage.complaints:
    print(complaint, file=sys.stderr)
  stage.write(arguments.folder)
  print(f"{len(stage.pages)} pages from {len(stage.sources)} Markdown files, "
        f"{len(stage.listed)} other files listed", file=sys.stderr)
  return 1 if stage.complaints else 0


if __name__ == "__main__":
  sys.exit(main())
