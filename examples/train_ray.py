"""train_ddp.py's training under Ray Train, with TACO as the backend of its workers.

    python examples/train_ray.py --workers 2

On the TI platform's Ray mode the same command is the task's start command: ray.init() finds the cluster by itself.
"""

import argparse
import os
import tempfile

import ray
import ray.train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import torch_taco.ray


def work(options):
    """Runs in each worker, after Ray has made the process group."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import train_ddp

    torch.manual_seed(0)
    train_set, test_set = train_ddp.digits()
    model = DistributedDataParallel(train_ddp.network())
    train_ddp.fit(model, train_set, options["epochs"], options["steps"])
    loss, correct = train_ddp.evaluate(model.module, *test_set)
    report = {"backend": dist.get_backend(), "loss": loss, "accuracy": correct,
              "identical": train_ddp.replicas_identical(model.module)}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report(report, checkpoint=checkpoint)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="stop after so many")
    parser.add_argument("--storage", help="where Ray keeps its results (default: ~/ray_results)")
    arguments = parser.parse_args()

    trainer = TorchTrainer(
        work,
        train_loop_config={"epochs": arguments.epochs, "steps": arguments.steps},
        torch_config=torch_taco.ray.TacoConfig(),
        scaling_config=ScalingConfig(num_workers=arguments.workers),
        run_config=RunConfig(storage_path=arguments.storage),
    )
    found = trainer.fit().metrics
    print(f"backend: {found['backend']}")
    print(f"test loss: {found['loss']:.6f}")
    print(f"test accuracy: {found['accuracy']:.3f}")
    print(f"replicas identical: {'yes' if found['identical'] else 'NO'}")


if __name__ == "__main__":
    main()
