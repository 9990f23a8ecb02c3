"""Real worker processes over loopback: how they start, share, stop and end, and with what result.

What the workers keep is compared with a recomputation from what was written.
"""

import signal
import socket
import time

from tests.integration.processes import APP, AUDIT, Writer, finish, running

QUICK = {"heartbeat": 0.3, "lease": 1.2, "look_interval": 0.2, "list_interval": 1.0}
NEVER = QUICK | {"lease": 3600}
"""With leases that never end, only what is given back is taken."""


def test_workers_share_and_one_that_is_stopped_gives_its_shards_at_once(tmp_path):
    with running(tmp_path, shards=4, **NEVER) as site:
        writer = Writer(site.client, seed=2)
        writer.write(50)
        first, second = site.start_together(2)
        site.until_owned_by([first, second])
        assert site.members() == 2
        writer.write(50)
        assert first.stop() == 0
        site.until_owned_by([second])
        assert site.members() == 1
        writer.write(50)
        finish(site, writer)


def test_a_worker_that_was_frozen_longer_than_its_lease_shares_again(tmp_path):
    with running(tmp_path, shards=4, **QUICK) as site:
        writer = Writer(site.client, seed=3)
        frozen, other = site.start_together(2)
        site.until_owned_by([frozen, other])
        writer.write(30)
        frozen.send(signal.SIGSTOP)
        site.until_owned_by([other])
        writer.write(30)
        frozen.send(signal.SIGCONT)
        site.until_owned_by([frozen, other])
        writer.write(30)
        finish(site, writer)


def test_until_idle_ends_every_process_of_a_fleet(tmp_path):
    with running(tmp_path, shards=4, **QUICK) as site:
        writer = Writer(site.client, seed=4)
        writer.write(200)
        workers = [site.start(APP, "--until-idle") for _ in range(3)]
        assert [worker.exit_code() for worker in workers] == [0, 0, 0]
        finish(site, writer)


def test_two_consumers_of_one_table_have_positions_of_their_own(tmp_path):
    with running(tmp_path, **QUICK) as site:
        writer = Writer(site.client, seed=5)
        writer.write(40)
        audit = site.start(AUDIT)
        audit.until("shard.taken")
        writer.write(40)
        both = site.start(APP, AUDIT)  # from the beginning; and one more of what runs already
        both.until("shard.taken")
        site.control("roll")
        writer.write(40)
        audit.kill()
        finish(site, writer, audited=True)


def test_sigterm_while_a_worker_looks_for_aws_ends_it_at_once_and_politely(tmp_path):
    with running(tmp_path, **QUICK) as site, socket.create_server(("127.0.0.1", 0)) as silent:
        site.environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"
        worker = site.start()
        worker.until("process.started")
        before = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - before < 20, (
            "the grace period is 25 s, the client's time-out 60 s"
        )
        assert worker.said("process.draining")
