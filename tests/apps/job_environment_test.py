# SPDX-License-Identifier: MIT
"""What slurm/job.sh gives ranks in their environment for each launcher and network: with a launcher that writes down what it
was started with."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("GARONNE_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
JOB = """
set -euo pipefail
run_file=run.toml options=(--train.steps 1) garonne=./garonne launcher=$1 network=$2 interface=$3 goes_on= most_starts=1
source "$4"
"""
LAUNCHER = """#!/bin/sh
env >environment
printf '%s ' "$@" >words
"""
PREFIXES = ("SRUN_", "OMP_", "OMPI_", "UCX_", "FI_", "NCCL_")
ALWAYS = {"SRUN_CPUS_PER_TASK": "3", "OMP_NUM_THREADS": "3", "OMPI_MCA_odls_base_sigkill_timeout": "15"}
SLINGSHOT = {"NCCL_NET": "AWS Libfabric", "NCCL_NET_GDR_LEVEL": "PHB", "NCCL_CROSS_NIC": "1", "NCCL_PROTO": "^LL128",
             "FI_CXI_DEFAULT_CQ_SIZE": "131072", "FI_CXI_DEFAULT_TX_SIZE": "16384", "FI_CXI_DISABLE_HOST_REGISTER": "1",
             "FI_CXI_RX_MATCH_MODE": "software", "FI_MR_CACHE_MONITOR": "userfaultfd"}
NETWORKS = {"": {}, "ethernet": {}, "omni-path": {}, "infiniband": {"UCX_HANDLE_ERRORS": "none", "NCCL_NET_GDR_LEVEL": "PXB"},
            "slingshot": SLINGSHOT}


class JobEnvironmentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "run.toml").write_text("[grid]\ndata = 4\n")
        for name, text in (("srun", LAUNCHER), ("mpirun", LAUNCHER), ("garonne", "#!/bin/sh\n")):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def run_job(self, launcher="srun", network="", interface="", check=0, **given):
        """What the launcher was given: the variables of launchers and networks, and its words."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith((*PREFIXES, "SLURM_"))}
        environment = {**plain, "PATH": f"{self.folder}:{os.environ['PATH']}", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "2(x2)",
                       "SLURM_CPUS_PER_TASK": "3", **given}
        done = subprocess.run(["bash", "-c", JOB, "job", launcher, network, interface, str(SOURCE / "slurm/job.sh")], cwd=self.folder,
                              env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, check, done.stdout + done.stderr)
        if check:
            return done.stderr
        lines = (self.folder / "environment").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines if line.startswith(PREFIXES))
        for name, value in found.items():
            self.assertIn(f"{name}={value}", done.stdout, "the log says it")
        return found, (self.folder / "words").read_text().split()

    def test_each_network_has_its_variables_and_no_others(self):
        for network, variables in NETWORKS.items():
            with self.subTest(network):
                self.assertEqual(self.run_job(network=network)[0], {**ALWAYS, **variables})
        self.assertIn("network is ethernet, infiniband, omni-path or slingshot, not token-ring", self.run_job(network="token-ring", check=2))

    def test_an_interface_is_that_of_mpi_and_nccl(self):
        self.assertEqual(self.run_job(network="ethernet", interface="eth1")[0],
                         {**ALWAYS, "OMPI_MCA_btl_tcp_if_include": "eth1", "NCCL_SOCKET_IFNAME": "eth1"})

    def test_what_is_set_already_stays(self):
        for network, variables in NETWORKS.items():
            own = {name: f"own {name}" for name in (*variables, "OMPI_MCA_odls_base_sigkill_timeout")}
            self.assertEqual(self.run_job(network=network, **own)[0], {**ALWAYS, **own})

    def test_launchers_have_ranks_cores_and_nodes(self):
        train = ["./garonne", "train", "run.toml", "--run.threads", "3", "--train.steps", "1"]
        srun = ["--mpi=pmix", "--kill-on-bad-exit=1", "--wait=60", "--distribution=block,Pack"]
        self.assertEqual(self.run_job("srun")[1], [*srun, "--cpu-bind=cores", *train])
        self.assertEqual(self.run_job("srun", CPU_BIND="none")[1], [*srun, "--cpu-bind=none", *train])
        self.assertEqual(self.run_job("mpirun")[1], ["-n", "4", "--map-by", "ppr:2:node:PE=3", "--bind-to", "core", *train])
        self.assertEqual(self.run_job("mpirun", SLURM_NTASKS_PER_NODE="")[1],
                         ["-n", "4", "--map-by", "slot:PE=3", "--bind-to", "core", *train])
        self.assertIn("launcher is srun or mpirun, not aprun", self.run_job("aprun", check=2))

    def test_a_launcher_that_is_not_there_is_said(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("bash", "env", "date", "grep", "sort", "stat", "awk", "hostname"):
            (tools / name).symlink_to(shutil.which(name))
        (self.folder / "mpirun").unlink()
        self.assertIn("mpirun is not found: have this script load the module", self.run_job("mpirun", check=2, PATH=str(tools)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
