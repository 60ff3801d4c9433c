# SPDX-License-Identifier: MIT
"""Random models on random grids, the small data that they learn, and which of them cannot work."""
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import tempfile
import unittest

from support import run

GRIDS = [(1, 1, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1), (1, 1, 2), (1, 1, 3), (1, 1, 4),
         (2, 2, 1), (2, 1, 2), (1, 2, 2)]
SCHEDULES = ["gpipe", "1f1b", "interleaved", "chimera", "zb-h1", "zb-h2", "zb-v", "dualpipev"]
PLANS = ["keep-all", "selective", "uniform", "full", "greedy", "rotor"]


def random_gpt(pick, folder):
    heads = pick([1, 2, 3, 4])
    return {"model.heads": heads, "model.hidden": heads * pick([4, 8, 20]), "model.sequence": pick([7, 16, 33, 64]),
            "model.dropout": pick([0, 0.1]), "data.path": folder / "text.h5"}


def random_fourier(pick, folder):
    keys = {"data.path": folder / "darcy.h5", "data.normalisation": "none"}
    if pick([False, True]):
        keys = {"data.path": folder / "sphere/train", "train.rollout": pick([1, 2]), "train.push_forward": pick([0, 1])}
    keys |= {"model.hidden": pick([4, 9, 24]), "model.block": pick(["neuralop", "li"]), "train.noise": pick([0, 0.01]),
             "model.modes": f"{pick([3, 4, 8, 12, 17])},{pick([3, 5, 8, 17])}", "model.padding": pick([0, 2]),
             "model.spectral_weights": pick(["centred", "corners"]), "optimizer.complex": pick(["independent", "joint"]),
             "train.loss": pick(["relative-l2", "relative-l2-channels", "h1", "squared-l2"])}
    return keys


def random_tensorised(pick, folder):
    return random_fourier(pick, folder) | {
        "model.factorization": pick(["tucker", "cp"]), "model.rank": pick([0.1, 0.5]),
        "model.implementation": pick(["factorized", "reconstructed"])}


def random_u_shaped(pick, folder):
    keys = random_fourier(pick, folder) | {"model.levels": pick([1, 1, 2])}
    del keys["model.block"]
    return keys | {"model.padding": pick([3, 15] if "data.normalisation" in keys else [0, 2])}


def random_adaptive(pick, folder):
    blocks = pick([1, 2, 4])
    return {"data.path": folder / "sphere/train", "model.patch": 2, "model.spectral_blocks": blocks,
            "model.hidden": blocks * pick([3, 4, 8]), "model.hard_thresholding": pick([1, 0.5]), "train.rollout": pick([1, 2])}


def random_spherical(pick, folder):
    return {"data.path": folder / "sphere/train", "model.hidden": pick([3, 8, 13]), "model.scale_factor": pick([1, 2, 3]),
            "model.block": pick(["makani", "torch-harmonics"]), "model.spectral_operator": pick(["dhconv", "diagonal"]),
            "model.big_skip": pick(["true", "false"]), "model.norm": pick(["auto", "none", "instance"]),
            "train.rollout": pick([1, 2]), "train.push_forward": pick([0, 1]),
            "train.loss": pick(["area-l2", "relative-l2", "squared-l2", "h1"])}


def random_llama(pick, folder):
    groups = pick([1, 2, 2, 3, 4, 4, 6])
    heads = groups * pick([1, 2, 3])
    return {"model.heads": heads, "model.kv_heads": groups, "model.hidden": heads * pick([2, 8, 20]),
            "model.inner": pick([0, 9, 24, 24, 48]), "model.sequence": pick([7, 16, 33, 64]),
            "model.tied_embeddings": pick(["true", "false"]), "model.dropout": 0, "data.path": folder / "text.h5"}


FAMILIES = {"gpt": random_gpt, "fno": random_fourier, "tfno": random_tensorised, "afno": random_adaptive,
            "sfno": random_spherical}
# That came later, so that seeds of before draw what they drew: in place of what a seed draws, one in so many.
FURTHER_FAMILIES = {"ufno": random_u_shaped}
ONE_IN = 6
# Likewise, after them.
LAST_FAMILIES = {"llama": random_llama}
LAST_ONE_IN = 5
TEXT = ("gpt", "llama")


