"""The Containerfile against the checkout: what it copies exists and builds, what it starts is a command that parses."""

import json
import re
from importlib import import_module
from pathlib import Path

import click
import pytest

from jax_backend.cli import COMMANDS
from jax_backend.disk_cache import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[1]


def instructions() -> list[tuple[str, str]]:
    """Name and arguments of each instruction; continued lines are joined."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def arguments(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def test_every_instruction_is_one() -> None:
    known = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME"}
    assert {name for name, _ in instructions()} <= known | {"WORKDIR"}
    assert instructions()[0][0] == "FROM"


def test_what_is_copied_exists() -> None:
    sources = [word for rest in arguments("COPY") if not rest.startswith("--from") for word in rest.split()[:-1]]
    assert {"ir", "jax_backend", "pyproject.toml"} <= set(sources)
    assert [name for name in sources if not (ROOT / name).exists()] == []


def test_lists_are_json() -> None:
    found = [m[0] for _, rest in instructions() if (m := re.search(r"\[\".*\]$", rest))]
    assert len(found) == 4
    assert all(isinstance(part, str) for text in found for part in json.loads(text))


def test_the_server_starts_with_options_that_it_has() -> None:
    (entry,), (command,) = map(json.loads, arguments("ENTRYPOINT")), map(json.loads, arguments("CMD"))
    assert entry == ["burn-xla"]
    serve = import_module(COMMANDS[command[0]].module).command
    given = serve.make_context("serve", command[1:]).params
    assert (given["host"], str(given["port"])) == ("0.0.0.0", arguments("EXPOSE")[0])
    with pytest.raises(click.NoSuchOption):
        serve.make_context("serve", [*command[1:], "--no-such-option"])


def test_the_cache_is_the_volume() -> None:
    (environment,), (volume,) = arguments("ENV"), arguments("VOLUME")
    assert environment == f"{ENVIRONMENT}={volume}"


def test_the_health_check_asks_the_port_that_is_served() -> None:
    (check,), (port,) = arguments("HEALTHCHECK"), arguments("EXPOSE")
    program = json.loads(check.partition(" CMD ")[2])[2]
    compile(program, "HEALTHCHECK", "exec")
    assert f"http://127.0.0.1:{port}/healthz" in program
