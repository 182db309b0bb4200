"""Which kinds a release knows under which outer variant."""

from collections.abc import Mapping
from functools import cache

import ir.ops  # noqa: F401  (fills the registry)
from ir.op import Op
from ir.registry import BARE, forms
from ir.wire.release import Release


@cache
def kind_table(release: Release) -> dict[str, dict[str, type[Op]]]:
    """Outer variant -> name of the kind -> kind, for the kinds that `release` knows."""
    table: dict[str, dict[str, type[Op]]] = {}
    for form in forms().values():
        name = form.family if form.family in BARE else form.kind.__name__
        if name not in release.absent:
            table.setdefault(form.family, {})[name] = form.kind
    return table


@cache
def known_forms(release: Release) -> Mapping[tuple[str, type[Op]], str]:
    """Path on the wire of every (outer variant, kind) that `release` knows."""
    known = kind_table(release)
    return {
        (form.family, form.kind): form.path for form in forms().values() if form.kind in known[form.family].values()
    }
