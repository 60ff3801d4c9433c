# SPDX-License-Identifier: MIT
"""A Slurm of two emulated nodes on this machine, with a munge of its own, for tests."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue"]
PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])

# Two nodes of eight processors, whatever the machine has. Jobs of `high` have those of `low` make room.
CONFIGURATION = """
ClusterName=garonne
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=pmix
ReturnToService=2
KillWait={kill_wait}
InactiveLimit=0
TmpFS={folder}/temporary.%n
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=n[1-2] NodeHostName={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=8 Sockets=2 CoresPerSocket=4 RealMemory=8000
PartitionName=low Nodes=n[1-2] Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=90 State=UP
PartitionName=high Nodes=n[1-2] MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
"""


def neighbouring_ports(count):
    """So many free ports in a row."""
    for first in range(20000 + os.getpid() % 20000, 60000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return list(range(first, first + count))
        except OSError:
            pass
        finally:
            for one in sockets:
                one.close()
    raise RuntimeError("no free ports")


class SlurmCluster:
    """Daemons in `folder`, which has to be short: sockets are there. `environment` is that of jobs and of those who submit."""

    def __init__(self, folder, kill_wait=20):
        missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
        if missing:
            raise RuntimeError(f"{', '.join(missing)} not found: scripts/setup --tests installs Slurm and munge")
        self.folder = pathlib.Path(folder)
        self.daemons = []
        for name in ("munge", "state", "spool.n1", "spool.n2", "temporary.n1", "temporary.n2"):
            (self.folder / name).mkdir()
        # munge wants its socket to be reachable for everybody, and nobody else to write there.
        for path in (self.folder, self.folder / "munge"):
            path.chmod(0o755)
        (self.folder / "munge" / "key").write_bytes(os.urandom(128))
        (self.folder / "munge" / "key").chmod(0o400)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        text = CONFIGURATION.format(host=socket.gethostname().split(".")[0], folder=self.folder, user=user,
                                    ports=neighbouring_ports(3), kill_wait=kill_wait)
        (self.folder / "slurm.conf").write_text(text)
        # Two hosts of one machine must not meet in shared memory.
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf"), "OMPI_MCA_btl": "tcp,self"}
        for name in ("OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_oversubscribe"):
            self.environment.pop(name, None)

    def start(self):
        munge = self.folder / "munge"
        self.daemon("munged", "--foreground", f"--key-file={munge}/key", f"--socket={munge}/socket", f"--pid-file={munge}/pid",
                    f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.wait_for("munge", (munge / "socket").exists)
        self.daemon("slurmctld", "-D", "-c")
        for node in ("n1", "n2"):
            self.daemon("slurmd", "-D", "-N", node)
        self.wait_for("two idle nodes", lambda: self.output("sinfo", "-h", "-p", "low", "-t", "idle", "-o", "%D") == "2")

    def daemon(self, program, *arguments):
        log = open(self.folder / f"{program}.{len(self.daemons)}.out", "wb")
        self.daemons.append(subprocess.Popen([shutil.which(program, path=PATH), *arguments], env=self.environment, stdout=log,
                                             stderr=subprocess.STDOUT, start_new_session=True))
        log.close()

    def stop(self):
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()

    def wait_for(self, what, happens, seconds=120):
        end = time.monotonic() + seconds
        while not happens():
            dead = [one.args[0] for one in self.daemons if one.poll() is not None]
            if dead or time.monotonic() > end:
                raise RuntimeError(f"no {what} within {seconds} s; ended: {dead}; {self.logs()}")
            time.sleep(0.1)

    def logs(self):
        paths = [*self.folder.glob("*.log"), *self.folder.glob("*.out"), self.folder / "munge" / "log"]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in paths if path.exists())

    def command(self, *arguments, cwd=None):
        return subprocess.run(list(map(str, arguments)), capture_output=True, text=True, env=self.environment, cwd=cwd,
                              timeout=60, check=False)

    def output(self, *arguments):
        return self.command(*arguments).stdout.strip()

    def submit(self, *arguments, cwd):
        done = self.command("sbatch", "--parsable", *arguments, cwd=cwd)
        if done.returncode:
            raise RuntimeError(f"sbatch: {done.stderr}")
        return done.stdout.strip()

    def queued(self):
        """Numbers of the jobs that wait or run, of arrays that of the array."""
        done = self.command("squeue", "-h", "-o", "%F")
        if done.returncode:
            raise RuntimeError(f"squeue: {done.stderr}")
        return set(done.stdout.split())

    def state(self, job):
        """What scontrol says of a job: {"JobState": ..., "ExitCode": ...}"""
        text = self.output("scontrol", "-o", "show", "job", job).splitlines()
        return dict(word.split("=", 1) for word in text[0].split() if "=" in word) if text else {}
