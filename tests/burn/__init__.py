"""Burn's own programs, used as references and clients."""
