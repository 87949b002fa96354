"""The words of a command as it is pasted: a shell line, or the arguments of a container in JSON or YAML.

>>> words('docker run --gpus all -e A=1 vllm/vllm-openai --model a/b --api-key "$KEY"  # mine')
['--model', 'a/b', '--api-key', '$KEY']
>>> words('args:\\n- --model=a/b\\n- --x\\n- \\'{"a": 1}\\'\\n')
['--model=a/b', '--x', '{"a": 1}']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .errors import EngineError


class Word(str):
    """A word of a shell line. ``raw`` is how it was written there, with its quotation marks and variables."""

    raw: str = ""

    @classmethod
    def of(cls, raw: str) -> Word:
        word = cls(_PART.sub(_unquoted, raw))
        word.raw = raw
        return word

    def after(self, sign: str) -> str:
        """What stands behind the first ``sign``, as a word of its own."""
        plain, raw = self.partition(sign)[2], self.raw.partition(sign)[2]
        if self.raw[:1] in "'\"":
            raw = self.raw[0] + raw
        tail = Word.of(raw) if _WHOLE.fullmatch(raw) else None
        return tail if tail == plain else plain


_QUOTED = r"""'[^']*'|"(?:[^"\\]|\\.)*\""""
_PART = re.compile(rf"""(?P<quoted>{_QUOTED})|\\(?P<escaped>.)""", re.S)
_END = r"[`^\\][ \t]*\r?\n|\\\s*\Z"      # a line that goes on: in sh, PowerShell and cmd
_BODY = rf"""(?:{_QUOTED}|\$\([^()]*\)|`[^`\n]*`|(?!{_END})\\.|(?!{_END})[^\s'"\\|&;<>])+"""
_WHOLE = re.compile(_BODY, re.S)
_TOKEN = re.compile(rf"""(?P<space>\s+|{_END})|(?P<comment>\#[^\n]*)|(?P<redirect>\d*(?:>>|>|<)(?:&\d)?|&>)|(?P<end>\|\||&&|[|&;])
                     |(?P<word>{_BODY})""", re.S | re.X)


def _unquoted(match: re.Match) -> str:
    quoted = match["quoted"]
    if quoted is None:
        return "" if match["escaped"] == "\n" else match["escaped"]
    inner = quoted[1:-1]
    return inner if quoted[0] == "'" else re.sub(r'\\(["\\$`])', r"\1", inner.replace("\\\n", ""))


def words(text: str) -> list[str]:
    """The words of the command that starts vLLM, from what was pasted around them. Raises EngineError."""
    stripped = text.strip()
    items = _listed(stripped)
    found = _launch(items) if items is not None else _launch_of(_commands(stripped))
    for at, word in enumerate(found[:-1]):
        if re.fullmatch(r"-\w?c", word) and any(re.search(r"(^|/)(ba|da|z)?sh$", shell) for shell in found[:at]):
            return _launch_of(_commands(found[at + 1]))     # sh -c "vllm serve …"
    return found


def assignments(text: str) -> list[str]:
    """``NAME=value`` words before the program, as they were written: the environment of the launch.

    >>> assignments('A=1 B="$C" vllm serve a/b')
    ['A=1', 'B="$C"']
    """
    if _listed(text.strip()) is not None:
        return []
    found = []
    for word in _chosen(_commands(text.strip())):
        if re.match(r"[A-Za-z_]\w*=", word):
            found.append(word.raw)
        elif word != "env":
            break
    return found


# A shell line


def _commands(text: str) -> list[list[str]]:
    """The simple commands of a shell text, each as words; comments, redirections and line breaks are gone."""
    commands, at, target = [[]], 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise EngineError(f"a quotation mark is not closed in {_short(text)}")
        at = match.end()
        if match["end"]:
            commands.append([])
        elif match["redirect"]:
            target = "&" not in match["redirect"] or match["redirect"] == "&>"
        elif match["word"] and target:
            target = False
        elif match["word"]:
            commands[-1].append(Word.of(match["word"]))
    return commands


def _launch_of(commands: list[list[str]]) -> list[str]:
    return _launch(_chosen(commands))


def _chosen(commands: list[list[str]]) -> list[str]:
    """The one command, of several, that starts vLLM."""
    flagged = [command for command in commands if any(word.startswith("-") for word in command)]
    named = [command for command in flagged if any("vllm" in word for word in command)]
    started = [command for command in commands if any(word == "serve" or _MODULE.search(word) for word in command)]
    return next(iter((*started, *named, *flagged)), [])


