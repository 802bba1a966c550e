"""Where this host listens for the others of a job."""

import socket


def listen(host, port):
    """A listening socket on one address of this host; on all of them, of both kinds, where host is ""."""
    if host or not socket.has_dualstack_ipv6():
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
