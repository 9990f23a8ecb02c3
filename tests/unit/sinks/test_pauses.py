"""Answers: a pause that is asked for holds up further calls, and no more is read than is needed."""

import anyio
import httpx
import pytest

from streamkit.sinks.endpoint import Endpoint, Refused, seconds_of
from streamkit.testing.loop import VirtualClock, run_virtually

PAUSE_MAX = 60.0


def begun(*calls):
    """Post at some moments, each with its answer: status, `Retry-After`, how long it takes.

    Return when the receiver got each.
    """
    got = {}

    async def answer(request):
        name = request.content.decode()
        got[name] = round(anyio.current_time(), 3)
        _, status, asked, seconds = calls[int(name)]
        await anyio.sleep(seconds)
        return httpx.Response(status, headers={"Retry-After": asked} if asked else {})

    async def run():
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport) as client, anyio.create_task_group() as g:
            endpoint = Endpoint("hook", client, 10.0, PAUSE_MAX, VirtualClock())
            for number, (at, *_) in enumerate(calls):
                await anyio.sleep_until(at)
                g.start_soon(endpoint.post, "http://hook", b"%d" % number, {})

    run_virtually(run)
    return [got[name] for name in sorted(got)]


@pytest.mark.parametrize(
    ("status", "asked", "pause"),
    [(429, "30", 30), (503, "30", 30), (503, "3000", PAUSE_MAX), (503, None, 1), (503, "0", 1)],
)
def test_the_next_call_waits_for_the_pause(status, asked, pause):
    assert begun((0, status, asked, 0), (1, 200, None, 0)) == [0, pause]


@pytest.mark.parametrize("status", [200, 301, 413, 500])
def test_other_answers_ask_for_no_pause(status):
    assert begun((0, status, "30", 0), (1, 200, None, 0)) == [0, 1]


def test_a_shorter_pause_does_not_end_a_longer_one():
    assert begun((0, 503, "30", 0), (0, 503, "5", 1), (2, 200, None, 0)) == [0, 0, 30]


def read(body, headers, **options):
    """Post once; return what was read of the answer."""

    async def run():
        transport = httpx.MockTransport(
            lambda _: httpx.Response(200, headers=headers, content=body)
        )
        async with httpx.AsyncClient(transport=transport) as client:
            endpoint = Endpoint("hook", client, 10.0, PAUSE_MAX, VirtualClock())
            return (await endpoint.post("http://hook", b"", {}, **options)).body

    return run_virtually(run)


def test_no_more_of_an_answer_is_kept_than_is_asked_for():
    assert read(b"0123456789", {}, keep=4) == b"0123"
    assert read(b"0123456789", {}, keep=10) == read(b"0123456789", {}) == b"0123456789"


def test_an_answer_that_is_not_encoded_as_it_says_counts_where_its_status_alone_does():
    class Broken(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield b"no gzip"

    def answered(**options):
        async def run():
            headers = {"Content-Encoding": "gzip"}
            answer = lambda _: httpx.Response(200, headers=headers, stream=Broken())  # noqa: E731
            async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
                endpoint = Endpoint("hook", client, 10.0, PAUSE_MAX, VirtualClock())
                return (await endpoint.post("http://hook", b"", {}, **options)).status

        return run_virtually(run)

    assert answered(keep=100) == 200
    with pytest.raises(Refused, match="DecodingError"):
        answered()


def test_a_moment_without_a_zone_is_in_gmt_and_one_that_is_over_is_no_pause():
    for text in ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 -0000"):
        assert seconds_of(text, 784111767.0) == 10.0
        assert seconds_of(text, 784111787.0) == 0.0
