"""Settings of the pipeline that name a Spark: the forms of a master, Spark's own settings, and where it remembers.

Guarantees: a master is of a form that Spark has for the process of a driver; a setting that Headgate has another place
for, or whose value its promises rest on, is refused with what to do instead.
Leaves out: whether the cluster answers, and whether a checkpoint that is no local directory can be written, which only
starting shows (`pipeline.spark.cluster`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headgate.model.errors import BadConfig
from headgate.model.values import brief

_HOST: Final = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])"
_MASTER: Final = re.compile(
    r"local(?:\[(?:\*|[1-9][0-9]{0,3})(?:,[1-9][0-9]{0,2})?\])?"
    rf"|spark://{_HOST}:[0-9]{{1,5}}(?:,{_HOST}:[0-9]{{1,5}})*"
    rf"|k8s://(?:https?://)?{_HOST}(?::[0-9]{{1,5}})?(?:/\S*)?"
    r"|yarn"
)
MASTERS: Final = "`local[4]`, `local[*]`, `spark://host:7077`, `k8s://https://host:6443` or `yarn`"
_NAME: Final = re.compile(r"spark\.[A-Za-z0-9_.\-/]{1,200}")
_LONGEST: Final = 10_000

OWNED: Final[Mapping[str, str]] = {
    "spark.master": "set `pipeline.master`",
    "spark.driver.memory": "set `pipeline.memory`",
    "spark.pyspark.python": "set `pipeline.python`",
    "spark.executorEnv.PYSPARK_PYTHON": "set `pipeline.python`",
    "spark.executorEnv.HEADGATE_PYTHON": "set `pipeline.python`",
    "spark.pyspark.driver.python": "leave it out: the driver runs in the Python that runs Headgate",
    "spark.submit.deployMode": "leave it out: the driver is the process of `headgate pipeline`",
    "spark.sql.streaming.checkpointLocation": "set `pipeline.checkpoint`",
    "spark.sql.streaming.checkpointFileManagerClass": "leave it out: it follows from `pipeline.checkpoint`",
    "spark.sql.streaming.stateStore.providerClass": "leave it out: no other one keeps the state of detections",
    "spark.sql.session.timeZone": "leave it out: times are UTC",
}
"""Spark's settings that are Headgate's, and what to do instead."""


def is_master(raw: object) -> bool:
    """Is this a master that a driver may have? The empty one is this machine."""
    return isinstance(raw, str) and (raw == "" or _MASTER.fullmatch(raw) is not None)


def is_checkpoint(raw: object) -> bool:
    """Is this a directory, or a place that Hadoop has a file system for? The empty one is the domain's own."""
    if not isinstance(raw, str) or any(one.isspace() for one in raw):
        return False
    return raw == "" or raw.startswith("/") or re.match(r"[a-z][a-z0-9+.-]+:/", raw) is not None


def flattened(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The settings of a table by their full names, whether dots were quoted or not."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def spark_settings(raw: object) -> tuple[tuple[str, str], ...]:
    """Settings of Spark, from a table, or from text with `name=value` on each line."""
    if isinstance(raw, str):
        lines = [line.partition("=") for line in raw.splitlines() if line.strip()]
        if not all(equals for _, equals, _ in lines):
            raise ValueError("a table `[pipeline.spark]`, or lines of `name=value`")
        raw = {name.strip(): value.strip() for name, _, value in lines}
    if not isinstance(raw, Mapping):  # a value of the wrong kind is told as any other wrong one
        raise ValueError(  # noqa: TRY004
            "a table `[pipeline.spark]`, or lines of `name=value`"
        )
    return tuple(sorted((name, _value(name, value)) for name, value in flattened(raw)))


def _value(name: str, value: object) -> str:
    if not _NAME.fullmatch(name):
        raise BadConfig(
            f"`{brief(name)}` is no setting of Spark", remedy="write its whole name, such as `spark.executor.memory`"
        )
    if name in OWNED:
        raise BadConfig(f"`{name}` cannot be set in `pipeline.spark`", remedy=OWNED[name])
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str | int | float) or len(text) > _LONGEST or not text.isprintable():
        raise BadConfig(f"`{name}` has a value that is none", remedy="write text, a number, true or false, in one line")
    return text
