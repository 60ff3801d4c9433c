# SPDX-License-Identifier: MIT
"""Programs in the form that they had as garonne.program version 1: without the fields that are new, and with collectives
of the tensor axis in the passes of their nodes. Files of both versions come to one form."""
import hashlib
import json

# What an instruction and its arguments said in version 1, and what of it is still said alike.
INSTRUCTION = ("operation", "node", "node_index", "micro_batch", "recompute", "reads", "writes", "frees", "transient_bytes",
               "seconds", "completes")
ARGUMENTS = ("inputs", "output", "record", "output_gradient", "input_gradients", "accumulated", "pinned_output", "staging")
CHANNEL = ("kind", "group", "members", "peer", "tag", "bytes")
BUFFER = ("name", "kind", "bytes", "tier", "live_at_start", "live_at_end")
PROGRAM = ("name", "rank", "ranks", "coordinates", "budget_bytes", "host_budget_bytes", "peak_bytes", "seconds", "micro_batches")
PASSES = ("forward", "forward-keep", "backward", "backward-weight", "backward-input")
FINISHES = ("finish-forward", "finish-backward")


def exchanged_of(instruction):
    return instruction["arguments"].get("exchanged", -1)


def whole_pass(first, meeting, last, size):
    """The pass of a node that these three are the parts of; `size` of a buffer in bytes."""
    exchanged, staging = exchanged_of(last), meeting["arguments"].get("staging", -1)
    forward = last["operation"] == "finish-forward"
    result = last["arguments"]["output"] if forward else last["arguments"]["input_gradients"][0]
    apart = 0 if exchanged == result else size(exchanged)
    makes = result not in first["reads"] and (not apart or result not in last["reads"])
    made = size(result) if makes else 0
    during = meeting["transient_bytes"] + (apart or made) + (size(staging) if staging >= 0 else 0)
    arguments = {key: value for key, value in last["arguments"].items() if key != "exchanged"}
    if forward:
        arguments["inputs"] = first["arguments"]["inputs"]
    if "output_gradient" in first["arguments"]:
        arguments["output_gradient"] = first["arguments"]["output_gradient"]
    return last | {
        "operation": first["operation"],
        "channel": meeting["channel"],
        "lane": meeting["lane"],
        "seconds": first["seconds"] + meeting["seconds"] + last["seconds"],
        "transient_bytes": max(during, apart + made) - made,
        "reads": first["reads"] + [read for read in last["reads"] if read not in (exchanged, result)],
        "frees": [freed for freed in last["frees"] if freed != exchanged or not apart],
        "arguments": arguments,
    }


def fold_passes(program):
    """(buffers, instructions) with the parts of divided passes put together where the last of them was."""
    buffers, instructions = list(program["buffers"]), []
    places = {}  # of instructions that stay
    open_passes, added = {}, set()
    for number, instruction in enumerate(program["instructions"]):
        exchanged = exchanged_of(instruction)
        if exchanged >= 0 and instruction["operation"] not in FINISHES:
            open_passes.setdefault(exchanged, []).append(instruction)
            continue
        if exchanged >= 0:
            first, meeting = open_passes.pop(exchanged)
            result = instruction["arguments"].get("output", -1)
            if instruction["operation"] == "finish-backward":
                result = instruction["arguments"]["input_gradients"][0]
            added |= {exchanged} - {result} | {meeting["arguments"].get("staging", -1)} - {-1}
            instruction = whole_pass(first, meeting, instruction, lambda buffer: buffers[buffer]["bytes"])
        places[number] = len(instructions)
        instructions.append(instruction)
    assert not open_passes, "a pass is never finished"
    # What was added stands behind all others.
    assert added == set(range(len(buffers) - len(added), len(buffers))), "a buffer that was added stands before others"
    del buffers[len(buffers) - len(added):]
    for place, instruction in enumerate(instructions):
        if "completes" in instruction:
            instructions[place] = instruction | {"completes": places[instruction["completes"]]}
    return buffers, instructions


def older_arguments(instruction):
    """Of passes of nodes: what other operations do was said by side tables in version 1."""
    arguments = instruction["arguments"]
    if instruction["operation"] not in PASSES:
        return {}
    kept = {key: arguments[key] for key in ARGUMENTS if key in arguments}
    # Buffers where there are ranges now, which are whole parameters but in the buckets of ZeRO.
    kept["parameters"] = [given if isinstance(given, int) else given[0] for given in arguments.get("parameters", [])]
    targets = []
    for target in arguments.get("parameter_gradients", []):
        buffer, offset = target["range"][:2] if "range" in target else (target["buffer"], target["offset_elements"])
        targets.append([buffer, offset, target["accumulate"]])
    return kept | {"parameter_gradients": targets}


def older_instruction(instruction):
    older = {key: instruction[key] for key in INSTRUCTION if key in instruction}
    # One number was of the node or of the bucket.
    older["node_index"] = instruction.get("bucket", instruction["node_index"])
    older["arguments"] = older_arguments(instruction)
    if "channel" in instruction:
        channel = instruction["channel"]
        blocking = channel["blocking"] if "blocking" in channel else instruction["lane"] == "compute"
        older["channel"] = {key: channel[key] for key in CHANNEL} | {"blocking": blocking}
    return older


def older_form(program):
    """A garonne.program, of either version, as version 1 said it."""
    assert program["format"] == "garonne.program" and program["version"] in (1, 2)
    buffers, instructions = fold_passes(program)
    return {key: program[key] for key in PROGRAM} | {
        "buffers": [{key: buffer[key] for key in BUFFER} for buffer in buffers],
        "instructions": [older_instruction(instruction) for instruction in instructions],
    }


def digest(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def digests(older):
    """What is told of a Program in that form: name of the plan, peak, and digests of the rest. Seconds to six digits, by themselves."""
    timed = [*older["instructions"], older]
    seconds = [f"{part['seconds']:.6g}" for part in timed]
    untimed = [{key: value for key, value in part.items() if key != "seconds"} for part in timed]
    return {"plan": older["name"], "peak_bytes": older["peak_bytes"], "program": digest(untimed), "seconds": digest(seconds)}
