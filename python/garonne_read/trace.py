# SPDX-License-Identifier: MIT
"""Traces of steps, in the form that tools for PyTorch's profiler read."""
import collections
import json
import pathlib

# Streams of a device by lane; Compute's has the number that PyTorch gives its own.
COMPUTE_STREAM = 7
STREAMS = {"message": 20, "collective": 21, "copy-out": 22, "copy-in": 23, "disk-write": 24, "disk-read": 25, "host-compute": 26}
COPIES = {"copy-out": "Memcpy DtoH", "copy-in": "Memcpy HtoD"}


class _Rank:
    """The events of one rank: what the host issues is a thread, what the lanes do are streams."""

    def __init__(self, rank):
        self.rank = rank
        self.events = []
        self.spans = {}
        self.correlation = 0

    def host(self, name, category, event, **arguments):
        self.events.append({"name": name, "cat": category, "ph": "X", "ts": event["ts"], "dur": event["dur"], "pid": self.rank,
                            "tid": 1, "args": {**event.get("args", {}), **arguments}})

    def device(self, name, stream, begin, seconds, correlation, arguments):
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        self.events.append({"name": name, "cat": category, "ph": "X", "ts": begin, "dur": seconds, "pid": self.rank, "tid": stream,
                            "args": {**arguments, "stream": stream, "correlation": correlation, "device": self.rank}})

    def instruction(self, event):
        category = event["cat"]
        self.correlation += 1
        # What runs beside Compute is a span that begins where it was issued; a wait is no work.
        beside = self.spans.get((event["args"]["step"], event["args"]["instruction"]))
        if beside is None and category == "wait":
            self.host(event["name"], "cpu_op", event)
            return
        self.host(event["name"], "cpu_op", event, correlation=self.correlation)
        if beside is None:
            name, stream, begin, length = event["name"], COMPUTE_STREAM, event["ts"], event["dur"]
            exchanges = "group" in event["args"]
        else:
            lane, begin, end = beside
            name, stream, length = event["name"], STREAMS[lane], end - begin
            exchanges = lane in ("message", "collective")
            if lane in COPIES:
                name = f"{COPIES[lane]} {name}"
        # By this name the tools know what goes between ranks, whatever carried it.
        if exchanges:
            name = f"ncclDevKernel {name}"
        self.device(name, stream, begin, length, self.correlation, event["args"])

    def take(self, events):
        begun = {}
        for event in events:
            if event["ph"] == "b":
                begun[event["id"]] = event
            elif event["ph"] == "e":
                first = begun.pop(event["id"])
                key = (first["args"]["step"], first["args"]["instruction"])
                self.spans[key] = (first["cat"], first["ts"], event["ts"])
        for event in events:
            if event["ph"] == "M":
                self.events.append(event)
            elif event["ph"] == "X" and event["cat"] == "step":
                self.host("ProfilerStep#" + event["name"].removeprefix("step "), "user_annotation", event)
            elif event["ph"] == "X":
                self.instruction(event)


def split_trace(path, folder):
    """Writes a file a rank, FOLDER/rank_0.json and so on, of what `garonne train --trace PATH` wrote, and returns their paths.

    They are in the form of PyTorch's profiler, for tools as HolisticTraceAnalysis: steps are `ProfilerStep#N`, instructions what
    the host issues, and their work is on streams, one a lane: Compute's is 7. What goes between ranks is called `ncclDevKernel …`,
    whatever carried it, and lasts from where it was issued to where it had been waited for; waits are no work.
    """
    trace = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    of_ranks = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        of_ranks[event["pid"]].append(event)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank, events in sorted(of_ranks.items()):
        one = _Rank(rank)
        one.take(events)
        paths.append(folder / f"rank_{rank}.json")
        content = {"schemaVersion": 1, "distributedInfo": {"backend": "mpi", "rank": rank, "world_size": len(of_ranks)},
                   "displayTimeUnit": "ms", "traceEvents": one.events}
        paths[-1].write_text(json.dumps(content), encoding="utf-8")
    return paths
