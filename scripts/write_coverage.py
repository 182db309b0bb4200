"""Writes `jax_backend/tested.json` and `docs/coverage.md` from the tables in `tests/cases`.

Run it as `python scripts/write_coverage.py`.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jax_backend.coverage import TESTED, both, page  # noqa: E402
from tests.coverage import forms_in_tables  # noqa: E402


def main() -> None:
    tested = forms_in_tables()
    (ROOT / "jax_backend" / TESTED).write_text(json.dumps(tested, indent=1) + "\n", encoding="utf-8")
    found = both(tested)
    (ROOT / "docs" / "coverage.md").write_text(page(found), encoding="utf-8")
    for ir, of in found.items():
        print(f"{ir}:", of.count())


if __name__ == "__main__":
    main()
