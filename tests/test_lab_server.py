"""What the Lab of run.py does otherwise than a plain one."""
import asyncio
import socket

import pytest

pytest.importorskip("jupyter_server")

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection  # noqa: E402
from kvlib.lab_server import PromptConnection  # noqa: E402
from loops import in_a_loop  # noqa: E402
from tornado import httpserver, web, websocket  # noqa: E402


def test_small_messages_are_not_held_back(monkeypatch):
    """The socket of a page's connection to its kernel sends what it has; Tornado's own, at first, does not."""
    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "connect", lambda self: "connected")
    found = []

    class Kernel(websocket.WebSocketHandler):
        def open(self):
            sock = self.ws_connection.stream.socket
            found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
            connection = PromptConnection.__new__(PromptConnection)
            connection._trait_values["websocket_handler"] = self   # which is not quite Jupyter's
            found.append(connection.connect())
            found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)

    async def meet():
        server = httpserver.HTTPServer(web.Application([("/", Kernel)]))
        server.listen(0, "127.0.0.1")
        port = next(iter(server._sockets.values())).getsockname()[1]
        page = await websocket.websocket_connect(f"ws://127.0.0.1:{port}/")
        while len(found) < 3:
            await asyncio.sleep(0.01)
        page.close()
        server.stop()

    in_a_loop(asyncio.wait_for(meet(), 20))
    assert found == [False, "connected", True]
