"""One page for states and tokens (Table 1 of the hybrid note), and a request's blocks of state by release."""

from __future__ import annotations

from functools import lru_cache

import altair as alt

from kvlib import charts
from kvlib.controls import Choice, Col, Panel, Predict, View, gib, html, strong, table
from kvlib.log_lines import state_padding_percent
from kvlib.panels.drawing import INK, box, canvas, word
from kvlib.panels.hybrid_inputs import CACHE_DTYPE, DRAFTS, GPU, PREFIX_CACHING, TP, own
from kvlib.panels.hybrid_setups import AVAILABLE_GIB, H100, LENGTH, MODEL, blocks, drafts, launch, readable
from kvlib.resolve import GDN_CHECKPOINT_TOKENS
from kvlib.spec import state_shapes
from kvlib.units import KiB

W = charts.WIDTH
_PAGE_LIMIT, _STEP_WIDE, _STATE_AT = 3300, 92, 338  # KiB; pixels of one step; pixels where the state ends


class OnePage(Panel):
    """How a block of attention is made as large as a state."""

    name = "08-one-page"
    title = "Qwen3.8-27B: one state and one block of tokens, per layer and per GPU"
    inputs = [TP, CACHE_DTYPE, DRAFTS, PREFIX_CACHING, GPU]
    predict = Predict(
        "The block is 1,568 tokens at TP = 2 with an FP8 cache. How many tokens is it at TP = 4?",
        answer=lambda: launch(tensor_parallel_size=4).block_size, unit="tokens", within=1,
        because="The state halves and so does a token's share, so as many tokens fill it as before.")

    def chart(self):
        x = charts.axis_x("start", "KiB in one layer on one GPU", (0, _PAGE_LIMIT))
        y = alt.Y("y:Q", scale=alt.Scale(domain=[100, 0], nice=False), axis=None)
        bars = alt.Chart(alt.NamedData("page")).mark_rect(stroke=INK, strokeOpacity=0.5, strokeWidth=0.7).encode(
            x=x, x2="end:Q", y=y, y2="y2:Q", color=own(), tooltip=["tip:N"])
        words = alt.Chart(alt.NamedData("page_words")).mark_text(align="left", dx=6, baseline="middle").encode(
            x=x, y=y, text="text:N", color=own("ink"))
        guess = alt.Chart(alt.NamedData("guess")).encode(x=alt.X("value:Q"))
        rule = guess.mark_rule(strokeDash=[5, 4], strokeWidth=2)
        said = guess.mark_text(align="left", dx=5, fontStyle="italic").encode(y=alt.Y("y:Q"), text="label:N")
        return [(bars + words + rule + said).properties(width=W, height=150), canvas("steps", height=160)]

    def compute(self, s):
        found = launch(tensor_parallel_size=s.tensor_parallel_size, kv_cache_dtype=s.kv_cache_dtype, gpu=s.gpu,
                       enable_prefix_caching=s.enable_prefix_caching, **drafts(MODEL, s.num_speculative_tokens))
        state, attention = _specs(found)
        boxes, words = _steps_drawn(found, state, attention)
        rows = {"page": _page_boxes(state), "page_words": _page_words(state, attention), "steps": boxes,
                "steps_words": words, "guess": _guess_row(self.guess, attention)}
        return View(
            answer=html("A block is {} tokens: the fewest in steps of {} whose keys and values fill the page of a state.",
                        strong(f"{attention.block_size:,}"), _granule(found)),
            rows=rows, table=_table_1(s, found, state, attention),
            description=[f"State {state.unpadded_bytes:,} bytes, padded to {state.page_size_bytes:,}; block of "
                         f"{attention.block_size:,} tokens.",
                         f"One step less is too small; a sequence takes {blocks(found)[1]} blocks of state."])


def _specs(found):
    """The spec of a state and the spec of attention."""
    specs = [group.specs[0][0] for group in found.groups]
    return next(spec for spec in specs if spec.state_blocks), next(spec for spec in specs if not spec.state_blocks)


def _granule(found) -> int:
    """The steps, in tokens, in which the block grows until it fills the page."""
    setup = found.plan.setup
    checkpoints = setup.gdn_prefill_backend == "flashinfer" and found.engine.enable_prefix_caching
    return max(setup.backend.kernel_block, GDN_CHECKPOINT_TOKENS if checkpoints else 1)


def _guess_row(guess, attention):
    """Where a block of the guessed tokens would end."""
    if guess is None:
        return []
    return [{"value": guess * attention.bytes_per_token / KiB, "y": 92, "label": f"your {guess:,} tokens"}]


