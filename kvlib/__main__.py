"""Without a browser: ``python -m kvlib size config.json --gpu "RTX 4090" -- --max-model-len 32768`` and
``python -m kvlib log server.log``.

Ends with 0 where the launch passes vLLM's memory checks, 1 where it is refused, 3 where it is too close to call, and 2
where something cannot be read.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from .budget import Typed
from .command import engine_from_flags, flag_value, read_command
from .errors import SizingError
from .fit import Fit, fit
from .improve import improvements, needs
from .ranges import gib_span
from .serve_line import serve_line
from .take_along import figures, foretold, headline, holds, lines_to_expect, save, ticket
from .verdict import NOT_CHECKED
from .vllm_log import read_log
from .weights import QUANTIZATIONS

EXIT = {"passes": 0, "refused": 1, "close": 3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status.

    >>> main(["size", "Qwen3-8B", "--gpu", "H100 SXM 80GB", "--", "--max-model-len", "32768"])   # doctest: +ELLIPSIS
    Qwen3-8B on one H100 SXM 80GB, requests of up to 32,768 tokens: passes vLLM's memory checks.
    ...
    0
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    serve = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, serve = arguments[:at], arguments[at + 1:]
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        print(f"kvlib: {unknown[0]} is no option of kvlib; flags of vllm serve stand after --, as: -- --max-model-len 32768",
              file=sys.stderr)
        return 2
    try:
        return options.run(options, shlex.join(serve))
    except SizingError as problem:
        print(f"kvlib: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 2


def _count(text: str) -> int:
    return flag_value("max_num_seqs", text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m kvlib", description="How big is a vLLM server's KV cache?")
    commands = parser.add_subparsers(required=True)
    sizing = commands.add_parser("size", help="before a launch: will it fit, and how many requests?",
                                 epilog="After -- come the flags of vllm serve, as --max-model-len 32768.")
    sizing.add_argument("config", help="a config.json, its folder, or a name of the catalogue; - takes the model after --")
    sizing.add_argument("--gpu", help="a card, as \"RTX 4090\"; left out: 80 GiB")
    sizing.add_argument("--vllm-version", help="0.18 to 0.33")
    sizing.add_argument("--quantization", choices=[*QUANTIZATIONS, "none"], help="how the weights are stored")
    for name in Typed.__dataclass_fields__:
        sizing.add_argument("--" + name.replace("_", "-"), type=float, metavar="GiB", help="known: used in place of an assumption")
    sizing.add_argument("--log", help="a start-up log, whose measured terms are used")
    sizing.add_argument("--requests", type=_count, help="how many requests are to fit at once")
    sizing.add_argument("--tokens", type=_count, help="tokens of each of them")
    sizing.add_argument("--download", action="store_true", help="fetch the config from the Hub (needs huggingface_hub)")
    shown = sizing.add_mutually_exclusive_group()
    shown.add_argument("--ticket", action="store_true", help="print Markdown for a ticket")
    shown.add_argument("--json", action="store_true", help="print the figures as JSON")
    shown.add_argument("--save", action="store_true", help="print the set-up as JSON that the notebook re-opens")
    shown.add_argument("--steps", action="store_true", help="print every step from the config to the figure")
    sizing.set_defaults(run=_size)
    log = commands.add_parser("log", help="after a launch: each figure of a start-up log, recomputed")
    log.add_argument("log", help="a file, or - for standard input")
    log.add_argument("--config", help="the model's config.json, its folder, or a name of the catalogue")
    log.set_defaults(run=_log)
    return parser


def _size(options, serve: str) -> int:
    config = None if options.config == "-" else options.config
    if options.download and config:
        from .hub import download_config

        config = download_config(config)
    typed = {name: getattr(options, name) for name in Typed.__dataclass_fields__ if getattr(options, name) is not None}
    log = _read(options.log) if options.log else ""
    found = fit(config, _on_the_log(serve, log), log=log, gpu=options.gpu,
                vllm_version=options.vllm_version, quantization=options.quantization, **typed)
    if options.ticket:
        print(ticket(found, options.tokens))
    elif options.json:
        better = [{"change": each.name, "gain": each.gain, "gives_up": each.gives_up} for each in improvements(found)]
        print(json.dumps({**figures(found), "reason": found.verdict.reason, "cautions": found.cautions, "improvements": better}, indent=1))
    elif options.save:
        print(save(found))
    elif options.steps:
        for step in found.typical.steps():
            print(f"{step.name:34} {step.value!s:>22} {step.unit:8} {step.kind:9} {step.numbers}")
    else:
        _say(found, options.requests, options.tokens)
    return EXIT[found.verdict.word]


def _on_the_log(serve: str, log: str) -> str:
    """The flags given, over those of the log: what is not changed stays as it was launched."""
    flags = read_log(log).last.flags if log.strip() else {}
    if not flags or not serve.strip():
        return serve
    other = read_command(serve)[1]
    print("from the log: the flags that are not given here", file=sys.stderr)
    return serve_line(*engine_from_flags({**flags, **other.given}, other.model or read_log(log).last.model))


def _say(found: Fit, requests: int | None, tokens: int | None) -> None:
    print(headline(found))
    for text in (holds(found, tokens), found.settles):
        if text:
            print(text)
    for caution in found.cautions:
        print(f"Caution: {caution}.")
    for flag, what in found.other.takes_memory.items():
        print(f"--{flag.replace('_', '-')} takes memory that is not counted here: {what}.")
    for note in (*found.notes, *found.typical.notes):
        print(f"Note: {note}.")
    better = improvements(found)
    if better:
        print("\nWhat helps:" if found.verdict.word != "passes" else "\nWhat would hold more:")
        for each in better[:6]:
            print(f"  {each.name}: {each.gain}; gives up {each.gives_up}")
    if requests and tokens:
        _say_needs(found, requests, tokens)
    print("\nExpect in the log:")
    for line in lines_to_expect(found):
        print(f"  {line}")
    print("\n" + found.serve)
    print(NOT_CHECKED)
    for row in foretold(found):
        print(f"{row.figure}: printed {row.printed:,}, {row.verdict} {row.low:,.2f} to {row.high:,.2f} that was to be expected")


def _say_needs(found: Fit, requests: int, tokens: int) -> None:
    need = needs(found, requests, tokens)
    print(f"\n{requests:,} requests of {tokens:,} tokens need {gib_span(need.available_bytes, need.available_bytes, 2)} GiB for the "
          f"cache on each GPU: a card of {gib_span(need.total_bytes[0], need.total_bytes[2])} GiB.")
    for what, (surely, perhaps) in (("tensor_parallel_size", need.tensor_parallel_size), ("card", need.gpu)):
        print(f"  smallest {what}: {surely or 'none on the list'}" + (f" (perhaps {perhaps})" if perhaps != surely else ""))


def _log(options, serve: str) -> int:
    from .explanation import explain

    text = _read(options.log)
    found = explain(text, model=options.config)
    for line in found.lines:
        print(f"{line.name:26} printed {line.printed!s:>16}   recomputed {line.recomputed!s:>24}   {line.verdict}"
              + (f": {line.reason}" if line.reason else ""))
    for note in found.notes:
        print(f"Note: {note}.")
    refusal = read_log(text).last.refusal
    if refusal is not None:
        print(f"The launch was refused ({refusal.kind}); what to change: python -m kvlib size CONFIG --gpu NAME --log {options.log}")
    print(f"All in all: {found.verdict}.")
    return 0 if found.verdict in ("exact", "within rounding") and refusal is None else 1


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        if Path(name).exists() and not (Path(name).is_file() or Path(name).is_fifo()):
            raise SizingError(f"{name} is not a file; give a start-up log, or - for standard input")
        return Path(name).read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise SizingError(f"{name} cannot be read: {problem.strerror or problem}") from None


if __name__ == "__main__":
    sys.exit(main())
