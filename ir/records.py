"""The base of plain records that stand inside operations, such as the options of a convolution."""

from msgspec import Struct


class Record(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A record without an identity: fields in wire order, static unless a role says otherwise."""
