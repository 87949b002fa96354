"""The requests of a run, checked row by row as they are read, in order of arrival."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .traffic_files import LONGEST, TrafficError
from .traffic_scheduler import Request, Settings


class Arrivals:
    """The requests in order of arrival, each checked as it is read."""

    def __init__(self, requests: Iterable, settings: Settings):
        self.settings = settings
        self.count = 0  # read so far
        self.rows = 0  # in all, where that is known
        self.cut = 0  # outputs that max_model_len cuts short
        self.streams: dict = {}  # by prefix_id: what is cached of that text, by group
        if hasattr(requests, "__len__"):
            rows = [self._row(row, request) for row, request in enumerate(requests)]
            self.rows = len(rows)
            order = sorted(range(len(rows)), key=lambda row: rows[row][0])  # a stable sort: rows of one step keep their order
            self._source: Iterator = iter([(row, *rows[row]) for row in order])
        else:
            self._source = self._read(requests)
        self.next: Request | None = None
        self.advance()

    def advance(self) -> None:
        """Make the next request out of the next row, or None at the end."""
        found = next(self._source, None)
        self.next = None if found is None else self._request(*found)

    def _read(self, requests: Iterable):
        before = 0
        for row, request in enumerate(requests):
            values = self._row(row, request)
            if values[0] < before:
                raise TrafficError(f"request {row} arrives at step {values[0]:,}, before the one above it ({before:,}); an iterator "
                                   "must come in order of arrival (a list may not)", row=row, field="arrival_step", found=values[0])
            before = values[0]
            yield row, *values

    def _row(self, row: int, request) -> tuple:
        """(arrival, prompt, output, prefix_id, prefix_len) of a row, checked."""
        names = ("arrival_step", "prompt_tokens", "output_tokens", "prefix_id", "prefix_len")
        if isinstance(request, dict):
            missing = [name for name in names[:3] if name not in request]
            if missing:
                hint = "; spread(rows, rate=…) gives the rows of a file their arrivals" if missing[0] == "arrival_step" else ""
                raise TrafficError(f"request {row} has no {missing[0]}{hint}", row=row, field=missing[0])
            request = [request.get(name) for name in names]
        try:
            arrival, prompt, output, *more = request
        except (TypeError, ValueError):
            raise TrafficError(f"request {row} is {request!r:.60}; it must be (arrival_step, prompt_tokens, output_tokens), then "
                               "prefix_id and prefix_len where a prefix is shared", row=row, found=request) from None
        if len(more) > 2 or len(more) == 1 and more[0] is not None:
            raise TrafficError(f"request {row} has {3 + len(more)} values; it must have 3, or 5 with prefix_id and prefix_len",
                               row=row, found=request)
        prefix, length = more if len(more) == 2 else (None, 0)
        length = 0 if prefix is None else length
        try:
            hash(prefix)
        except TypeError:
            raise TrafficError(f"request {row}: prefix_id is {prefix!r:.40}; it must be a text or a number", row=row, field="prefix_id",
                               found=prefix) from None
        for name, value, least in zip((*names[:3], names[4]), (arrival, prompt, output, length), (0, 1, 1, 0)):
            if type(value) is not int or not least <= value <= LONGEST:
                value = self._whole(row, name, value, least)
        arrival, prompt, output, length = int(arrival), int(prompt), int(output), int(length)
        if prompt >= self.settings.max_model_len:
            raise TrafficError(f"request {row} has a prompt of {prompt:,} tokens, and max_model_len is "
                               f"{self.settings.max_model_len:,}: vLLM refuses a prompt that leaves no room for an output; shorten "
                               "it or raise max_model_len", row=row, field="prompt_tokens", found=prompt)
        return arrival, prompt, output, prefix, length

    @staticmethod
    def _whole(row: int, name: str, value, least: int) -> int:
        """A whole number of another type (NumPy's, say), or an error."""
        try:
            whole = value.__index__()
        except (AttributeError, TypeError):
            whole = None
        if whole is None or isinstance(value, bool) or not least <= whole <= LONGEST:
            raise TrafficError(f"request {row}: {name} is {value!r:.40}; it must be a whole number of at least {least}"
                               + (f" and at most {LONGEST:,}" if whole is not None and whole > LONGEST else ""),
                               row=row, field=name, found=value)
        return whole

    def _request(self, row: int, arrival: int, prompt: int, output: int, prefix, length: int) -> Request:
        settings = self.settings
        total = prompt + output
        if total > settings.max_model_len:
            total = settings.max_model_len
            self.cut += 1
        groups = len(settings.groups)
        self.count += 1
        if prefix is None or not settings.caching:
            return Request(row, arrival, prompt, total, None, (0,) * groups, None, [None] * groups)
        streams = self.streams.get(prefix)
        if streams is None:
            streams = self.streams[prefix] = tuple({} for _ in settings.groups)
        return Request(row, arrival, prompt, total, prefix, tuple(length // group.block for group in settings.groups), streams,
                       [None] * groups)