_MODULE = re.compile(r"(^|[./])api_server(\.py)?$")
_NO_VALUE = {"-d", "--detach", "-i", "--interactive", "-t", "--tty", "-it", "-ti", "-dit", "-itd", "-di", "-dt", "-id", "-td", "--rm",
             "--init", "--privileged", "--read-only", "-P", "--publish-all", "-q", "--quiet", "--no-healthcheck", "--replace"}


def _launch(found: list[str]) -> list[str]:
    """A container's or Python's own words are cut off, up to where vLLM's arguments begin."""
    for at, word in enumerate(found):
        if word == "serve":
            return found[at:]
        if _MODULE.search(word):
            return found[at + 1:]
    runs = [at for at, word in enumerate(found) if word == "run" and at and re.search(r"(docker|podman|nerdctl)$", found[at - 1])]
    if not runs:
        return found
    at = runs[0] + 1
    while at < len(found) and found[at].startswith("-"):
        attached = "=" in found[at] or re.match(r"-\w[^=]", found[at])
        at += 1 if found[at] in _NO_VALUE or attached else 2
    return found[at + 1:]


# Lists


def _listed(text: str) -> list[str] | None:
    """The items of a JSON or YAML list, or of ``command:`` and ``args:`` in a larger file; None where there is none."""
    if text.startswith("["):
        return _flow(text)
    lines = text.splitlines()
    if not any(re.match(r"\s*(- )?\s*(command|args|entrypoint):", line) or re.match(r"\s*-\s+\S", line) for line in lines) or \
            text.startswith("--"):
        return None
    keyed = [(at, match) for at, line in enumerate(lines) if (match := re.match(r"(\s*(?:- +)?)(entrypoint|command|args):\s*(.*)$", line))]
    if not keyed:
        return list(_sequence(lines, -1))
    found = []
    for at, match in keyed:
        indent, value = len(match[1]), re.sub(r"(^|\s+)#.*$", "", match[3]) if not match[3].startswith(("[", "'", '"')) else match[3]
        below = lines[at + 1:]
        if value.startswith("["):
            found += _flow("\n".join([value, *below])) or []
        elif value.rstrip("+-") in (">", "|"):
            found += _launch_of(_commands("\n".join(_deeper(below, indent))))
        elif value:
            found += _launch_of(_commands("\n".join([value, *_deeper(below, indent)])))
        else:
            found += _sequence(below, indent)
    return found


def _deeper(lines: list[str], indent: int) -> Iterator[str]:
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            return
        yield line


def _sequence(lines: list[str], indent: int) -> Iterator[str]:
    """The items of a block list that stands at least as far to the right as its key."""
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        match = re.match(r"(\s*)-\s+(.*?)\s*$", line)
        if match is None or len(match[1]) < indent:
            if indent >= 0 and line.strip() and not line.lstrip().startswith("#"):
                return
            continue
        if match[2].rstrip("+-") in (">", "|"):
            block = list(_deeper(lines[at:], len(match[1])))
            at += len(block)
            yield "\n".join(block).strip()
        else:
            yield from _scalar(match[2])


def _scalar(text: str) -> list[str]:
    """One item of a YAML list: in quotation marks one word, else read as a shell would."""
    if text[0] == '"' and (match := re.match(r'"(?:[^"\\]|\\.)*"', text)):
        try:
            item = str(json.loads(match[0]))
        except ValueError:
            item = match[0][1:-1]
    elif text[0] == "'" and (match := re.match(r"'(?:[^']|'')*'", text)):
        item = match[0][1:-1].replace("''", "'")
    else:
        return [str(word) for word in sum(_commands(text), [])]
    return item.split(None, 1) if re.match(r"-\S+\s", item) and "=" not in item.split()[0] else [item]


def _flow(text: str) -> list[str] | None:
    """``["a", 'b', c]``: the items up to the closing bracket; None where it is not closed."""
    found, at = [], 1
    item = re.compile(r"""\s*(?:("(?:[^"\\]|\\.)*")|('(?:[^']|'')*')|([^\s,\]"'][^,\]]*))?\s*(,|\])""")
    while match := item.match(text, at):
        at = match.end()
        if match[1] or match[2]:
            found += _scalar(match[1] or match[2])
        elif match[3]:
            found.append(match[3].strip())
        if match[4] == "]":
            return found
    return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "…")
