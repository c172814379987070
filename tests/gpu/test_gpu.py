# SPDX-License-Identifier: BSD-3-Clause
"""Python programs on GPUs, examined: whether what is found is what the CPU's runs have, and that nothing waits.

environment: DDP_DOCTOR=bin/ddp-doctor; exit 77: this Python has no torch, or sees no GPU
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch")
    sys.exit(77)
if not torch.cuda.is_available():
    print(f"skipped: torch {torch.__version__} sees no GPU")
    sys.exit(77)

DOCTOR = os.environ["DDP_DOCTOR"]
# Two ranks may share a GPU: NCCL refuses that unless it takes them for ranks of two machines.
SHARED_GPU = """
import os
import torch
if torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]):
    os.environ.update(NCCL_HOSTID="machine" + os.environ["RANK"], NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
"""
PROGRAM = SHARED_GPU + """
import sys
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
backend, how, dtype = sys.argv[1:4]
rank = int(os.environ["RANK"])
device = torch.device("cuda", rank if torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"]) else 0)
torch.cuda.set_device(device)
dist.init_process_group(backend)
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to(device, getattr(torch, dtype))
ddp = DDP(model, device_ids=[device.index])
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    inputs = torch.randn(8, 256, device=device, dtype=getattr(torch, dtype))
    loss = (ddp.module if how == "bypass" else ddp)(inputs).square().mean()
    if how == "strict":
        torch.cuda.set_sync_debug_mode("error" if step > 3 else "default")
    loss.backward()
    optimizer.step()
    torch.cuda.set_sync_debug_mode("default")
dist.destroy_process_group()
"""
SHARDED_LOSS = SHARED_GPU + """
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
torch.cuda.set_device(0)
torch.manual_seed(0)
model = nn.Linear(32, 64, bias=False).cuda()
parallelize_module(model, mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    with loss_parallel():
        nn.functional.cross_entropy(model(torch.randn(8, 32, device="cuda")), torch.randint(64, (8,), device="cuda")).backward()
    optimizer.step()
dist.destroy_process_group()
"""
TF32 = SHARED_GPU + """
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("nccl")
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 256), torch.randint(10, (128,)))
model = DDP(nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs.cuda()), targets.cuda()).backward()
    optimizer.step()
dist.destroy_process_group()
"""


def run(ranks, *arguments, text=PROGRAM, command="run", flags=("--every", "1")):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "train.py"
        program.write_text(text)
        done = subprocess.run(
            [DOCTOR, command, "--python", sys.executable, "--nproc-per-node", str(ranks), "--format", "json", *flags, str(program), "--", *arguments],
            capture_output=True, text=True, timeout=300)
        if not done.stdout:
            raise AssertionError(done.stderr[-3000:])
        return json.loads(done.stdout), done


class OnGpus(unittest.TestCase):
    def found(self, report):
        return sorted(finding["rule"] for finding in report["findings"])

    def test_a_healthy_program_over_gloo_is_healthy(self):
        for dtype in ("float32", "bfloat16"):
            report, done = run(2, "gloo", "healthy", dtype)
            self.assertEqual(report["verdict"], "healthy", done.stderr[-2000:])
            self.assertNotIn("copied to the CPU to be examined", done.stdout + done.stderr)

    def test_a_bypassed_wrapper_over_gloo_is_found(self):
        report, _ = run(2, "gloo", "bypass", "float32")
        self.assertIn("DDP101", self.found(report))

    def test_one_rank_over_nccl_runs(self):
        report, done = run(1, "nccl", "healthy", "float32")
        self.assertEqual(report["runs"][0]["steps"], 12, done.stderr[-2000:])

    def test_two_ranks_over_nccl(self):
        report, _ = run(2, "nccl", "healthy", "float32")
        self.assertEqual(report["verdict"], "healthy")
        report, _ = run(2, "nccl", "bypass", "bfloat16")
        self.assertIn("DDP101", self.found(report))

    def test_a_loss_that_is_a_dtensor_is_read_where_its_part_is(self):
        report, done = run(2, text=SHARDED_LOSS)
        self.assertEqual(report["verdict"], "healthy", done.stderr[-2000:])

    def test_tf32_is_no_difference_from_one_process(self):
        report, done = run(2, text=TF32, command="parity", flags=())
        self.assertEqual(report["verdict"], "healthy", done.stderr[-2000:])

    def test_no_step_waits_for_the_gpu_because_of_us(self):
        """torch's own check: an operation that synchronizes raises an error."""
        report, done = run(1, "nccl", "strict", "float32")
        self.assertEqual(report["runs"][0]["steps"], 12, done.stderr[-2000:])


if __name__ == "__main__":
    unittest.main(verbosity=2)
