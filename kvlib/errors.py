"""What kvlib says when it cannot size something: one sentence, with the place and the remedy."""

from __future__ import annotations


class SizingError(ValueError):
    """Anything kvlib refuses to size. ``str(error)`` is one sentence fit to show to a person."""


class ConfigError(SizingError):
    """A model's config is missing, broken, or says something no model can.

    Attributes
    ----------
    field : the ``config.json`` key at fault, or None when the whole file is.
    found, expected : what stood there and what would have been accepted.
    """

    def __init__(self, message: str, *, field: str | None = None, found=None, expected: str | None = None):
        super().__init__(message)
        self.field, self.found, self.expected = field, found, expected


class UnknownArchitectureError(ConfigError):
    """An architecture whose cache kvlib does not know; it is named, never guessed.

    Attributes
    ----------
    unknown : tuple of str, what is not known.
    suggestion : a filled-in ``model.from_layers([...])`` call to correct by hand.
    lower_bound_bytes_per_token : int or None, what the layers that *are* known cost per token,
        in bytes for the whole model at the config's dtype; the truth is at least this.
    """

    def __init__(self, message: str, *, unknown=(), suggestion: str | None = None,
                 lower_bound_bytes_per_token: int | None = None, field: str | None = None, found=None,
                 expected: str | None = None):
        super().__init__(message, field=field, found=found, expected=expected)
        self.unknown = tuple(unknown)
        self.suggestion = suggestion
        self.lower_bound_bytes_per_token = lower_bound_bytes_per_token


class EngineError(SizingError):
    """An engine flag that is unknown, out of range, or that vLLM would refuse with this model.

    Attributes
    ----------
    flag : the name of the flag, as an argument of :class:`kvlib.Engine`.
    """

    def __init__(self, message: str, *, flag: str | None = None, found=None, expected: str | None = None):
        super().__init__(message)
        self.flag, self.found, self.expected = flag, found, expected
