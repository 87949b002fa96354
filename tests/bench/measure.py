"""Timing that can be repeated: samples, their median and spread, and the exponent of a growth curve.

Seconds are processor time of this process, so that others on the same machine disturb less.
"""
import math
import statistics
from time import process_time as clock


def per_call(call, number):
    """Seconds per call over ``number`` calls."""
    start = clock()
    for _ in range(number):
        call()
    return (clock() - start) / number


def enough(call, seconds):
    """How many calls fill that time."""
    spent = max(per_call(call, 1), 1e-9)
    return max(1, math.ceil(seconds / spent))


def sampled(call, samples=9, seconds=0.05):
    """Seconds per call, one figure a sample, each over some ``seconds`` of calls."""
    call()
    number = enough(call, seconds)
    return [per_call(call, number) for _ in range(samples)]


def in_turn(calls, rounds=9):
    """Samples of several measures, taken in turn: this way all see the same machine, fast or slow.

    ``calls`` maps a name to a function that returns one sample in seconds.
    """
    found = {name: [] for name in calls}
    for _ in range(rounds):
        for name, sample in calls.items():
            found[name].append(sample())
    return found


def summary(samples):
    """Median, quartiles and least of some samples."""
    low, median, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
    return {"median": median, "low": low, "high": high, "least": min(samples), "samples": len(samples)}


def ratio(found, slow, fast):
    """How many times as long ``slow`` takes: the median of the rounds' own ratios, which drift less than their parts."""
    return summary([one / other for one, other in zip(found[slow], found[fast])])


def exponent(points):
    """The slope of log(seconds) over log(size), by least squares: 1 is linear growth, 0 none."""
    xs, ys = [[math.log(value) for value in column] for column in zip(*points)]
    middle_x, middle_y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys)) / sum((x - middle_x) ** 2 for x in xs)
