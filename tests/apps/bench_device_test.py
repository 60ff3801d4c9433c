# SPDX-License-Identifier: MIT
"""`bench device`: what one device does, as a cluster file that `plan` takes."""
import json
import pathlib
import shutil
import tempfile
import unittest

from links_test import cluster_of
from support import BINARY, ProgramTest, run

QUICK = ("--seconds", 0.001, "--largest", 256, "--threads", 1)


class BenchDeviceTest(ProgramTest):
    def bench(self, *arguments, **options):
        return run("bench", "device", *QUICK, *arguments, **options)

    def test_one_device_is_a_cluster_that_is_planned_on(self):
        path = self.folder / "cluster.toml"
        said = self.bench("--output", path).stdout
        for words in ("GFLOP/s float32", "the smallest kernel", "of the best", "no multiple of 8", f"written to {path}"):
            self.assertIn(words, said)
        self.assertNotIn("copies ", said)
        cluster = cluster_of(path)
        self.assertEqual((cluster["devices_per_node"], cluster["nodes"]), (1, 1))
        device = cluster["device"]
        self.assertEqual(device["kind"], "cpu")
        self.assertNotIn("profiled_here", device)
        for rate in ("float32", "bfloat16", "float64"):
            self.assertGreater(device["flops"][rate], 1e6)
        self.assertGreater(device["bytes_per_second"], 1e6)
        self.assertTrue(0 < device["least_seconds"] < 0.1)
        products = device["products"]
        sides = [(64, 64, 64), (128, 128, 128), (256, 256, 256)]
        self.assertEqual(list(zip(products["rows"], products["columns"], products["depth"])), sides)
        self.assertTrue(all(0 < share <= 1 for share in products["efficiency"]))
        self.assertTrue(0 < products.get("unaligned", 1) <= 1)
        # A plan for it knows the device by nothing else.
        planned = json.loads(run("plan", self.config, "--cluster", path, "--json").stdout)
        self.assertGreater(planned["seconds"], 0)
        self.assertEqual(planned["costs"], "nominal")

    def test_nodes_and_links_are_those_of_a_file(self):
        links = self.folder / "links.toml"
        run("bench", "links", "--seconds", 0.001, "--threads", 1, "--largest", 65536, "--output", links, ranks=2)
        path = self.folder / "cluster.toml"
        self.bench("--links", links, "--output", path, ranks=2)
        measured, given = cluster_of(path), cluster_of(links)
        for key in ("link", "nodes", "devices_per_node", "name"):
            self.assertEqual(measured[key], given[key])
        self.assertEqual(measured["host"].get("communication_seconds_per_byte"),
                         given.get("host", {}).get("communication_seconds_per_byte"))
        self.assertIn("bench links", measured["source"])
        self.assertIn("bench device", measured["source"])
        self.assertIn("products", measured["device"])
        # One rank stands for all.
        self.bench("--links", links, "--output", path)
        self.assertEqual(cluster_of(path)["devices_per_node"], 2)

    def test_a_disk_is_measured_while_the_processor_computes(self):
        # The folder of temporary files may be in memory.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="bench-device-", dir=pathlib.Path(BINARY).resolve().parent))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        path = self.folder / "cluster.toml"
        self.assertIn("disk    writes ", self.bench("--disk", folder, "--output", path).stdout)
        disk = cluster_of(path)["disk"]
        self.assertTrue(disk["write"] > 0 and disk["read"] > 0 and disk["bytes"] > 0)
        self.assertEqual(list(folder.iterdir()), [])

    def test_what_cannot_be_is_refused(self):
        links = self.folder / "links.toml"
        run("bench", "links", "--seconds", 0.001, "--threads", 1, "--largest", 65536, "--output", links, ranks=2)
        for arguments, words, ranks in ((["--links", links], "has nodes of 2 devices, and there are 3 ranks here", 3),
                                        ([], "mpirun -n 2 garonne bench links", 2),
                                        (["--links", self.folder / "none.toml"], "none.toml", 0),
                                        (["--links", links, "--output", links], "--output", 0),
                                        (["--device", "tpu"], "--device", 0)):
            with self.subTest(words):
                self.assertIn(words, self.bench(*arguments, ranks=ranks, check=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
