"""Trains train_ddp.py's network with parameter servers instead of DistributedDataParallel.

    torchrun --nproc-per-node 4 examples/train_parameter_server.py --servers 2
    taco run examples/train_parameter_server.py          # where TF_CONFIG says who is a server

The first ranks are workers, the last ones servers. Each server holds a part of the parameters and its optimizer. A
worker, in its own rhythm,
  pulls    asks every server for its part and puts the parts together,
  computes the gradient of its next 32 images,
  pushes   each server the gradient of its part, which the server applies at once.
Nothing here is collective: all of it is send and receive. A server listens for whoever speaks next.
"""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, DistributedSampler

import train_ddp

# What a worker may say, as the one number of a message with the tag SAY.
PULL, PUSH, DONE = 0, 1, 2
SAY, PARAMETERS, GRADIENT = 1, 2, 3


def parts(size, servers):
    """Where each server's part of the flat parameters begins and ends."""
    bounds = [size * index // servers for index in range(servers + 1)]
    return list(zip(bounds, bounds[1:]))


def serve(index, workers, servers):
    """A server's life: until every worker has said that it is done."""
    torch.manual_seed(0)  # the same first parameters everywhere
    first, last = parts(sum(p.numel() for p in train_ddp.network().parameters()), servers)[index]
    torch.manual_seed(0)
    part = parameters_to_vector(train_ddp.network().parameters()).detach()[first:last].clone()
    # Gradients come one by one from workers that do not wait for each other: smaller steps than with DDP.
    optimizer = torch.optim.SGD([part], lr=0.02, momentum=0.9)
    gradient = torch.empty_like(part)
    said = torch.empty(1, dtype=torch.int64)
    working = workers
    while working > 0:
        worker = dist.recv(said, tag=SAY)  # from anybody
        if said.item() == PULL:
            dist.send(part, worker, tag=PARAMETERS)
        elif said.item() == PUSH:
            dist.recv(gradient, worker, tag=GRADIENT)
            part.grad = gradient
            optimizer.step()
        else:
            working -= 1


class Servers:
    """A worker's view of all servers together: one flat vector of parameters."""

    def __init__(self, first_rank, servers, size):
        self._parts = [(first_rank + index, *bounds) for index, bounds in enumerate(parts(size, servers))]
        self._parameters = torch.empty(size)

    def pull(self):
        waiting = [dist.irecv(self._parameters[first:last], server, tag=PARAMETERS)
                   for server, first, last in self._parts]
        self._say(PULL)
        for work in waiting:
            work.wait()
        return self._parameters

    def push(self, gradient):
        self._say(PUSH)
        sending = [dist.isend(gradient[first:last], server, tag=GRADIENT) for server, first, last in self._parts]
        for work in sending:
            work.wait()

    def done(self):
        self._say(DONE)

    def _say(self, what):
        for server, _, _ in self._parts:
            dist.send(torch.tensor([what]), server, tag=SAY)


def work(index, workers, servers, epochs):
    torch.manual_seed(0)
    train_set, test_set = train_ddp.digits()
    model = train_ddp.network()
    sampler = DistributedSampler(train_set, num_replicas=workers, rank=index, seed=0)
    loader = DataLoader(train_set, batch_size=32, sampler=sampler)
    remote = Servers(workers, servers, sum(p.numel() for p in model.parameters()))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            vector_to_parameters(remote.pull(), model.parameters())
            gradients = torch.autograd.grad(cross_entropy(model(images), labels), list(model.parameters()))
            remote.push(torch.cat([gradient.flatten() for gradient in gradients]))
    vector_to_parameters(remote.pull(), model.parameters())
    loss, correct = train_ddp.evaluate(model, *test_set)
    remote.done()
    print(f"worker {index}: test loss: {loss:.6f}, test accuracy: {correct:.3f}", flush=True)


def count_of_servers(arguments):
    """As the platform says, else as the command line does."""
    if "TF_CONFIG" in os.environ:
        return len(json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"])
    return arguments.servers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="taco")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()

    dist.init_process_group(backend=arguments.backend, init_method="taco://")
    servers = count_of_servers(arguments)
    rank, workers = dist.get_rank(), dist.get_world_size() - servers
    if not 0 < workers < dist.get_world_size():
        raise SystemExit(f"{dist.get_world_size()} processes are too few for {servers} servers and a worker")
    # `taco run` tells the role; with another launcher it follows from the rank.
    role = os.environ.get("TACO_ROLE") or ("worker" if rank < workers else "ps")
    if role == "ps":
        serve(rank - workers, workers, servers)
    else:
        work(rank, workers, servers, arguments.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
