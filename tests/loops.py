"""A loop for what a test awaits."""
import asyncio
from concurrent.futures import ThreadPoolExecutor


def in_a_loop(coroutine):
    """What it returns, from a loop in a thread of its own: a browser that other tests drive keeps one running in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
