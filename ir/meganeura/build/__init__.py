"""The builder methods of a graph, named and ordered as Meganeura's: one class per family."""

from ir.meganeura.build.dense import DenseBuilder
from ir.meganeura.build.image import ImageBuilder
from ir.meganeura.build.sequence import SequenceBuilder

__all__ = ["DenseBuilder", "ImageBuilder", "SequenceBuilder"]