def random_run(seed, folder):
    """Keys of the run file, keys of the grid, and what is to be said about memory."""
    pick = random.Random(seed).choice
    kind = pick(sorted(FAMILIES))
    keys = {"model.kind": kind, "model.layers": pick([1, 2, 3, 4, 5])} | FAMILIES[kind](pick, folder)
    further = random.Random(f"further {seed}").choice
    if further(range(ONE_IN)) == 0:
        kind = further(sorted(FURTHER_FAMILIES))
        keys = {"model.kind": kind} | FURTHER_FAMILIES[kind](further, folder)
    last = random.Random(f"third {seed}").choice
    if last(range(LAST_ONE_IN)) == 0:
        kind = last(sorted(LAST_FAMILIES))
        keys = {"model.kind": kind, "model.layers": last([1, 2, 3, 4, 5])} | LAST_FAMILIES[kind](last, folder)
    if kind == "gpt":
        keys |= {"model.attention_dropout": further([0, 0, 0.2])}
    keys |= {"train.micro_batch": pick([1, 2, 4]), "train.precision": pick(["float64", "float64", "float32"]),
             "train.seed": pick(range(100))}
    grid = dict(zip(("grid.data", "grid.pipeline", "grid.tensor"), pick(GRIDS), strict=True))
    if grid["grid.pipeline"] > 1:
        grid["grid.schedule"] = pick(SCHEDULES)
    if grid["grid.data"] > 1:
        grid |= {"grid.zero": pick([0, 1, 2, 3]), "grid.bucket": pick([1000, 40000, 4194304])}
    if grid["grid.tensor"] > 1 and kind in TEXT:
        grid["grid.sequence_parallel"] = pick(["true", "false"])
    return keys, grid, pick(["plenty", "plan", "budget", "least"]), pick(PLANS), pick([0.1, 0.3, 0.6, 0.9])


def arguments_of(keys):
    return [part for key, value in keys.items() for part in (f"--{key}", value)]


def make_data(folder):
    """What the models of random_run() learn: text with and without a validation part, pressures, flow on the sphere."""
    pick = random.Random(1).choice
    (folder / "text.txt").write_text("".join(pick("abcdefghijk \n") for _ in range(20000)))
    run("data", "text", folder / "text.txt", "--output", folder / "text.h5")
    (folder / "held_out.txt").write_text("".join(pick("abcdefghijk \n") for _ in range(2000)))
    run("data", "text", folder / "text.txt", "--validation", folder / "held_out.txt", "--output", folder / "validated.h5")
    run("data", "darcy", "--samples", 24, "--resolution", 33, "--stride", 2, "--output", folder / "darcy.h5", "--no-progress")
    run("data", "shallow-water", "--latitudes", 18, "--longitudes", 32, "--trajectories", 4, "--test-trajectories", 0,
        "--trajectory-length", 4, "--output", folder / "sphere", "--no-progress")


class RandomModelsTest(unittest.TestCase):
    """A folder with the data of random_run() and a run file, with TRAIN in it, that every run goes by."""

    TRAIN = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="garonne-random-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        os.environ["GARONNE_CACHE"] = str(cls.folder / "cache")
        make_data(cls.folder)
        cls.config = cls.folder / "run.toml"
        cls.config.write_text(f"[train]\n{cls.TRAIN}\n[run]\nthreads = 1\n[evaluation]\nevery = 0\n[checkpoint]\nevery = 0\n")


def seeds_of(variable, otherwise):
    """Those from A to below B where the variable of the environment says A:B."""
    given = os.environ.get(variable)
    return range(*map(int, given.split(":"))) if given else otherwise


def ranks_of(grid):
    return grid["grid.data"] * grid["grid.pipeline"] * grid["grid.tensor"]


