# SPDX-License-Identifier: MIT
"""Step times and bytes that others measured beside what `garonne plan` says of the same machines, models and grids.

Started by `scripts/bench truth`. Points are in tests/truth/points.json, machines in tests/truth/machines, what was fitted
in tests/truth/constants.json; each is planned with the software that it was measured with, as far as a cluster file says it.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TRUTH = HERE.parents[1] / "tests" / "truth"
# Whatever a layout takes is planned; what a device has is compared afterwards.
ROOM = "4096GiB"
DEVICE = "4100GiB"  # has it beside what it reserves
# Nodes of a plan, in all its micro-batches, and of a layer cut over tensor ranks.
MOST_NODES = 240000
NODES_A_LAYER = 17
PLANS = {"full": "full", "selective": "megatron-selective", "none": "keep-all"}


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/bench truth", description="measurements of others beside what garonne plan says of them; nothing "
        "is measured here, and it takes some minutes of one core")
    parser.add_argument("--points", type=pathlib.Path, default=TRUTH / "points.json", help="other measurements, as the file has them")
    parser.add_argument("--machines", type=pathlib.Path, default=TRUTH / "machines", help="folder of their cluster files")
    parser.add_argument("--constants", type=pathlib.Path, default=TRUTH / "constants.json", help="what was fitted, and on which source")
    parser.add_argument("--unfitted", action="store_true", help="as the machines' files say, without the fitted constants")
    parser.add_argument("--sources", default="", help="only these, with commas")
    parser.add_argument("--list", action="store_true", help="every point on a line of its own")
    parser.add_argument("--jobs", type=int, default=1, help="plans at a time")
    parser.add_argument("--json", type=pathlib.Path, help="where to write every figure")
    return parser.parse_args()


def toml_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value)


def merged(text, changes):
    """A cluster file with other values of some keys. Changes are by full key; None takes a key out."""
    lines = []
    table = ""
    left = dict(changes)
    for line in text.splitlines():
        heading = re.match(r"\[([a-z_.]+)\]", line)
        if heading:
            table = heading[1]
        key = re.match(r"([a-z_0-9]+) *=", line)
        name = f"{table}.{key[1]}" if key and table else key[1] if key else None
        if name in left:
            value = left.pop(name)
            if value is not None:
                lines.append(f"{key[1]} = {toml_value(value)}")
            continue
        lines.append(line)
    tables = {}
    for name, value in left.items():
        if value is not None:
            tables.setdefault(name.rpartition(".")[0], []).append(f"{name.rpartition('.')[2]} = {toml_value(value)}")
    for name, added in tables.items():
        heading = f"[{name}]"
        if heading in lines:
            lines[lines.index(heading) + 1:lines.index(heading) + 1] = added
        else:
            lines += ["", heading, *added]
    return "\n".join(lines) + "\n"


def eager(point):
    """Of frameworks that put one kernel after the other, with attention in parts; else programs of fused kernels."""
    return point["attention"] == "unfused"


# How these frameworks work, by their source code, as cluster files say it.
EAGER = {"software.attention": "stored", "software.loss": "unfused", "software.stages": "blocks", "software.host": "waits"}
# The product of a weight's gradient adds it to those of earlier micro-batches since Megatron-LM's release of 2022
# (--no-gradient-accumulation-fusion), with which Korthikanti et al. measured; before, a kernel by itself did.
FUSED_GRADIENT_SUMS = ("korthikanti_22",)
# Jean Zay hung otherwise, so that BLOOM's runs had CUDA_LAUNCH_BLOCKING=1 (bigscience, chronicles-prequel.md and
# tr11-176B-ml.slurm): the host waits for each operation.
BLOCKING = ("bloom_jean_zay",)
# Until its nodes were repaired on 25 February 2022 ("PCI-Express/NUMA was improved", ibidem) they were slower; by the tables that
# points are from.
BEFORE_REPAIR = re.compile("bloom_jean_zay/(first|contender|final|heads)")
# DeepSpeed's --pp-partition-method 'type:transformer|embedding'; in points.json by its note.
ENDS_ARE_BLOCKS = "embeddings have a pipeline place of their own"
# Megatron-LM pads the vocabulary, so that each tensor rank has a multiple of this (--make-vocab-size-divisible-by).
VOCABULARY_MULTIPLE = 128
# Their gradients are summed in one piece, after the backward.
ONE_BUCKET = "4096GiB"


def state_of(point):
    """Of its machine, where that changed."""
    return "before its repair" if BEFORE_REPAIR.match(point["id"]) else None


def holds_for(constant, point, architecture):
    kind = "eager" if eager(point) else "compiled"
    return (constant["of"] in ("all", kind) and constant.get("machine", point["machine"]) == point["machine"]
            and constant.get("state", state_of(point)) == state_of(point)
            and architecture in constant.get("architectures", [architecture]))


def scaled(constant, machine):
    """The list of a machine's cluster file, or where that has none the rate of its link."""
    table, _, key = constant["key"].rpartition(".")
    section = machine.partition(f"\n[{table}]\n")[2].partition("\n[")[0]
    for name in (key, "bytes_per_second"):
        given = re.search(rf"^{name} = (\[.*?\]|[0-9.e+]+)", section, re.MULTILINE | re.DOTALL)
        if given:
            numbers = [constant["scale"] * float(number) for number in given[1].strip("[]").split(",")]
            return f"{table}.{name}", numbers if given[1].startswith("[") else numbers[0]
    sys.exit(f"no {constant['key']} in the machine's file")


