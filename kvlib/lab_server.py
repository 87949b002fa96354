"""How the Lab that run.py starts talks to its kernels. Nothing else imports this: it needs jupyter_server."""
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):
    """A kernel's messages leave for the page as they come.

    Otherwise the system keeps back the second of two small ones until the page has confirmed the first (Nagle's algorithm), which the
    page's side puts off for 40 ms (delayed acknowledgement); and each step of a control is answered by several small ones.
    """

    def connect(self):
        self.websocket_handler.set_nodelay(True)
        return super().connect()
