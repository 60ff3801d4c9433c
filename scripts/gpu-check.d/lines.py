# SPDX-License-Identifier: MIT
"""The list: what is run on a GPU, in this order, and what is expected of it.

A line is a function that takes the Slot and adds figures to `slot.figures`. Rates are judged on devices of DEVICES alone;
elsewhere they are shown, and held against what the same device does at best."""
import json
import re
import sys

from figures import Figure, NotRun, at_least, equal, not_run
from limited import OutOfTime
from place import KERNEL_TESTS, NCCL_TEST

# What was written down before the first run. Ceilings are those of the hardware: half of one means that the GPU is shared.
DEVICES = {
    "H200": {"multiprocessors": 132, "total_bytes": 139e9, "device_copy": 4.3e12, "bfloat16": 770e12, "float32": 45e12,
             "in": 50e9, "out": 50e9, "both": 80e9, "tokens_per_second": 250e3},
    "H100": {"multiprocessors": 132, "total_bytes": 84e9, "device_copy": 3.0e12, "bfloat16": 770e12, "float32": 45e12,
             "in": 50e9, "out": 50e9, "both": 80e9, "tokens_per_second": 250e3},
}
ADAMW_BYTES = 30  # an element: masters, gradient and two moments read, all but the gradient written, a bfloat16 copy
PARAMETERS_124M = 124.5e6
SHARE_OF_COPY = 0.8
# Less than this is held by a cache in part, and ends so soon that its launch counts: shown, not judged.
BEYOND_CACHES = 96e6
LEAST_PEAK_SHARE = 0.99
OFFLOAD_KEY = "memory.host_budget"


def giga(value):
    return f"{value / 1e9:.1f} GB/s"


def tera(value):
    return f"{value / 1e12:.1f} TFLOP/s"


def micro(value):
    return f"{1e6 * value:.2f} us"


def expectation(slot, key):
    return DEVICES.get(slot.model, {}).get(key)


def ceiling(slot, name, key, measured, text):
    """At least half of what the device is known to do; shown only where it is not known."""
    known = expectation(slot, key)
    if known is None:
        return Figure(name, "not known for this device", text(measured))
    found = at_least(name, measured, known / 2, text, expected=f"about {text(known)}")
    if not found.good:
        found.reason = "less than half: does another process use this GPU, or is it a slice of one?"
    return found


