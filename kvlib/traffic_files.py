"""Requests from a file: prompt and output tokens of each, as a CSV or as JSON lines; nothing is dropped without a word."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from .errors import SizingError

LONGEST = 1 << 40  # tokens or steps; more is taken for a mistake
NAMES = {  # what a column may be called
    "prompt_tokens": ("prompt_tokens", "prompt_len", "prompt_length", "input_tokens", "input_length", "prompt"),
    "output_tokens": ("output_tokens", "output_len", "output_length", "completion_tokens", "generated_tokens", "output"),
    "arrival_step": ("arrival_step",), "prefix_id": ("prefix_id",), "prefix_len": ("prefix_len",),
}
LEAST = {"prompt_tokens": 1, "output_tokens": 1, "arrival_step": 0, "prefix_len": 0}


class TrafficError(SizingError):
    """A request that cannot be simulated.

    Attributes
    ----------
    row : which one: counted from 0 in a list, the line of the file otherwise; None where it is not one row's fault.
    field, found : what of it, and what stood there.
    """

    def __init__(self, message: str, *, row: int | None = None, field: str | None = None, found=None):
        super().__init__(message)
        self.row, self.field, self.found = row, field, found


def read_requests(source: str | Path, *, max_model_len: int | None = None) -> list[dict]:
    """The requests of a CSV or JSON-lines file (a path, or its text): dicts with prompt_tokens, output_tokens and what else is there.

    ``arrival_step``, ``prefix_id`` and ``prefix_len`` are read where they stand; other columns are left alone. With
    ``max_model_len`` a prompt that vLLM would refuse is refused here. Raises TrafficError that names the first bad line, the value
    and how many more lines are bad.

    >>> read_requests("prompt_tokens,output_tokens\\n512,100\\n40,8\\n")[1]
    {'prompt_tokens': 40, 'output_tokens': 8}
    >>> read_requests("prompt_tokens,output_tokens\\n512,ten\\n")
    Traceback (most recent call last):
    kvlib.traffic_files.TrafficError: line 2: output_tokens is 'ten'; it must be a whole number of at least 1
    """
    name, text = _text(source)
    rows = _json_rows(name, text) if text.lstrip().startswith(("{", "[")) else _csv_rows(name, text)
    found, wrong = [], []
    for line, row in rows:
        try:
            found.append(_checked(name, line, row, max_model_len))
        except TrafficError as error:
            wrong.append(error)
    if wrong:
        first = wrong[0]
        more = "" if len(wrong) == 1 else f" (and {len(wrong) - 1:,} more bad lines, the next {wrong[1].row:,})"
        raise TrafficError(str(first) + more, row=first.row, field=first.field, found=first.found)
    if not found:
        raise TrafficError(f"{name}no request is in it; one line each, with prompt_tokens and output_tokens")
    return found


def _text(source: str | Path) -> tuple[str, str]:
    """(its name with a colon, or nothing; the text itself)."""
    if isinstance(source, str) and ("\n" in source or source.lstrip().startswith(("{", "["))):
        return "", source
    path = Path(source)
    try:
        return f"{path.name}, ", path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise TrafficError(f"{path.name} is not text in UTF-8; save it as CSV or JSON lines") from None
    except (OSError, ValueError) as error:
        raise TrafficError(f"{str(path)[:80]} cannot be read ({getattr(error, 'strerror', None) or error}); give a CSV or JSON-lines "
                           "file of requests, or its text") from None


def _csv_rows(name: str, text: str):
    try:
        separator = csv.Sniffer().sniff(text.partition("\n")[0], ",;\t").delimiter
    except csv.Error:
        separator = ","
    reader = csv.DictReader(io.StringIO(text), delimiter=separator)
    columns = [(column or "").strip() for column in reader.fieldnames or ()]
    _check_columns(name, columns)
    reader.fieldnames = columns
    for row in reader:
        if any(value for value in row.values()):
            yield reader.line_num, row


def _json_rows(name: str, text: str):
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise TrafficError(f"{name}not JSON: {error}") from None
        yield from enumerate(rows, start=1)
        return
    for line, each in enumerate(text.splitlines(), start=1):
        if not each.strip():
            continue
        try:
            yield line, json.loads(each)
        except ValueError:
            yield line, each


def _check_columns(name: str, columns: list[str]) -> None:
    for field in ("prompt_tokens", "output_tokens"):
        if not any(column.lower() in NAMES[field] for column in columns):
            raise TrafficError(f"{name}no column {field}; the columns are {', '.join(columns)[:120] or 'none'}", field=field,
                               found=columns)


def _checked(name: str, line: int, row, max_model_len: int | None) -> dict:
    if not isinstance(row, dict):
        raise TrafficError(f"{name}line {line}: {row!r:.60} is not a request; it must be an object with prompt_tokens and "
                           "output_tokens", row=line, found=row)
    known = {str(key).strip().lower(): value for key, value in row.items() if key is not None}
    found = {}
    for field, names in NAMES.items():
        value = next((known[each] for each in names if each in known), None)
        if field == "prefix_id":
            if value not in (None, ""):
                found[field] = value
            continue
        if value in (None, "") and field not in ("prompt_tokens", "output_tokens"):
            continue
        found[field] = _number(name, line, field, value)
    if "prefix_len" in found and "prefix_id" not in found:
        raise TrafficError(f"{name}line {line}: prefix_len is {found['prefix_len']:,} but prefix_id is empty; give both or none",
                           row=line, field="prefix_id")
    if max_model_len is not None and found["prompt_tokens"] >= max_model_len:
        raise TrafficError(f"{name}line {line}: a prompt of {found['prompt_tokens']:,} tokens, and max_model_len is "
                           f"{max_model_len:,}; vLLM refuses it", row=line, field="prompt_tokens", found=found["prompt_tokens"])
    return found


def _number(name: str, line: int, field: str, value) -> int:
    """A whole number of tokens or steps from a cell."""
    least = LEAST[field]
    if value is None or isinstance(value, str) and not value.strip():
        raise TrafficError(f"{name}line {line}: {field} is missing; it must be a whole number of at least {least}", row=line, field=field)
    whole = None
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        whole = int(text) if text.lstrip("+-").isdecimal() and text.isascii() and len(text) < 40 else None
    elif isinstance(value, int) and not isinstance(value, bool):
        whole = value
    elif isinstance(value, float) and value.is_integer():
        whole = int(value)
    if whole is None or not least <= whole <= LONGEST:
        top = f" and at most {LONGEST:,}" if whole is not None and whole > LONGEST else ""
        raise TrafficError(f"{name}line {line}: {field} is {value!r:.40}; it must be a whole number of at least {least}{top}",
                           row=line, field=field, found=value)
    return whole
