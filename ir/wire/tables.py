"""Which kinds a release knows under which outer variant."""

from functools import cache

from ir import ops
from ir.op import Op
from ir.registry import BARE, forms
from ir.wire.release import Release

assert ops  # importing the families is what fills the registry


@cache
def kind_table(release: Release) -> dict[str, dict[str, type[Op]]]:
    """Outer variant -> name of the kind -> kind, for the kinds that `release` knows."""
    table: dict[str, dict[str, type[Op]]] = {}
    for form in forms().values():
        name = form.family if form.family in BARE else str(form.kind.__name__)
        if name not in release.absent:
            table.setdefault(form.family, {})[name] = form.kind
    return table


@cache
def known_forms(release: Release) -> frozenset[tuple[str, type[Op]]]:
    """Every (outer variant, kind) that `release` knows."""
    return frozenset((family, kind) for family, kinds in kind_table(release).items() for kind in kinds.values())
