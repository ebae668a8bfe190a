"""Where the book will stand, and where its readers find the files that it shows."""

import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ddp_workbook.page import pages
from tools.set_up import ROOT

NAME = "The Distributed PyTorch Workbook"
SOURCES = "sources"  # folder of the book with copies of the files that it links to
DOCUMENTS = {"tools": "TOOLS.md", "install": "INSTALL.md"}  # pages that are no notebooks
SOURCE_LINK = re.compile(rf'href="({SOURCES}/[^"#?]+)')


@dataclass(frozen=True)
class Site:
    """Addresses of the published book and of the repository; "" if they are not known.

    Without them every link stays in the book's folder, so that it can be read from a disk.
    """

    address: str = ""  # of the book, without a slash at its end
    repository: str = ""  # of the repository
    commit: str = ""  # the book was made from this one

    def source(self, file: str) -> str | None:
        """Where a file of the checkout can be read; None for what is no file there."""
        if not (ROOT / file).is_file():
            return None
        if self.repository and self.commit:
            return f"{self.repository}/blob/{self.commit}/{file}"
        return f"{SOURCES}/{file}"

    def page(self, name: str) -> str:
        """The published address of a file of the book; "" if the book's own is not known."""
        return f"{self.address}/{'' if name == 'index.html' else name}" if self.address else ""


def source_of(stem: str) -> str:
    """The file in the checkout that a page is made from."""
    return DOCUMENTS.get(stem) or f"notebooks/{pages.place_of(stem)}"


def copy_sources(book: Path) -> None:
    """Copy each file that a page of the book links to as a source into the book."""
    for page in book.glob("*.html"):
        for file in set(SOURCE_LINK.findall(page.read_text(encoding="utf-8"))):
            (book / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file.partition("/")[2], book / file)


@cache
def edition() -> str:
    """The version of this checkout and, if git knows it, the commit: "0.1.0 (ba09f63)"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    line = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        run = subprocess.run(line, capture_output=True, text=True, check=False)
        commit = run.stdout.strip()
    except OSError:  # no git
        commit = ""
    return f"{project['version']} ({commit})" if commit else project["version"]
