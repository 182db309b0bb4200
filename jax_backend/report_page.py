"""A session's report as one page that needs nothing else: no network, no server."""

import base64
import gzip
from html import escape
from importlib.resources import files

import msgspec

from jax_backend.session_report import Report


def page(report: Report) -> str:
    """The report as HTML; style and script are in `web/`, the data are packed (a transformer's HLO is megabytes)."""
    web = files("jax_backend").joinpath("web")
    style, script, frame = (
        web.joinpath(f"inspect.{kind}").read_text(encoding="utf-8") for kind in ("css", "js", "html")
    )
    data = base64.b64encode(gzip.compress(msgspec.json.encode(report), mtime=0)).decode()
    frame = frame.replace("<title>burn-xla", f"<title>{escape(report.name)} · burn-xla")
    return frame.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script).replace("DATA", data)
