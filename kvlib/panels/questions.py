"""What stands under each question of notebook 11, in one place to import from."""

from kvlib.panels.question_base import HYBRID
from kvlib.panels.questions_log import after_upgrade, at_once, printed_by_length, two_prints, ways_out, which_line
from kvlib.panels.questions_memory import cards, fixed_cache, held_elsewhere, planner, profiled, same_pool, shares, where_it_went
from kvlib.panels.questions_models import eight_gpus, fp8_gain, hybrid_blocks, split, too_many, window_table
from kvlib.panels.questions_traffic import hybrid_requests, preempting

__all__ = [
    "HYBRID",
    "after_upgrade",
    "at_once",
    "cards",
    "eight_gpus",
    "fixed_cache",
    "fp8_gain",
    "held_elsewhere",
    "hybrid_blocks",
    "hybrid_requests",
    "planner",
    "preempting",
    "printed_by_length",
    "profiled",
    "same_pool",
    "shares",
    "split",
    "too_many",
    "two_prints",
    "ways_out",
    "where_it_went",
    "which_line",
    "window_table",
]
