"""Builds the documentation into `build/site`, warnings being errors, and checks every link and anchor of the result.

Run it as `python scripts/build_docs.py`; `python -m mkdocs serve` shows the site while it is written.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

ROOT: Final = Path(__file__).resolve().parent.parent
SITE: Final = ROOT / "build" / "site"
LOADING: Final = {"img": "src", "script": "src", "link": "href", "source": "src"}
"""Elements that make a browser load something at once."""


class Link(NamedTuple):
    """Where a page leads, and whether a browser follows by itself."""

    target: str
    loads: bool


class Links(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[Link] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where an element leads, and how others may lead to it."""
        given = dict(attrs)
        self.anchors.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and (target := given.get("href")):
            self.links.append(Link(target, loads=False))
        elif (name := LOADING.get(tag)) and (target := given.get(name)):
            self.links.append(Link(target, loads=given.get("rel") not in ("canonical", "prev", "next")))


def main() -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    if status := subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
        raise SystemExit(status)
    pages = {path: Links(path) for path in sorted(SITE.rglob("*.html"))}
    faults = [f"{path.relative_to(SITE)}: {fault}" for path in pages for fault in broken(path, pages)]
    if faults:
        raise SystemExit("\n".join(["error: the site has broken links", *faults]))
    print(f"{len(pages)} pages, {sum(len(page.links) for page in pages.values())} links, all lead somewhere")


def broken(path: Path, pages: dict[Path, Links]) -> Iterator[str]:
    """What is wrong with the links of a page."""
    for link in pages[path].links:
        parts = urlsplit(link.target)
        if parts.scheme or parts.netloc:
            if link.loads:
                yield f"loads {link.target} from the network"
            continue
        base = SITE if parts.path.startswith("/") else path.parent
        target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            yield f"leads to {link.target}, which is not there"
        elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"leads to {link.target}, which has no such anchor"


if __name__ == "__main__":
    main()
