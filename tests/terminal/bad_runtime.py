#!/usr/bin/python3
"""A runtime that does anything but its work: what, is said by the name that it was started by."""

import os
import pty
import socket
import sys
import time
from pathlib import Path

address = sys.argv[sys.argv.index("--console-socket") + 1]
what = Path(sys.argv[0]).name


def connect() -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    # The address may be longer than a socket's.
    directory = os.open(os.path.dirname(address), os.O_PATH)
    peer.connect(f"/proc/self/fd/{directory}/{os.path.basename(address)}")
    return peer


def send(count: int) -> None:
    peer = connect()
    ends = pty.openpty()
    if count:
        socket.send_fds(peer, [b" "], [ends[0]] * count)
    else:
        peer.send(b" ")
    # Until it is hung up.
    peer.recv(1)


if what == "ends":
    sys.stderr.write("no such device in this runtime\n")
    sys.exit(3)
elif what == "hangs":
    time.sleep(60)
elif what == "hangs-up":
    connect().close()
    time.sleep(60)
elif what == "connects-twice":
    first, second = connect(), connect()
    time.sleep(60)
elif what == "sends-none":
    send(0)
elif what == "sends-two":
    send(2)
elif what == "sends-a-file":
    socket.send_fds(connect(), [b" "], [os.open("/dev/null", os.O_RDWR)])
    time.sleep(60)
elif what == "sends-and-ends":
    socket.send_fds(connect(), [b" "], [pty.openpty()[0]])
    sys.stderr.write("it went no further\n")
    sys.exit(4)
elif what == "lets-another-connect":
    if not os.fork():
        send(1)
    time.sleep(60)