def model_refusals(keys):
    """The keys for one of which the model is refused on any grid; empty where it works."""
    if "model.modes" not in keys:
        return set()
    refused = set()
    points = (17, 17) if str(keys["data.path"]).endswith("darcy.h5") else (18, 32)
    points = [count + keys["model.padding"] for count in points]
    modes = list(map(int, keys["model.modes"].split(",")))
    # Of the last axis there is half. Corners lie at both ends of the others; centred modes have negative ones among them.
    corners = keys["model.spectral_weights"] == "corners"
    wanted = [2 * modes[0], modes[1]] if corners else [modes[0], modes[1] // 2 + 1]
    there = [points[0], points[1] // 2 + 1]
    if any(w > t for w, t in zip(wanted, there, strict=True)):
        refused.add("model.modes")
    factor = 2 ** keys.get("model.levels", 0)
    if any(count % factor != 0 or count < 2 * factor for count in points):
        refused.add("model.levels")
    return refused


def blocks_of_a_step(keys):
    """What is before the layers, the layers, and what is after them. Levels are layers on the way down and up, and one at
    the bottom."""
    return 2 + (2 * keys["model.levels"] + 1 if "model.levels" in keys else keys["model.layers"])


def layer_of(name, keys):
    """The number of the layer that a node's name says, or None."""
    found = re.match(r"(?:step\.\d+\.)?(block|layer|down|up|bottom)\.(?:(\d+)\.)?", name)
    if not found:
        return None
    way, number = found[1], int(found[2] or 0)
    if way == "bottom":
        return keys["model.levels"]
    return 2 * keys["model.levels"] - number if way == "up" else number


def blocks_of_steps(keys):
    """By block of the model: the step of the rollout that it is of, and its number in that step. Steps without gradients
    come first, and are one with the step after them."""
    without = keys.get("train.push_forward", 0)
    steps = without + keys.get("train.rollout", 1)
    return [(max(0, step - without), block) for step in range(steps) for block in range(blocks_of_a_step(keys))]


def beginnings(keys):
    """The blocks that may begin a stage: those of steps without gradients, and of the step after them, may not."""
    blocks = blocks_of_steps(keys)
    joined = keys.get("train.push_forward", 0) > 0
    return [number for number, (step, _) in enumerate(blocks) if number == 0 or step > 0 or not joined]


def devices_of_parts(stages, schedule):
    """Devices that have each part of the model, in its order."""
    up_and_down = [*range(stages), *reversed(range(stages))]
    return {"interleaved": [{device} for device in [*range(stages)] * 2], "zb-v": [{device} for device in up_and_down],
            "dualpipev": [{device} for device in up_and_down],
            "chimera": [{device, stages - 1 - device} for device in range(stages)]}.get(
                schedule, [{device} for device in range(stages)])


def shares_weights_well(keys, firsts, devices):
    """Steps of a rollout share their weights, and the devices that share any have to share with the same others."""
    users = {}
    for number, (_, block) in enumerate(blocks_of_steps(keys)):
        part = sum(first <= number for first in firsts) - 1
        users.setdefault(block, set()).update(devices[part])
    groups = {frozenset(group) for group in users.values() if len(group) > 1}
    return all(one == other or not one & other for one in groups for other in groups)


def cuts_that_work(keys, stages, schedule):
    """By the first blocks of the parts: whether the model works cut like that, of all ways to cut it."""
    devices = devices_of_parts(stages, schedule)
    later = beginnings(keys)[1:]
    cuts = [(0, *firsts) for firsts in itertools.combinations(later, len(devices) - 1)]
    return {firsts: shares_weights_well(keys, firsts, devices) for firsts in cuts}


def seconds_of_blocks(config, keys, tensor, measured):
    """Of the blocks that blocks_of_steps() says, those of their nodes in what `garonne plan --graph` writes: with the
    seconds that trainings of the model have measured, if any have, or with those that nodes declare."""
    path = config.parent / "graph.json"
    run("plan", config, *arguments_of(keys), "--grid.tensor", tensor, "--memory.budget", "64GiB", "--graph", path,
        before="" if measured else f"export GARONNE_CACHE={shlex.quote(str(config.parent / 'nothing-measured'))}")
    tasks = [(task["name"].split()[1], task["options"][0]["seconds"]) for task in json.loads(path.read_text())["tasks"]]
    in_step = blocks_of_a_step(keys)
    block_of = {}
    block = 0
    for name, _ in tasks:
        step, inner = re.match(r"(?:step\.(\d+)\.)?", name)[1], layer_of(name, keys)
        if name in block_of:  # its backward
            continue
        if inner is not None:
            block = in_step * int(step or 0) + 1 + inner
        elif step is not None and int(step) > block // in_step:
            block = in_step * int(step)
        elif block % in_step != 0:  # after the last layer
            block = in_step * (block // in_step) + in_step - 1
        block_of[name] = block
    seconds = [0.0] * len(blocks_of_steps(keys))
    for name, of_task in tasks:
        seconds[block_of[name]] += of_task
    return seconds


def fastest_cuts(seconds, cuts):
    """Those whose slowest part is the fastest, and of these those of the least squares; several where rounding decides."""
    def cost(firsts):
        parts = [sum(seconds[begin:end]) for begin, end in zip(firsts, (*firsts[1:], len(seconds)), strict=True)]
        return max(parts), sum(part * part for part in parts)

    costs = {firsts: cost(firsts) for firsts in cuts}
    for which in (0, 1):
        least = min(of_cut[which] for of_cut in costs.values())
        costs = {firsts: of_cut for firsts, of_cut in costs.items() if of_cut[which] <= least * (1 + 1e-9)}
    return list(costs)


def members_that_have_rows(keys, tensor):
    """Whether every tensor rank of an operator has rows, and modes or degrees."""
    rows, columns = (17, 17) if str(keys["data.path"]).endswith("darcy.h5") else (18, 32)
    if keys["model.kind"] == "afno":
        return tensor <= rows // keys["model.patch"]
    if keys["model.kind"] == "sfno":
        factor = keys["model.scale_factor"]
        makani = keys["model.block"] == "makani"
        inside = rows // factor if makani else (rows - 1) // factor + 1
        degrees = min(inside, columns // factor // 2 + (1 if makani else 0))
        return tensor <= min(rows // 2, inside // 2, degrees)
    modes = int(keys["model.modes"].split(",")[0]) * (2 if keys["model.spectral_weights"] == "corners" else 1)
    padded = rows + keys["model.padding"]
    return tensor <= min(modes, padded) and padded * (tensor - 1) // tensor < rows


def grid_refusals(config, keys, grid, global_batch):
    """Keys for which a model that works on one rank has to be refused on this grid, and those for which it may be: where
    of cuts that are as fast but for rounding some work."""
    must, may = set(), set()
    stages, tensor = grid["grid.pipeline"], grid["grid.tensor"]
    if global_batch % (grid["grid.data"] * keys["train.micro_batch"]) != 0:
        must.add("train.global_batch")
    if tensor > 1 and keys["model.kind"] == "ufno":
        return must | {"grid.tensor"}, {"grid.pipeline"}
    if stages > 1:
        works = cuts_that_work(keys, stages, grid["grid.schedule"])
        some_do = any(works.values()) and not all(works.values())
        # A model that does not work as its measured seconds cut it is cut by those that its nodes declare.
        ways = [works.values()]
        if some_do and not must and not model_refusals(keys):
            ways = [[works[firsts] for firsts in fastest_cuts(seconds_of_blocks(config, keys, tensor, measured), works)]
                    for measured in (True, False)]
        if not any(map(any, ways)) or (grid["grid.schedule"] == "chimera" and stages % 2 != 0):
            must.add("grid.pipeline")
        elif not any(map(all, ways)):
            may.add("grid.pipeline")
    if tensor > 1 and keys["model.kind"] in TEXT:
        shared = [keys["model.heads"]]
        if keys["model.kind"] == "llama":
            # Of an inner width of 0: two thirds of four times the width, in whole 64.
            shared = [keys["model.kv_heads"], keys["model.inner"] or -(-(8 * keys["model.hidden"] // 3) // 64) * 64]
        if any(count % tensor != 0 for count in shared):
            must.add("grid.tensor")
        elif grid.get("grid.sequence_parallel") == "true" and keys["train.micro_batch"] * keys["model.sequence"] % tensor != 0:
            must.add("grid.sequence_parallel")
    elif tensor > 1 and not members_that_have_rows(keys, tensor):
        must.add("grid.tensor")
    return must, may


def refused_key(done):
    """The key that a process with exit code 2 was refused for."""
    return done.stderr.split("garonne: ", 1)[1].split()[0].rstrip(":")


def check_refusal(test, done, must, may):
    """True where a run was refused; that has to be for one of these keys, and has to be where there is one of `must`."""
    if done.returncode == 2:
        test.assertIn(refused_key(done), must | may, done.stderr)
        test.assertRegex(done.stderr, "nearest|use |leave it out|give |rather|at most|larger|needs")
        return True
    test.assertEqual(done.returncode, 0, done.stderr[-2000:])
    test.assertFalse(must, "what cannot work was not refused")
    return False