def software_of(point):
    if not eager(point):
        return {}
    software = dict(EAGER)
    if point["source"] not in FUSED_GRADIENT_SUMS:
        software["software.gradient_sums"] = "compute" if point["gradient_bytes"] == 2 else "float32"
    if point["source"] in BLOCKING:
        software["software.host"] = "blocks"
    if ENDS_ARE_BLOCKS in point["note"]:
        software["software.stages"] = "all-blocks"
    return software


def vocabulary_of(point):
    multiple = VOCABULARY_MULTIPLE * point["tensor"] if eager(point) else 1
    return -(-point["vocabulary"] // multiple) * multiple


def changes_of(point, machine, constants):
    """What the constants make of a machine's cluster file, for the software that a point was measured with."""
    named = re.search(r"^architecture = ([0-9]+)", machine, re.MULTILINE)
    architecture = int(named[1]) if named else None
    changes = software_of(point)
    for constant in constants:
        # Some are in the program's code.
        if "code" in constant or not holds_for(constant, point, architecture):
            continue
        if "scale" in constant:
            key, value = scaled(constant, machine)
            changes[key] = value
        else:
            changes[constant["key"]] = constant["value"]
    return changes


def micro_batches_of(point):
    """Those that are planned, of one or two numbers of them. In the midst of a step of a pipeline all rounds are alike, so
    that the seconds of more micro-batches are on the line through two numbers; and plans have a limit."""
    stages = point["pipeline"]
    wanted = point["global_batch"] // point["data"] // point["micro_batch"]
    most = max(8, MOST_NODES // (NODES_A_LAYER * point["layers"] + 20))
    if wanted <= min(most, max(8, 3 * stages)):
        return [wanted]
    if most >= 2 * stages:
        rounds = max(2 if point["schedule"] == "interleaved" else 1, 8 // stages)
        return [rounds * stages, min(rounds + max(1, 4 // stages), most // stages) * stages]
    return [stages, most]


def plan_of(point, machines, constants, folder):
    text = (machines / f"{point['machine']}.toml").read_text()
    cluster = folder / (re.sub(r"[^A-Za-z0-9]", "-", point["id"]) + ".toml")
    changes = changes_of(point, text, constants)
    # Files of the first version have no table for them.
    version = "" if re.search(r"^version *=", text, re.MULTILINE) or not changes else "version = 2\n"
    cluster.write_text(version + merged(text, {**changes, "device.memory": DEVICE}))
    samples = point["data"] * point["micro_batch"]
    planned = []
    counts = micro_batches_of(point)
    for count in counts:
        answer = plan_with(point, cluster, count * samples)
        if "error" in answer:
            return answer
        planned.append(answer)
    seconds = planned[-1]["seconds"]
    if len(counts) > 1:
        further = point["global_batch"] // samples - counts[1]
        seconds += further * (planned[1]["seconds"] - planned[0]["seconds"]) / (counts[1] - counts[0])
    return {"seconds": seconds, "peak_bytes": planned[-1]["peak_bytes"], "device_bytes": memory_of(text)}


def plan_with(point, cluster, global_batch):
    keys = {
        "model.layers": point["layers"], "model.hidden": point["hidden"], "model.heads": point["heads"],
        "model.sequence": point["sequence"], "model.vocabulary": vocabulary_of(point),
        "model.dropout": 0.1 if eager(point) else 0,
        "grid.data": point["data"], "grid.pipeline": point["pipeline"], "grid.tensor": point["tensor"],
        "grid.sequence_parallel": point["sequence_parallel"], "grid.schedule": point["schedule"],
        "grid.chunks": point["chunks"] if point["schedule"] == "interleaved" else 0,
        "grid.zero": point["zero"] if point["data"] > 1 else 0, "grid.bucket": ONE_BUCKET if eager(point) else "64MiB",
        "grid.gradient_wire": "compute" if point["gradient_bytes"] == 2 else "float32",
        "train.micro_batch": point["micro_batch"], "train.global_batch": global_batch, "train.precision": "bfloat16",
        "memory.budget": ROOM, "memory.plan": PLANS[point["recompute"]], "evaluation.batches": 0,
    }
    tables = {}
    for name, value in keys.items():
        table, _, key = name.partition(".")
        tables.setdefault(table, []).append(f"{key} = {toml_value(value)}\n")
    run_file = cluster.with_suffix(".run.toml")
    run_file.write_text("".join(f"[{table}]\n{''.join(lines)}" for table, lines in tables.items()))
    run = subprocess.run([os.environ["GARONNE_BINARY"], "plan", run_file, "--json", "--cluster", cluster],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return {"error": run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"ends with {run.returncode}"}
    answer = json.loads(run.stdout)
    return {"seconds": answer["seconds"], "peak_bytes": answer["peak_bytes"]}


def memory_of(text):
    number, unit = re.search(r'^memory = "([0-9.]+) *(GB|GiB)"', text, re.MULTILINE).groups()
    return float(number) * (1e9 if unit == "GB" else 2**30)


def rank_correlation(pairs):
    """Spearman's, with mean ranks for ties."""
    def ranks(values):
        order = sorted(range(len(values)), key=lambda i: values[i])
        result = [0.0] * len(values)
        i = 0
        while i < len(order):
            j = i
            while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
                j += 1
            for k in range(i, j + 1):
                result[order[k]] = (i + j) / 2
            i = j + 1
        return result
    return statistics.correlation(ranks([p for p, _ in pairs]), ranks([m for _, m in pairs]))


def groups_of(rows):
    """Layouts of one model on one number of GPUs, those of at least four that were measured: (planned, measured) for each
    sample of the batch, since batches differ where a layout asked for it."""
    groups = {}
    for row in rows:
        point = row["point"]
        key = tuple(point[name] for name in ("source", "layers", "hidden", "heads", "sequence", "gpus", "recompute"))
        groups.setdefault(key, []).append((row["seconds"] / point["global_batch"], point["seconds"] / point["global_batch"]))
    return {key: pairs for key, pairs in groups.items() if len(pairs) >= 4 and len({measured for _, measured in pairs}) > 1}


def table_of(rows):
    """Lines of the table, one a source and one of all."""
    timed = [row for row in rows if row.get("seconds") and row["point"]["seconds"]]
    errors = lambda some: [row["seconds"] / row["point"]["seconds"] - 1 for row in some]
    sources = {}
    for row in timed:
        sources.setdefault(row["point"]["source"], []).append(row)
    lines = [f"{'source':<18}{'points':>7}{'MAPE':>9}{'median':>9}{'bias':>9}{'worst':>9}{'rank corr.':>12}{'choice':>9}"]
    figures = {}
    for name, some in [*sorted(sources.items()), ("all", timed)]:
        found = errors(some)
        groups = groups_of(some)
        correlations = [rank_correlation(pairs) for pairs in groups.values()]
        regrets = [min(pairs)[1] / min(m for _, m in pairs) - 1 for pairs in groups.values()]
        figures[name] = {"points": len(found), "mape": statistics.fmean(map(abs, found)), "median": statistics.median(map(abs, found)),
                         "bias": statistics.fmean(found), "worst": max(map(abs, found)),
                         "rank_correlation": statistics.fmean(correlations) if correlations else None,
                         "regret": max(regrets) if regrets else None, "groups": len(groups)}
        of = figures[name]
        lines.append(f"{name:<18}{of['points']:>7}{100 * of['mape']:>7.1f} %{100 * of['median']:>7.1f} %{100 * of['bias']:>+7.1f} %"
                     f"{100 * of['worst']:>7.1f} %"
                     + (f"{of['rank_correlation']:>12.2f}{100 * of['regret']:>+7.1f} %" if correlations else f"{'-':>12}{'-':>9}"))
    return lines, figures


def memory_lines(rows):
    known = [row for row in rows if row.get("peak_bytes") and row["point"]["memory_gb"]]
    lines = []
    if known:
        # nvidia-smi counts GiB and calls them GB.
        found = [row["peak_bytes"] / 2**30 / row["point"]["memory_gb"] - 1 for row in known]
        lines.append(f"memory: {len(known)} points, planned against nvidia-smi, which also counts contexts and what allocators hold: "
                     f"mean {100 * statistics.fmean(found):+.1f} %, mean of amounts {100 * statistics.fmean(map(abs, found)):.1f} %")
    out = [row for row in rows if row.get("peak_bytes") and row["point"]["out_of_memory"]]
    said = [row for row in out if row["peak_bytes"] > row["device_bytes"]]
    ran = [row for row in rows if row.get("peak_bytes") and row["point"]["seconds"]]
    refused = [row for row in ran if row["peak_bytes"] > row["device_bytes"]]
    lines.append(f"verdicts: of {len(out)} that ran out of memory {len(said)} do not fit by the plan; of {len(ran)} that ran "
                 f"{len(refused)} do not")
    return lines


def choice_line(rows):
    """What somebody is offered, who is offered nothing that does not fit."""
    fitting = [row for row in rows if row.get("seconds") and row["point"]["seconds"] and row["peak_bytes"] <= row["device_bytes"]]
    regrets = [min(pairs)[1] / min(measured for _, measured in pairs) - 1 for pairs in groups_of(fitting).values()]
    if not regrets:
        return []
    return [f"choice of those that fit by their plans, of {len(regrets)} groups of layouts: {100 * max(regrets):+.1f} % at most"]


def constants_lines(constants, fitted):
    lines = [f"{len(constants)} fitted constants" + ("" if fitted else ", published figures in their place:")]
    for constant in constants:
        where = [*(f"architecture {number}" for number in constant.get("architectures", [])), constant.get("machine"), constant.get("state"),
                 None if constant["of"] == "all" else f"{constant['of']} software"]
        value = f"{constant['scale']} times the file's" if "scale" in constant else f"{constant['value']:g}"
        lines.append(f"  {constant['key']:<42}" + (f"{value:<22}{', '.join(filter(None, where)) or 'all'}; fitted on "
                     f"{constant['fitted_on']}{', in ' + constant['code'] if 'code' in constant else ''}" if fitted else constant["published"]))
    return lines


def main():
    options = parse_arguments()
    points = json.loads(options.points.read_text())["points"]
    constants = json.loads(options.constants.read_text())["constants"]
    if options.sources:
        points = [point for point in points if point["source"] in options.sources.split(",")]
    fitted = not options.unfitted
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        plans = pool.map(lambda point: plan_of(point, options.machines, constants if fitted else [], pathlib.Path(name)), points)
        rows = []
        for point, plan in zip(points, plans):
            rows.append({"point": point, **plan})
            if sys.stderr.isatty():
                print(f"\r{len(rows)} of {len(points)} points", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    for row in rows:
        if "error" in row:
            print(f"{row['point']['id']}: {row['error']}", file=sys.stderr)
    if options.list:
        print(f"{'point':<52}{'measured':>10}{'planned':>10}{'error':>9}{'peak GiB':>10}{'measured':>10}")
        for row in rows:
            measured = row["point"]["seconds"]
            planned = row.get("seconds")
            print(f"{row['point']['id'][:50]:<52}{measured if measured else float('nan'):>10.3f}{planned or float('nan'):>10.3f}"
                  + (f"{100 * (planned / measured - 1):>+7.1f} %" if planned and measured else f"{'-':>9}")
                  + f"{row.get('peak_bytes', 0) / 2**30:>10.1f}{row['point']['memory_gb'] or '-':>10}")
    lines, figures = table_of(rows)
    print("\n".join([*lines, *memory_lines(rows), *choice_line(rows), *constants_lines(constants, fitted)]))
    print(f"{len(rows)} plans in {time.monotonic() - begun:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"figures": figures, "fitted": fitted, "constants": constants, "rows": rows}, indent=1) + "\n")
    if any("error" in row for row in rows):
        sys.exit("some points cannot be planned")


if __name__ == "__main__":
    main()
