"""Adds to the site what is made of the code and of files elsewhere in the repository. MkDocs calls it."""

import re
import sys
from pathlib import Path
from posixpath import normpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from _op_reference import pages  # noqa: E402

COPIED: Final = {"adding.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Pages that are files of the root."""

_CODE: Final = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    for path, source in COPIED.items():
        files.append(File.generated(config, path, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository that are no pages be text, and those to copied ones lead to the copy."""
    source = page.file.src_uri
    folder = "" if source in COPIED else f"docs/{source.rpartition('/')[0]}"
    copies = {original: copy for copy, original in COPIED.items()}

    def linked(match: re.Match[str]) -> str:
        text, target, fragment = match[1], match[2], match[3] or ""
        if files.get_file_from_path(normpath(f"{source.rpartition('/')[0]}/{target}").lstrip("./")):
            return match[0]
        path = normpath(f"{folder}/{target}".lstrip("/"))
        if path in copies:
            return f"[{text}]({'../' * source.count('/')}{copies[path]}{fragment})"
        if path.startswith("docs/") and files.get_file_from_path(path.removeprefix("docs/")):
            return f"[{text}]({'../' * source.count('/')}{path.removeprefix('docs/')}{fragment})"
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{source}: a link leads to {path}, which does not exist")
        return text if path in text else f"{text} (`{path}`)"

    if page.file.generated_by is not None and source not in COPIED:
        return markdown
    parts = _CODE.split(markdown)
    return "".join(part if n % 2 else _LINK.sub(linked, part) for n, part in enumerate(parts))