def libraries_and_facts(slot):
    said = slot.run(["ldd", slot.place.program])
    missing = re.findall(r"^\s*(\S+) => not found", said, re.M)
    slot.figures.append(equal("libraries that are not found", ", ".join(missing) or "none", "none"))
    version = slot.run([slot.place.program, "--version"])
    slot.version = version.splitlines()
    built = re.search(r"^cuda: (.*)$", version, re.M)
    cuda = built.group(1) if built else "not said"
    slot.figures.append(Figure("program's CUDA", "a version", cuda, bool(built) and cuda != "no",
                               "" if built and cuda != "no" else "this program was built without CUDA; scripts/setup --cuda"))
    slot.libraries = dict(re.findall(r"^\s*(lib(?:cudart|cublas)\.so[.\d]*) => (\S+)", said, re.M))
    slot.facts = slot.measure("facts")
    facts = slot.facts
    known = expectation(slot, "multiprocessors")
    slot.figures.append(Figure("multiprocessors", str(known or "not known for this device"), str(facts["multiprocessors"]),
                               None if known is None else facts["multiprocessors"] == known))
    slot.figures.append(ceiling(slot, "memory", "total_bytes", facts["total_bytes"], lambda v: f"{v / 2**30:.1f} GiB"))
    slot.figures.append(Figure("free before anything", "nearly all", f"{facts['free_bytes'] / 2**30:.1f} GiB"))
    context = facts["total_bytes"] - facts["free_bytes"] - slot.used_before
    slot.figures.append(Figure("context of CUDA", "< 0.7 GiB", f"{context / 2**30:.2f} GiB"))
    slot.figures.append(Figure("driver's and library's CUDA", "the driver's is not older",
                               f"{facts['driver_cuda']}, {facts['runtime_cuda']}",
                               facts["driver_cuda"] >= facts["runtime_cuda"] // 1000 * 1000))


def ceilings(slot):
    found = slot.measure("ceilings")
    slot.ceilings = found
    for name, key, of, text in (("copy on the device, read and written", "device_copy", "device_copy_bytes_per_second", giga),
                                ("bfloat16 product, 8192", "bfloat16", "bfloat16_operations_per_second", tera),
                                ("float32 product, 8192", "float32", "float32_operations_per_second", tera),
                                ("pinned copy in", "in", "in_bytes_per_second", giga),
                                ("pinned copy out", "out", "out_bytes_per_second", giga),
                                ("both ways at once", "both", "both_ways_bytes_per_second", giga)):
        slot.figures.append(ceiling(slot, name, key, found[of], text))
    slot.figures.append(Figure("all of them", "were measured", "yes" if min(found.values()) > 0 else "no",
                               min(found.values()) > 0))
    slot.figures.append(Figure("a launch, issued by Python", "2-5 us", micro(found["launch_seconds"])))
    slot.figures.append(Figure("a node of a graph", "< 2 us", micro(found["graph_node_seconds"])))


def expect_passed(slot, name, said):
    """Of a GoogleTest program: how many tests passed, and that none was skipped."""
    passed = re.search(r"\[  PASSED  \] (\d+) test", said)
    skipped = re.search(r"\[  SKIPPED \] (\d+) test", said)
    count, left = int(passed.group(1)) if passed else 0, int(skipped.group(1)) if skipped else 0
    slot.figures.append(Figure(name, "all pass, none is skipped", f"{count} passed, {left} skipped", count > 0 and not left))


def kernel_tests(slot):
    for name in KERNEL_TESTS:
        if not slot.place.test(name).exists():
            slot.figures.append(Figure(name, "all pass", "not built", False, "scripts/setup --cuda --tests builds it"))
            return
        expect_passed(slot, name, slot.run([slot.place.test(name)]))
    name = f"{KERNEL_TESTS[0]} under memcheck"
    if slot.which("compute-sanitizer") is None:
        slot.figures.append(not_run(name, "no error", "compute-sanitizer is not on this machine's path"))
        return
    try:
        # Of an archive the test is started by a script.
        code, said = slot.try_run(["compute-sanitizer", "--tool", "memcheck", "--target-processes", "all",
                                   "--error-exitcode", 9, slot.place.started(slot.place.test(KERNEL_TESTS[0]), slot.work)])
    except OutOfTime as error:  # it is slower by any factor; the tests themselves have passed
        slot.figures.append(not_run(name, "0 errors", f"{error}; --patience gives it more time"))
        return
    errors = re.search(r"ERROR SUMMARY: (\d+) error", said)
    slot.figures.append(Figure(name, "0 errors", f"{errors.group(1)} errors" if errors else "no summary",
                               code == 0 and bool(errors) and errors.group(1) == "0"))


def pinning(slot):
    try:
        found = slot.measure("pinning")
    except OutOfTime as error:  # what was done by then is on a line of its own
        if not any(line.startswith("{") for line in error.output.splitlines()):
            raise
        found = last_object(error.output)
        slot.figures.append(not_run("more", "0.2-1 s/GiB", str(error)))
    for gibibytes, seconds in found["seconds_by_gibibytes"].items():
        slot.figures.append(Figure(f"{gibibytes} GiB", "0.2-1 s/GiB", f"{seconds / int(gibibytes):.3f} s/GiB",
                                   seconds > 0))


def profile_of(slot, config, *keys):
    said = slot.run([slot.place.program, "profile", slot.place.root / config, "--run.device", "cuda", *keys, "--json"])
    return json.JSONDecoder().raw_decode(said, said.index("{"))[0]  # warnings may stand around it


def best_copy(slot):
    if not slot.ceilings:  # where --only leaves line 2 out
        slot.ceilings = slot.measure("ceilings")
    return slot.ceilings["device_copy_bytes_per_second"]


def kernel_rates(slot):
    table = profile_of(slot, "config/gpt2_124m.toml", "--model.dropout", 0.1)
    slot.costs["gpt2_124m"] = table
    elements = 32768 * 768
    wanted = (("AdamW", r"adamw of (\d+) elements bfloat16", ADAMW_BYTES, PARAMETERS_124M),
              ("layer norm 32768 x 768 bfloat16", r"layer_norm 32768x768 .*bfloat16", 4, elements),
              ("dropout_add 32768 x 768 bfloat16", r"dropout_add 32768x768 .*bfloat16", 6, elements))
    for name, pattern, bytes_each, whole in wanted:
        found = [(key, row) for key, row in table["rows"].items() if re.fullmatch(pattern, key)]
        if not found:
            slot.figures.append(Figure(name, "measured by garonne profile", "no such row", False))
            continue
        key, row = found[0]
        measured = re.fullmatch(pattern, key)
        count = int(measured.group(1)) if measured.groups() else whole
        seconds = row["forward_seconds"] or row["forward_keep_seconds"]
        rate = bytes_each * count / seconds
        least = SHARE_OF_COPY * best_copy(slot)
        judged = bytes_each * count >= BEYOND_CACHES
        slot.figures.append(Figure(name, f">= {giga(least)} ({micro(bytes_each * whole / least)})",
                                   f"{giga(rate)} ({micro(bytes_each * whole / rate)})", rate >= least if judged else None))


def unit_tests(slot, *patterns):
    """Those tests of tests/apps/gpu_test.py whose names have one of the patterns in them."""
    test = slot.place.root / "tests/apps/gpu_test.py"
    wanted = [word for pattern in patterns for word in ("-k", pattern)]
    code, said = slot.try_run([sys.executable, test, "-v", *wanted])
    found = re.findall(r"^(test_\w+) .*?\.\.\. (\w+)", said, re.M)
    for name, answer in found:
        slot.figures.append(Figure(name[5:].replace("_", " "), "ok", answer, answer == "ok"))
    if not found or code != 0:
        last = [line for line in said.splitlines() if line.strip()][-1:] or ["it said nothing"]
        slot.figures.append(Figure("gpu_test.py", "exit code 0, and tests that ran", f"exit code {code}, {len(found)} tests",
                                   False, last[0][:200]))


# Patterns of names of tests that have a line of their own.
BITS = ("no_bit", "same_bits")
OFFLOADING = ("offload",)


def bits(slot):
    unit_tests(slot, *BITS)


def last_object(said):
    """The last line that is JSON: warnings may come after it."""
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])