def _page_boxes(state):
    size, page = state.unpadded_bytes / KiB, state.page_size_bytes / KiB
    rows = ((4, 0, size, "state", "one state"), (4, size, page, "padding", "padding"),
            (48, 0, page, "kv", "one block of tokens"))
    return [{"start": a, "end": b, "y": y, "y2": y + 34, "colour": charts.COLOURS[meaning], "tip": tip}
            for y, a, b, meaning, tip in rows]


def _page_words(state, attention):
    """Names in the boxes, or to their right where the boxes are short."""
    end = attention.page_size_bytes / KiB
    inside = end > _PAGE_LIMIT * 0.42
    texts = ((21, f"one GDN state: {gib(state.unpadded_bytes)}", "state"),
             (65, f"{attention.block_size:,} tokens × {attention.bytes_per_token:,} B: "
                  f"{gib(attention.page_size_bytes)}", "kv"))
    return [{"start": 0 if inside else end, "y": y, "text": text,
             "ink": charts.ink_on(charts.COLOURS[meaning]) if inside else INK} for y, text, meaning in texts]


def _steps_drawn(found, state, attention):
    """The last blocks that are too small, the first that is large enough, and a sequence's blocks of state."""
    step, per_token = _granule(found), attention.bytes_per_token
    boxes, words = [], [word(0, 8, f"The last steps of {step} tokens, against the state:", bold=True)]
    for line in range(4):
        tokens = attention.block_size - (3 - line) * step
        over = tokens * per_token - state.unpadded_bytes
        wide, y, short = min(290, abs(over) / (step * per_token) * _STEP_WIDE), 22 + line * 22, over < 0
        boxes.append(box(_STATE_AT - wide if short else _STATE_AT, y, wide, 16, "refused" if short else "padding"))
        words += [word(_STATE_AT + (8 if short else wide + 8), y + 8,
                       f"{gib(abs(over))} {'short' if short else 'of padding'}"),
                  word(0, y + 8, f"{tokens:,}", bold=not short)]
    boxes.append(box(_STATE_AT - 0.75, 20, 1.5, 90, INK))
    groups = [group for group in found.groups if not group.is_attention]
    each = groups[0].blocks_per_request
    words.append(word(0, 130, f"State of one sequence: {len(groups)} groups × {each} = {len(groups) * each} blocks",
                      bold=True))
    boxes += [box(group * (each * 14 + 12) + block * 14, 142, 12, 12, "state", tip=f"group {group + 1}")
              for group in range(len(groups)) for block in range(each)]
    return boxes, words


def _table_1(s, found, state, attention):
    gdn = next(layer for layer in MODEL.layers if layer.kind == "gdn")
    (_, conv), (_, ssm) = state_shapes(gdn, s.tensor_parallel_size, s.num_speculative_tokens)
    heads, width, _ = attention.geometry
    tokens, per_token, page = attention.block_size, attention.bytes_per_token, attention.page_size_bytes
    rows = [
        ("State of one GDN layer", f"{ssm[0]} × {ssm[1]} × {ssm[2]} × 4 B + {conv[0]} × {conv[1]:,} × 2 B",
         state.unpadded_bytes),
        ("Keys and values of one token", f"{heads} × {width} × 2 × {1 if s.kv_cache_dtype == 'fp8' else 2} B", per_token),
        (f"Keys and values of one block of {tokens:,} tokens", f"{tokens:,} × {per_token:,} B", page),
        ("Padding of a state's page", f"{state_padding_percent(found):.2f} % of the state", page - state.unpadded_bytes),
        ("One block of the pool", f"one page in each of {max(g.layers for g in found.groups)} layers",
         found.bytes_per_block)]
    return table([dict(zip(("what", "how", "bytes"), row)) for row in rows],
                 [Col("what", "Per layer and per GPU (last row: all layers of a group)", fmt="text"),
                  Col("how", "How", fmt="text"), Col("bytes", "Bytes")])


VERSIONS = ("0.20.0", "0.28", "0.30", "0.32", "0.33")
_HYBRIDS = ("Qwen3.8-27B", "Qwen3-Next-80B-A3B", "Granite-4.0-H-Small", "Nemotron-H-8B", "Falcon-H1-7B", "Jamba-v0.1",
            "Kimi-Linear-48B-A3B", "LFM2-2.6B")


