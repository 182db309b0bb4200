"""Tests of jax_backend, named as its modules."""
