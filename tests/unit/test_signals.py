"""The second signal ends a process at once, whatever it is doing."""

import io
import os
import signal
import sys

import pytest

from streamkit.cli import signals


class Ended(BaseException):
    """The process would have ended here."""


class SignalledOnce(io.RawIOBase):
    """A stderr that a signal reaches in the middle of its first line."""

    signals = 1

    def writable(self):
        return True

    def write(self, text):
        if self.signals:
            self.signals -= 1
            signal.raise_signal(signal.SIGTERM)
        return len(text)


def ended(code):
    raise Ended(code)


async def test_a_second_signal_in_the_middle_of_a_log_line_ends_the_process(monkeypatch):
    monkeypatch.setattr(os, "_exit", ended)
    raw = io.BufferedWriter(SignalledOnce())
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, line_buffering=True))
    with signals.graceful(lambda: None):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Ended, match="130"):
            sys.stderr.write("process.draining\n")


async def test_signals_are_handled_as_before_when_the_work_is_over():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with signals.terminable(), signals.graceful(lambda: None):
        pass
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