class StateByVersion(Panel):
    """How many blocks of state a request takes, release by release."""

    name = "08-state-by-version"
    title = f"Blocks of state in one group, by release ({AVAILABLE_GIB} GiB a GPU, TP = 2, FP8 cache)"
    inputs = [
        Choice("model", {name: readable()[name] for name in _HYBRIDS}, MODEL, label="Model",
               help="Hybrids with every kind of state."),
        GPU, PREFIX_CACHING, DRAFTS,
    ]
    predict = Predict(
        "Two H100 and vLLM 0.33, prefix caching on: how many blocks of state does a request of Qwen3.8-27B take in "
        "one group?", answer=lambda: _state_group(by_version(MODEL, "0.33", H100, True, 0)).blocks_per_request,
        unit="blocks", within=0, because="FlashInfer's prefill keeps one more checkpoint, at a multiple of 64 tokens.")

    def chart(self):
        x = charts.axis_x("start", "blocks of state in one group", (0, 12))
        y = alt.Y("version:O", axis=alt.Axis(title="vLLM", domain=False),
                  scale=alt.Scale(domain=["", *VERSIONS], paddingInner=0.3))  # "": room for the guess
        edge = charts.ink_on(charts.COLOURS["state"])
        bars = alt.Chart(alt.NamedData("state")).mark_bar(stroke=edge, strokeWidth=1).encode(
            x=x, x2="end:Q", y=y, color=own())
        words = alt.Chart(alt.NamedData("state_words")).mark_text(align="left", dx=7).encode(x=x, y=y, text="text:N")
        return (bars + words + charts.guess_rule()).properties(width=W, height=230)

    def compute(self, s):
        found = {version: by_version(s.model, version, s.gpu, s.enable_prefix_caching, s.num_speculative_tokens)
                 for version in VERSIONS}
        lines = [_version_line(version, sizing) for version, sizing in found.items()]
        length = f"{found['0.33'].max_model_len:,}"
        bars = [{"version": line["version"], "start": n, "end": n + 1, "colour": charts.COLOURS["state"]}
                for line in lines for n in range(line["each"])]
        words = [{"version": line["version"], "start": line["each"], "text": f"× {line['groups']} = {line['all']}"
                  if line["groups"] > 1 else ""} for line in lines]
        return View(
            answer=_version_answer(lines[1], lines[-1]), note=_version_note(s),
            rows={"state": bars, "state_words": words, "guess": charts.guess_rows(self.guess)},
            table=table(lines, [
                Col("version", "vLLM", fmt="text"), Col("each", "State a group"), Col("all", "State a request"),
                Col("block", "Block", "int", "tokens"), Col("request", f"Blocks a request of {length}"),
                Col("pool", "Blocks in the pool"), Col("printed", "Printed size", "int", "tokens"),
                Col("basis", "Release was", fmt="text")]),
            description="; ".join(f"vLLM {line['version']}: {line['each']} blocks of state a group, "
                                  f"{line['printed']:,} tokens" for line in lines) + ".")


@lru_cache(maxsize=1024)
def by_version(model, version, gpu, caching, tokens):
    """The launch of the log with another model, release, card, prefix caching and number of draft tokens."""
    length = min(LENGTH, model.max_position_embeddings or LENGTH)
    return launch(model, vllm_version=version, gpu=gpu, enable_prefix_caching=caching, max_model_len=length,
                  **drafts(model, tokens))


def _state_group(found):
    return next(group for group in found.groups if not group.is_attention)


def _version_line(version, found):
    each, groups = _state_group(found).blocks_per_request, sum(not group.is_attention for group in found.groups)
    return {"version": version, "each": each, "groups": groups, "all": each * groups, "block": found.block_size,
            "request": found.blocks_per_request, "pool": found.num_gpu_blocks, "printed": found.kv_cache_tokens,
            "basis": "run" if found.engine.version.proved else "read"}


def _version_answer(older, newer):
    if older["each"] == newer["each"]:
        return html("From 0.28 to 0.33 a request takes {} blocks of state in each group; nothing changes.",
                    strong(newer["each"]))
    return html("From 0.28 to 0.33 a group went from {} blocks of state to {}; the same memory prints {} tokens, not {}.",
                older["each"], strong(newer["each"]), strong(f"{newer['printed']:,}"), f"{older['printed']:,}")


def _version_note(s):
    note = ("Up to 0.20.0 the printed size was another figure: blocks // groups × smallest block. 0.20.0 was read in "
            "its source; the other releases were run.")
    if s.num_speculative_tokens and not s.model.draft_layers:
        note += f" {s.model.name} has no MTP layer, so the drafts are n-gram's."
    return note