def bench(slot, config, *keys, steps=20):
    said = slot.run([slot.place.program, "bench", slot.place.root / config, "--run.device", "cuda", *keys, "--steps", steps,
                     "--json"])
    return last_object(said)


def peak_figures(slot, answer):
    share = answer["peak_bytes"] / answer["planned_peak_bytes"]
    slot.figures.append(Figure("measured peak of the planned", "99 to 100 %", f"{100 * share:.2f} % of "
                               f"{answer['planned_peak_bytes'] / 2**20:.0f} MiB", LEAST_PEAK_SHARE <= share <= 1))


def gpt2(slot):
    # The file is for eight GPUs.
    answer = bench(slot, "config/gpt2_124m.toml", "--grid.data", 1, "--memory.budget", "auto", "--train.global_batch", 32,
                   "--train.micro_batch", 32)
    least = expectation(slot, "tokens_per_second")
    rate = answer["tokens_per_second"]
    slot.figures.append(Figure("tokens/s", "not known for this device" if least is None else f">= {least:.0f}, good 400000",
                               f"{rate:.0f}", None if least is None else rate >= least))
    slot.figures.append(Figure("of the fastest product here", ">= 45 %", f"{100 * answer['roof_share']:.0f} %"))
    peak_figures(slot, answer)


def graphs(slot):
    config = "scripts/bench.d/10m.toml"
    with_graph, without = (bench(slot, config, "--train.precision", "bfloat16", "--run.graphs", value)["step_seconds"]
                           for value in ("always", "never"))
    slot.figures.append(at_least("without a graph over with one", without / with_graph, 3.0, lambda v: f"{v:.2f} x"))


