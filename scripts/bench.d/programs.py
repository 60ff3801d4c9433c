# SPDX-License-Identifier: MIT
"""What the benchmarks share: options, turns, processes and what they answer."""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def list_of(known):
    """A comma-separated option whose words are all known."""
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return names
    return parse


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no positive integer")
    return int(text)


def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def describe_machine(threads):
    """Prints what runs here and warns of company; returns the same for a file."""
    load = os.getloadavg()[0]
    machine = {"processor": processor(), "cores": os.cpu_count(), "threads": threads, "load_before": load}
    print(f"{machine['processor']}, {machine['cores']} cores, {threads} thread{'' if threads == 1 else 's'} for each process")
    if load > 0.5:
        print(f"warning: other programs are running (load {load:.1f}); ratios are less certain", file=sys.stderr)
    return machine


def launcher(ranks):
    """mpirun with what it needs here: leave to run as root, and more ranks than cores; each bound to a core."""
    command = ["mpirun", "-n", str(ranks)]
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" in version or "OpenRTE" in version:
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        command += ["--bind-to", "core"] if ranks <= os.cpu_count() else ["--oversubscribe", "--bind-to", "none"]
    return command


def spread(values):
    """(largest - smallest) / median."""
    return (max(values) - min(values)) / statistics.median(values)


class Refused(SystemExit):
    """Garonne does not do what it was asked to, in its words: others can be timed nevertheless. Ends what cannot go on."""

    CODE = 2

    def __init__(self, command, errors):
        super().__init__(f"{' '.join(map(str, command))}\nended with code {self.CODE}:\n{errors}")
        lines = errors.strip().splitlines()
        self.reason = lines[-1] if lines else "it said nothing"


class Runner:
    """Runs one process after the other and says which of how many."""

    def __init__(self, total, environment):
        self.total = total
        self.done = 0
        self.environment = environment

    def announce(self, what):
        self.done += 1
        print(f"[{self.done:>3}/{self.total}] {what} ...", file=sys.stderr, end=" ", flush=True)

    def result(self, text):
        print(text, file=sys.stderr, flush=True)

    def use_cache(self, folder):
        """Each case measures its own nodes: what one found first would change what the next is held against."""
        self.environment["GARONNE_CACHE"] = str(folder)

    def _environment(self):
        return self.environment | {"GARONNE_BENCH_STARTED": repr(time.monotonic())}

    def json_of(self, command):
        """The last line that the command prints, read as JSON."""
        run = subprocess.run(command, env=self._environment(), capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"\n{' '.join(map(str, command))}\nended with code {run.returncode}:\n{run.stdout}{run.stderr}")
        return json.loads(run.stdout.splitlines()[-1])

    def json_of_several(self, processes, seconds=None):
        """Starts all at once, each (command, further environment, core or None); the answer of the first.

        After so many `seconds` they are ended and the answer is None."""
        started = []
        for command, further, core in processes:
            pin = (lambda core=core: os.sched_setaffinity(0, {core})) if core is not None else None
            started.append(subprocess.Popen(command, env=self._environment() | further, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, preexec_fn=pin))
        limit = None if seconds is None else time.monotonic() + seconds
        answers = []
        try:
            for process in started:
                answers.append(process.communicate(timeout=limit and max(0.1, limit - time.monotonic())))
        except subprocess.TimeoutExpired:
            return None
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        for process, (output, errors) in zip(started, answers):
            if process.returncode != 0:
                sys.exit(f"\n{' '.join(map(str, process.args))}\nended with code {process.returncode}:\n{output}{errors}")
        return json.loads(answers[0][0].splitlines()[-1])

    def seconds_until(self, command, marks):
        """Seconds from the start of the process to the first line that begins with each mark; then it is ended."""
        start = time.monotonic()
        process = subprocess.Popen(command, env=self._environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        seconds, lines = {}, []
        for line in process.stdout:
            lines.append(line)
            seconds.update({mark: time.monotonic() - start
                            for mark in marks if mark not in seconds and line.startswith(mark)})
            if len(seconds) == len(marks):
                process.kill()
        process.stdout.close()
        process.wait()
        if len(seconds) < len(marks):
            sys.exit(f"\n{' '.join(map(str, command))}\nnever came to its first step:\n{''.join(lines)}")
        return seconds


def measure(cases, repeats, environment):
    """Each case prepares, takes its turns and prints its table."""
    runner = Runner(sum(case.processes() for case in cases), environment)
    for case in cases:
        case.prepare(runner)
        for number in range(1, repeats + 1):
            case.repeat(runner, number)
        case.print_table()
        sys.stdout.flush()


def keep_figures(path, machine, **figures):
    """The file of --json, where one was asked for; also of a benchmark that goes on."""
    if path:
        result = {"format": "garonne.benchmark", "version": 1, "machine": machine, **figures}
        pathlib.Path(path).write_text(json.dumps(result, indent=1) + "\n")


def write_figures(path, machine, **figures):
    """The same at the end."""
    if not path:
        return
    keep_figures(path, machine, **figures)
    print(f"\nevery figure: {path}")
