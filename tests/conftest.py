"""What every test runs under: strict dtypes and ranks, 64-bit types in scope, several CPU devices."""

import os
from collections.abc import Iterator

import hypothesis
import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 4)

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--families=base,conv` runs the rows of these tables only, and imports no other table."""
    parser.addoption("--every-eager", action="store_true", help="run every row operation by operation: 20 minutes")
    parser.addoption("--families", default="", help="tables of tests/cases to run, comma-separated; default: all")


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    """64-bit types, scoped as the library scopes them: the global switch stays off."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def jax_keeps_nothing_on_disk() -> Iterator[None]:
    """A command switches jax's own cache on for its whole process, where it would serve what another test counts."""
    yield
    if jax.config.jax_compilation_cache_dir is not None:
        jax.config.update("jax_compilation_cache_dir", None)
        compilation_cache.reset_cache()
