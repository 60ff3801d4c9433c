# SPDX-License-Identifier: MIT
"""A checker of the trace-event format, by its description alone: what Perfetto and chrome://tracing accept."""
import collections

NUMBERS = (int, float)


def check_trace(trace):
    """Raises AssertionError for what breaks the format; returns events by process."""
    assert isinstance(trace, dict) and isinstance(trace["traceEvents"], list), "an object with a list of events"
    assert trace.get("displayTimeUnit", "ms") in ("ms", "ns")
    processes = collections.defaultdict(list)
    open_spans, slices = {}, collections.defaultdict(list)
    for event in trace["traceEvents"]:
        phase = event["ph"]
        assert phase in ("M", "X", "b", "e", "C"), phase
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event.get("args", {}), dict)
        processes[event["pid"]].append(event)
        if phase == "M":
            assert event["name"] in ("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index")
            if event["name"].endswith("_name"):
                assert isinstance(event["args"]["name"], str) and event["args"]["name"]
            continue
        assert isinstance(event["ts"], NUMBERS) and event["ts"] >= 0, event
        if phase == "X":
            assert isinstance(event["dur"], NUMBERS) and event["dur"] >= 0, event
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif phase == "C":
            assert event["args"] and all(isinstance(value, NUMBERS) for value in event["args"].values()), event
        else:
            key = (event["cat"], event["id"], event["name"])
            if phase == "b":
                assert key not in open_spans, key
                open_spans[key] = event["ts"]
            else:
                assert event["ts"] >= open_spans.pop(key), key
    assert not open_spans, f"spans that never end: {list(open_spans)[:3]}"
    # Slices of a thread follow each other or lie within each other, to a thousandth of a microsecond.
    for thread, times in slices.items():
        ends = []
        for begin, end in sorted(times, key=lambda one: (one[0], -one[1])):
            while ends and ends[-1] <= begin + 1e-3:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-3, f"slices of {thread} cross"
            ends.append(end)
    for process, events in processes.items():
        names = {event["name"] for event in events if event["ph"] == "M"}
        assert {"process_name", "thread_name"} <= names, f"process {process} has no name"
    return processes
