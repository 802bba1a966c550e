"""How the hosts that do not start mpirun learn that it is over.

The first host listens on a port as long as the job runs. The others connect, say in a line which job they belong to
and who they are, and read two lines: "taco" at once, by which they know that they have come to the right place, and
the exit code when mpirun has ended. A connection that breaks before that line means that the first host has died, and
is an error. A host that comes late finds the port for a while after the end.
"""

import contextlib
import hashlib
import re
import selectors
import socket
import threading
import time

from torch_taco import _launch
from torch_taco._listen import listen
from torch_taco.run.plan import CannotStart

LATE_SECONDS = 30.0  # how long the first host waits at the end for those that have not connected yet
PROGRESS_SECONDS = 300.0  # how often a host says that it still waits
_GREETING_SECONDS = 10.0  # how long either side may take to say its first line
_GREETING = "taco"
_LINE = 400  # no line of this protocol is longer
_MOST_STRANGERS = 256  # connections that have not said yet who they are: whoever comes then takes the oldest's place


def token_of(hosts, script):
    """Tells jobs apart that use one port: all hosts of a job run the same command."""
    return hashlib.sha256("\0".join([*hosts, *script]).encode()).hexdigest()[:32]


class Announcer:
    """The first host's side."""

    def __init__(self, port, token, others):
        try:
            self._listener = listen("", port)
        except OSError:
            _launch.check_port(port, "--port of taco run")
            raise
        self._token, self._others = token, others
        self._waiting = []  # (host, connection); a host that was started again is there twice
        self._changed = threading.Condition()
        self._code = None
        self._thread = threading.Thread(target=self._serve, name="taco-run-waiting", daemon=True)
        self._thread.start()

    def _serve(self):
        strangers = {}  # connection -> [what it has said so far, until when it may finish its line]
        with selectors.DefaultSelector() as selector:

            def forget(peer):
                del strangers[peer]
                selector.unregister(peer)

            self._listener.setblocking(False)
            selector.register(self._listener, selectors.EVENT_READ)
            while self._code is None:
                for key, _ in selector.select(timeout=0.2):
                    peer = key.fileobj
                    if peer is self._listener:
                        try:
                            peer, _ = self._listener.accept()
                        except BlockingIOError:
                            continue  # it has gone again
                        except OSError:  # too many open files, or a connection that was reset: others may come
                            time.sleep(0.1)
                            continue
                        if len(strangers) >= _MOST_STRANGERS:
                            oldest = next(iter(strangers))
                            forget(oldest)
                            oldest.close()
                        peer.setblocking(False)
                        selector.register(peer, selectors.EVENT_READ)
                        strangers[peer] = [b"", time.monotonic() + _GREETING_SECONDS]
                        continue
                    if peer not in strangers:
                        continue  # it has just made room for another
                    try:
                        part = peer.recv(_LINE)
                    except BlockingIOError:
                        continue
                    except OSError:
                        part = b""
                    strangers[peer][0] += part
                    line = strangers[peer][0]
                    if part and b"\n" not in line and len(line) <= _LINE:
                        continue  # the rest of the line comes in another segment
                    forget(peer)
                    self._greet(peer, line)
                for peer in [peer for peer, (_, until) in strangers.items() if time.monotonic() >= until]:
                    forget(peer)
                    peer.close()
        for peer in strangers:
            peer.close()

    def _greet(self, peer, line):
        token, _, host = line.decode(errors="replace").partition("\n")[0].strip().partition(" ")
        with contextlib.suppress(OSError), self._changed:
            if b"\n" in line and token == self._token:
                peer.settimeout(5)
                peer.sendall(f"{_GREETING}\n".encode())
                self._waiting.append((host, peer))
                self._changed.notify()
                if self._code is not None:
                    self._tell(peer)
                return
        peer.close()

    def missing(self):
        """How many of the other hosts have not asked."""
        with self._changed:
            return self._missing()

    def _missing(self):
        return max(0, self._others - len({host for host, _ in self._waiting}))

    def _tell(self, peer):
        with contextlib.suppress(OSError):  # it may have gone by itself
            peer.sendall(f"{self._code}\n".encode())
            peer.close()

    def end(self, code, late_seconds=LATE_SECONDS):
        """Tells everybody the exit code; waits a while for hosts that have not asked yet."""
        deadline = time.monotonic() + late_seconds
        with self._changed:
            while self._missing() and time.monotonic() < deadline:
                self._changed.wait(deadline - time.monotonic())
            self._code = code
            for _, peer in self._waiting:
                self._tell(peer)
        self._thread.join()
        self._listener.close()


def wait_for_end(host, port, token, patience_seconds, say, name=None):
    """The other hosts' side: the job's exit code, when it is over. name: this host's, by which it is counted."""
    started = time.monotonic()
    address = _launch.wait_for_listener(host, port, patience_seconds, say, "the first host of the host list")
    where = _launch.host_and_port(host, port)
    reason = "the connection was closed"
    answer = ""
    try:
        with socket.create_connection((address, port), timeout=30) as connection:
            # The first host may vanish without a word: then the kernel must find out.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.sendall(f"{token} {name or socket.gethostname()}\n".encode())
            lines = _Lines(connection)
            greeting = lines.next(_GREETING_SECONDS)
            if greeting not in (_GREETING, ""):
                raise CannotStart(f"{where} answers, but not as the `taco run` that starts this job{_said(greeting)}: "
                                  "another service has this port; choose another with --port, the same on all hosts")
            if greeting:
                while (answer := lines.next(PROGRESS_SECONDS)) is None:
                    say(f"still waiting for the job that {host} has started to end, "
                        f"{(time.monotonic() - started) / 60:.0f} min so far")
    except OSError as error:
        reason = str(error)
    if not re.fullmatch("-?[0-9]{1,9}", answer):
        raise CannotStart(f"{host} has not said how the job ended ({reason}): its `taco run` was killed, or it runs "
                          "another command; see its log")
    return int(answer)


def _said(greeting):
    return f" (it says nothing within {_GREETING_SECONDS:g} s)" if greeting is None else f" (it says {greeting!r})"


class _Lines:
    """The lines that come over a connection, with a patience for each."""

    def __init__(self, connection):
        self._connection, self._rest = connection, b""

    def next(self, seconds):
        """A line; "" when the connection is closed, None when none has come in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest and len(self._rest) <= _LINE:
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                part = self._connection.recv(_LINE)
            except TimeoutError:
                if time.monotonic() >= deadline:
                    return None
                continue
            if not part:
                return ""
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").strip()
