"""Found by every Python that has this folder on its path: no connection leaves the machine.

Each try is refused and written to the file named in KV_WALL_LOG, so that a test can count them.
"""
import os
import sys

LOOPBACK = ("", "localhost", "::1", "0.0.0.0", "::")


def stays_here(host):
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    return host is None or host in LOOPBACK or host.startswith("127.")


def wall(event, arguments):
    if event == "socket.getaddrinfo":
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if not isinstance(address, tuple):  # a socket in the file system
            return
        host = address[0]
    else:
        return
    if not stays_here(host):
        log = os.environ.get("KV_WALL_LOG")
        if log:
            with open(log, "a", encoding="utf-8") as out:
                print(event, host, file=out)
        raise OSError("the tests let no connection out: " + str(host))


sys.addaudithook(wall)