def offload(slot):
    if not slot.has_key(OFFLOAD_KEY):
        raise NotRun(f"this program does not offload (no key {OFFLOAD_KEY})")
    unit_tests(slot, *OFFLOADING)


def profiles(slot):
    slot.costs["gpt2_124m"] = profile_of(slot, "config/gpt2_124m.toml")
    slot.costs["10m"] = profile_of(slot, "scripts/bench.d/10m.toml")
    for name, table in slot.costs.items():
        slot.figures.append(Figure(f"costs of {name}", "format garonne.costs, rows",
                                   f"{table.get('format')}, {len(table.get('rows', {}))} rows",
                                   table.get("format") == "garonne.costs" and bool(table.get("rows"))))


def ranks(slot):
    config, data = slot.small_run()
    def losses(name, *keys, launcher=()):
        folder = slot.work / name
        slot.run([*launcher, slot.place.program, "train", config, "--data.path", data, "--run.device", "cuda",
                  "--run.directory", folder, *keys])
        return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]

    alone = losses("one-rank")
    if slot.which("mpirun") is None:
        slot.figures.append(Figure("two ranks over mpi", "the losses of one", "no mpirun", False, "install Open MPI"))
    else:
        pair = losses("two-ranks", "--grid.data", 2, "--grid.transport", "mpi", launcher=("mpirun", "-n", 2))
        slot.figures.append(equal("two ranks over mpi: first loss", pair[0], alone[0]))
        worst = max(abs(one / other - 1) for one, other in zip(pair, alone))
        slot.figures.append(Figure("all of them", "within 1e-6 of one rank's", f"{worst:.1e}",
                                   worst <= 1e-6 and len(pair) == len(alone)))
    test = slot.place.test(NCCL_TEST)
    if test.exists():
        expect_passed(slot, "NCCL with itself", slot.run([test]))
    else:
        slot.figures.append(Figure("NCCL with itself", "all pass", "not built", False, "scripts/setup --cuda --tests builds it"))


def others(slot):
    """All that the lines before have left out, also what was added since."""
    names = re.findall(r"^ +def (test_\w+)", (slot.place.root / "tests/apps/gpu_test.py").read_text(), re.M)
    unit_tests(slot, *[name for name in names if not any(pattern in name for pattern in BITS + OFFLOADING)])


# Function, title, minutes, what is expected in short.
LINES = (
    (libraries_and_facts, "libraries, versions, device, free memory", 0.5, "132 multiprocessors, 139 GiB on an H200"),
    (ceilings, "ceilings of copies, products, launches", 0.7, "4.3 TB/s, 770-800 TFLOP/s, 50 GB/s a way on an H200"),
    (kernel_tests, "tests of kernels, then under memcheck", 1.5, "all pass"),
    (pinning, "pinning 1, 4, 16 GiB", 0.8, "0.2-1 s/GiB"),
    (kernel_rates, "AdamW, layer norm, dropout_add", 1.0, ">= 80 % of the device's copy"),
    (bits, "bits: twice, recomputed, stopped, graph", 2.5, "equal"),
    (gpt2, "GPT-2 124M bfloat16, 32 x 1024, 20 steps", 1.5, ">= 250000 tokens/s on an H200, peak 99 to 100 %"),
    (graphs, "10.8M with and without graph", 0.5, ">= 3 x"),
    (offload, "offloading", 1.5, "equal bits"),
    (profiles, "profiles, kept in the file", 1.0, "costs of every node"),
    (ranks, "two ranks over mpi, NCCL with itself", 0.8, "the losses of one rank"),
    (others, "other tests of training on a GPU", 2.0, "all pass"),
)
# What fails in one of these ends it: nothing below could be believed.
LINES_THAT_END_IT = 3
