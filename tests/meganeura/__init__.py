"""Meganeura itself, used as a reference, and the graphs of its models."""
