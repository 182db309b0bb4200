"""`python -m jax_backend` is `burn-xla`."""

from jax_backend.cli import main

main()
