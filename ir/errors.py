"""The errors of both packages.

    IrError
    ├── WireError       bytes or JSON that are not the format: names the path that failed
    ├── ShapeError      shapes that do not fit an operation
    ├── DTypeError      dtypes that do not fit an operation
    ├── UnknownHandle   a tensor id that no live tensor has
    ├── UnsupportedOp   a kind, custom id or option that nothing here can run
    ├── StreamError     a stream that breaks its own rules (a NotInit input, a use after the last use)
    └── ProtocolError   a message that is well formed and not allowed now

A message names operation and field, what was expected, what came and, where there is one, the next step.
"""


class IrError(Exception):
    """Base of every error that input can cause."""


class WireError(IrError):
    """Bytes or JSON do not decode.

    `path` names the place with the names of the format, such as `RegisterOperation.NumericFloat.Add.lhs.shape`.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}" if path else reason)


class ShapeError(IrError):
    """Shapes do not fit."""


class DTypeError(IrError):
    """Dtypes do not fit."""


class UnknownHandle(IrError):
    """No live tensor has this id."""


class UnsupportedOp(IrError):
    """Nothing here can run this kind, custom id or option."""


class StreamError(IrError):
    """A stream breaks its own rules."""


class ProtocolError(IrError):
    """A message is well formed but not allowed at this point."""
