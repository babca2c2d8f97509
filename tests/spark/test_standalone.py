"""The pipeline on a real cluster: a standalone master and two workers, of which one is killed at work.

Random worlds share a domain. `headgate pipeline` decides them on the cluster, first with executors that find Headgate
at the path where it is here, then once more, from the start, with an environment that Spark sends them as an archive.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pyspark
import pytest

import headgate
from agreement.test_spark import delivered, draw_worlds, expected, play
from harness.cluster import EXECUTOR_MEGABYTES, SparkCluster, until
from headgate.cli.node.init import make_domain
from headgate.commands.publishing.local import LocalPublisher
from headgate.node.config import Files
from headgate.node.domain import Domain, utc_now
from headgate.node.processes import kill_session, of_session
from headgate.pipeline.spark.cluster import MARKER
from headgate.pipeline.spark.session import BRIEF
from strategies import predicates

pytestmark = pytest.mark.spark

WORLDS = 12
Process = subprocess.Popen[bytes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    (tmp_path / "cluster").mkdir()
    made = SparkCluster(tmp_path / "cluster")
    yield made
    made.stop()


@pytest.fixture
def running() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        kill_session(process.pid)
        process.wait(30)


def start(files: Files, cluster: SparkCluster, *settings: str) -> Process:
    """`headgate pipeline` on the cluster; its settings of Spark are in the file."""
    # Events of random worlds have times of their own, and housekeeping would remove the old ones from the log.
    kept = "retention.log_age=36500d", "retention.deliveries_age=36500d"
    words = [f"pipeline.master={cluster.url}", "pipeline.memory=600m", *kept, *settings]
    with (files.directory / "pipeline.log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "headgate.cli.main", "pipeline", str(files.directory)),
                *(word for one in words for word in ("--set", one)),
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def log_of(files: Files) -> str:
    return (files.directory / "pipeline.log").read_text(errors="replace")


def is_decided(domain: Domain) -> bool:
    """Is everything decided that there is?"""
    reached = domain.store.reached()
    ends = {stream: tail.last for stream, tail in domain.log.tails().items() if tail.last}
    return reached.version == domain.ledger.version and reached.streams == ends


def packed_environment(directory: Path, mark: Path) -> Path:
    """An environment as `venv-pack` makes one, which says where it runs; its packages are those that are here."""
    site = directory / "packed" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    packages = Path(pyspark.__file__).parents[1], Path(headgate.__file__).parents[1]
    (site / "packed.pth").write_text("".join(f"{one}\n" for one in packages))
    (site / "sitecustomize.py").write_text(
        f"import sys\nwith open({str(mark)!r}, 'a') as mark:\n    mark.write(sys.prefix + '\\n')\n"
    )
    interpreter = Path(sys.executable).resolve()
    (directory / "packed" / "bin").mkdir()
    (directory / "packed" / "bin" / "python").symlink_to(interpreter)
    (directory / "packed" / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(directory / "packed", ".")
    return archive


def test_a_cluster_decides_what_decide_says_though_a_worker_is_killed(
    cluster: SparkCluster, running: list[Process], tmp_path: Path
) -> None:
    files = make_domain(tmp_path / "shop", None, (), utc_now()).files
    mark = tmp_path / "mark"
    archive = packed_environment(tmp_path, mark)
    lines = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": f"{EXECUTOR_MEGABYTES}m",
        "spark.executor.extraJavaOptions": BRIEF,
        "spark.archives": f"{archive}#environment",
    }
    written = (f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in lines.items())
    table = "[pipeline.spark]\n" + "".join(written)
    files.config.write_text(files.config.read_text().replace("[pipeline.spark]\n", table))
    stories = draw_worlds(WORLDS)
    with Domain.open(files.data) as domain:
        domain.paths.predicates.mkdir()
        shutil.copy(str(predicates.__file__), domain.paths.predicates / f"{predicates.DIGEST}.py")
        publisher = LocalPublisher(domain)
        for story in stories:
            for step in story.setup:
                play(domain, publisher, step)
        turns = list(zip_longest(*(story.steps for story in stories)))

        def go_on(some: list[tuple[object, ...]]) -> None:
            for turn in some:
                for step in turn:
                    if step is not None:
                        play(domain, publisher, step)  # type: ignore[arg-type]

        go_on(turns[: len(turns) // 2])
        first = start(files, cluster)
        running.append(first)
        until(lambda: is_decided(domain), lambda: log_of(files))

        # Every task of a micro-batch hangs in the middle; then a whole worker dies, and the other one's executor.
        executors = [pid for worker in cluster.workers for pid in cluster.executors(worker)]
        assert len(executors) == len(cluster.workers)
        for pid in executors:
            os.kill(pid, signal.SIGSTOP)
        begun = domain.paths.checkpoint / "offsets"
        before = {one.name for one in begun.iterdir()}
        go_on(turns[len(turns) // 2 :])
        until(lambda: {one.name for one in begun.iterdir()} > before, lambda: log_of(files))
        assert not is_decided(domain)
        dead, alive = cluster.workers
        (orphan,) = cluster.executors(alive)
        cluster.kill(dead)
        os.kill(orphan, signal.SIGKILL)
        until(lambda: is_decided(domain), lambda: log_of(files))
        wanted = expected(domain)
        assert delivered(domain) == wanted
        assert sum(wanted.values()) > WORLDS // 4, "hardly anything was delivered: the worlds say little"
        assert not mark.exists(), "Headgate's own Python is where it is here"
        first.terminate()
        assert first.wait(60) == 0, log_of(files)
        until(lambda: of_session(first.pid) == [], lambda: log_of(files))

        # Once more from the start, with a packed environment and a checkpoint elsewhere.
        place = tmp_path / "elsewhere"
        checkpoint = f"pipeline.checkpoint=file://{place}"
        second = start(files, cluster, checkpoint, "pipeline.python=./environment/bin/python")
        running.append(second)
        until((place / "deliveries" / "commits" / "0").exists, lambda: log_of(files))
        until(lambda: is_decided(domain), lambda: log_of(files))
        assert delivered(domain) == wanted
        assert (place / MARKER).read_text().startswith("did:key:")
        work = cluster.directory / "work-2"
        assert set(map(Path, mark.read_text().split())) <= {one.resolve() for one in work.glob("*/*/environment")}
        second.terminate()
        assert second.wait(60) == 0, log_of(files)
