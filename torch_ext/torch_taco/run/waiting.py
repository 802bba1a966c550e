"""How the hosts that do not start mpirun learn that it is over.

The first host listens on a port as long as the job runs. The others connect, say which job they belong to, and read:
one line with the exit code comes when mpirun has ended. A connection that breaks before that line means that the
first host has died, and is an error. A host that comes late finds the port for a while after the end.
"""

import hashlib
import selectors
import socket
import threading
import time

from torch_taco import _launch
from torch_taco.run.plan import CannotStart

LATE_SECONDS = 30.0  # how long the first host waits at the end for those that have not connected yet
_LINE = 200  # no line of this protocol is longer


def token_of(hosts, script):
    """Tells jobs apart that use one port: all hosts of a job run the same command."""
    return hashlib.sha256("\0".join([*hosts, *script]).encode()).hexdigest()[:32]


class Announcer:
    """The first host's side."""

    def __init__(self, port, token, others):
        try:
            self._listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True) \
                if socket.has_dualstack_ipv6() else socket.create_server(("", port))
        except OSError:
            _launch.check_port(port, "--port of taco run")
            raise
        self._token, self._others = token, others
        self._waiting = []
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._serve, name="taco-run-waiting", daemon=True).start()

    def _serve(self):
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._ended:
                for key, _ in selector.select(timeout=0.2):
                    if key.fileobj is self._listener:
                        peer, _ = self._listener.accept()
                        peer.settimeout(5)
                        selector.register(peer, selectors.EVENT_READ)
                        continue
                    selector.unregister(key.fileobj)
                    self._greet(key.fileobj)

    def _greet(self, peer):
        try:
            if peer.recv(_LINE).decode(errors="replace").strip() != self._token:
                peer.close()
                return
        except OSError:
            peer.close()
            return
        with self._changed:
            self._waiting.append(peer)
            self._changed.notify()

    def missing(self):
        with self._changed:
            return max(0, self._others - len(self._waiting))

    def end(self, code, late_seconds=LATE_SECONDS):
        """Tells everybody the exit code; waits a while for hosts that have not asked yet."""
        deadline = time.monotonic() + late_seconds
        with self._changed:
            while len(self._waiting) < self._others and time.monotonic() < deadline:
                self._changed.wait(deadline - time.monotonic())
            self._ended = True
            for peer in self._waiting:
                try:
                    peer.sendall(f"{code}\n".encode())
                    peer.close()
                except OSError:
                    pass  # it has gone by itself
        self._listener.close()


def wait_for_end(host, port, token, patience_seconds, say):
    """The other hosts' side: the job's exit code, when it is over."""
    _launch.wait_for_listener(host, port, patience_seconds, say, "the first host of the host list")
    with socket.create_connection((host, port), timeout=30) as connection:
        # The first host may vanish without a word: then the kernel must find out.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.settimeout(None)
        connection.sendall(f"{token}\n".encode())
        try:
            answer = connection.makefile().readline(_LINE).strip()
        except OSError as error:
            answer = ""
            reason = str(error)
        else:
            reason = "the connection was closed"
    if not answer.lstrip("-").isdigit():
        raise CannotStart(f"{host} has not said how the job ended ({reason}): its `taco run` was killed, or it runs "
                          "another command; see its log")
    return int(answer)
