# SPDX-License-Identifier: MIT
"""Processes under a time limit: at its end a process goes, and everything that it has started."""
import ctypes
import os
import pathlib
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 3  # seconds between asking a process to end and ending it


class OutOfTime(Exception):
    """What was told to end, and what it had said until then."""

    def __init__(self, command, seconds, output):
        super().__init__(f"{name_of(command)} was still running after {seconds:.0f} s and was ended")
        self.output = output


class CommandFailed(Exception):
    def __init__(self, command, code, output):
        last = [line for line in output.splitlines() if line.strip()][-1:] or ["it said nothing"]
        super().__init__(f"{name_of(command)} ended with {code_text(code)}: {last[0].strip()[:300]}")
        self.output = output


def name_of(command):
    return " ".join(os.path.basename(str(word)) if index == 0 else str(word) for index, word in enumerate(command))[:160]


def code_text(code):
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def adopt_orphans():
    """From now on what ranks and launchers leave behind becomes a child of this process, which ends it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(ancestor):
    """Processes below one, the nearest first; launchers put theirs into groups of their own."""
    children = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):  # a process that has just ended
            continue
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    found, waiting = [], [ancestor]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


def end_all(started):
    """Ends a process and all below it, also those that were handed to this one meanwhile."""
    def alive():
        return [process for process in descendants(os.getpid()) if not is_dead(process)]

    for process in alive():
        send(process, signal.SIGTERM)
    limit = time.monotonic() + PATIENCE
    while alive() and time.monotonic() < limit:
        started.poll()
        time.sleep(0.05)
    for process in alive():
        send(process, signal.SIGKILL)
    started.wait()
    reap()


def is_dead(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def run(command, seconds, environment, folder, output_path, check=True):
    """What the command says on both channels, which is also in output_path; ended after so many seconds.

    Throws OutOfTime, and with `check` CommandFailed; else returns (code, output)."""
    command = [str(word) for word in command]
    start = time.monotonic()
    # Into a file: what a process leaves behind would hold a pipe open, and this would wait for it.
    with open(output_path, "w+", errors="replace") as output:
        try:
            started = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise CommandFailed(command, 127, str(error)) from None
        try:
            started.wait(timeout=max(0.0, seconds))
        except subprocess.TimeoutExpired:
            end_all(started)
        except BaseException:
            end_all(started)
            raise
        else:
            end_all(started)
            output.seek(0)
            text = output.read()
            if check and started.returncode != 0:
                raise CommandFailed(command, started.returncode, text)
            return started.returncode, text
        output.seek(0)
        raise OutOfTime(command, time.monotonic() - start, output.read())
