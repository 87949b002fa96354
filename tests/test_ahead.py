"""A panel whose answer takes long works out the other stops of a slider while nobody waits."""
import asyncio
import functools

import pytest

pytest.importorskip("ipywidgets")

from kvlib import ahead, controls, traffic  # noqa: E402
from kvlib.controls import Choice, Number, Panel, View  # noqa: E402
from kvlib.errors import SizingError  # noqa: E402
from kvlib.panels.plan_for_traffic import WillItPreempt  # noqa: E402
from loops import in_a_loop  # noqa: E402
from panels import types  # noqa: E402


class Slow(Panel):
    name, ahead = "slow", True
    inputs = [Number("count", 30, min=10, max=60, step=10), Number("least", 0, min=0, max=60, step=10), Choice("way", ["up", "down"])]
    asked: list = []

    def follow(self, name, s):
        return {"least": s.count} if name == "count" and s.least > s.count else None

    def compute(self, s):
        self.asked.append((s.count, s.least, s.way))
        if s.count == 50:
            raise SizingError("50 is refused")
        return View(answer=str(s.count))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    controls.forget()
    Slow.asked.clear()
    monkeypatch.setattr(ahead, "QUIET", 0.02)
    monkeypatch.setattr(ahead, "BETWEEN", 0.001)
    yield
    controls.forget()


def shown_for(act, seconds=0.3):
    """What Slow computes while its loop runs, after an act."""
    async def run():
        controls.forget()
        panel = Slow()
        panel.card
        Slow.asked.clear()
        act(panel)
        await asyncio.sleep(seconds)
        return panel
    return in_a_loop(run()), list(Slow.asked)


def test_once_shown_the_first_slider_is_worked_out_nearest_first():
    panel, asked = shown_for(lambda panel: None)
    assert asked == [(20, 0, "up"), (40, 0, "up"), (10, 0, "up"), (50, 0, "up"), (60, 0, "up")]
    assert (panel.values.count, panel.view.answer, panel.error) == (30, "30", "")


def test_an_edit_begins_it_anew_along_its_own_slider_with_what_follows():
    _, asked = shown_for(lambda panel: types(panel, least="60"))
    assert asked == [(30, 60, "up"), *((30, least, "up") for least in (50, 40, 30, 20, 10, 0))]
    _, asked = shown_for(lambda panel: panel.set(least="40", count="40"))
    assert asked == [(40, 40, "up"), (30, 30, "up"), (50, 40, "up"), (20, 20, "up"), (60, 40, "up"), (10, 10, "up")]


def test_it_goes_no_further_than_a_hand_in_one_go():
    found = ahead.nearest_first(list(range(1_000)), at=500.4)
    assert (found[:4], len(found), min(found), max(found)) == ([499, 501, 498, 502], 32, 484, 516)


def test_a_menu_and_a_refusal_end_it():
    assert shown_for(lambda panel: types(panel, way="down"))[1] == [(30, 0, "down")]
    assert shown_for(lambda panel: types(panel, count="50"))[1] == [(50, 0, "up")]


def test_an_edit_is_not_kept_waiting_for_more_than_one_stop(monkeypatch):
    monkeypatch.setattr(ahead, "BETWEEN", 0.1)

    async def run():
        panel = Slow()
        panel.card
        Slow.asked.clear()
        while not Slow.asked:
            await asyncio.sleep(0)
        types(panel, count="60")
        await asyncio.sleep(0.3)
    in_a_loop(run())
    assert Slow.asked[:3] == [(20, 0, "up"), (60, 0, "up"), (50, 0, "up")]


def test_without_a_kernel_and_in_other_panels_nothing_is_worked_out(monkeypatch):
    Slow().card
    assert len(Slow.asked) == 1
    monkeypatch.setattr(Slow, "ahead", False)
    controls.forget()
    assert shown_for(lambda panel: types(panel, count="20"))[1] == [(20, 0, "up")]


def test_after_a_look_ahead_no_step_of_the_traffic_panel_simulates(monkeypatch):
    runs = []

    @functools.wraps(traffic.simulate)
    def counted(*args, **kwargs):
        runs.append(args)
        return simulate(*args, **kwargs)

    simulate = traffic.simulate
    monkeypatch.setattr(traffic, "simulate", counted)
    stops = WillItPreempt.inputs[0].every_stop()

    async def run():
        panel = WillItPreempt()
        runs.clear()
        panel.set(seed="77")
        panel.card
        while len(runs) < len(stops):
            await asyncio.sleep(0.01)
        for stop in stops:
            types(panel, a_minute=f"{stop}")
        return panel
    panel = in_a_loop(asyncio.wait_for(run(), 60))
    assert len(runs) == len(stops) and panel.values.a_minute == stops[-1] and not panel.error
