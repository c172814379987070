# SPDX-License-Identifier: BSD-3-Clause
"""Neither a module nor an optimizer: gradient descent on two tensors, whose average over the ranks replaces them after each step."""
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(8, 3, generator=generator, requires_grad=True)
    bias = torch.zeros(3, requires_grad=True)
    generator.manual_seed(1 + dist.get_rank())
    for _ in range(12):
        x = torch.randn(16, 8, generator=generator)
        torch.nn.functional.cross_entropy(x @ weight + bias, x[:, :3].argmax(1)).backward()
        for parameter in (weight, bias):
            parameter.data -= 0.1 * parameter.grad
            parameter.grad.zero_()
        average = torch.cat([weight.detach().flatten(), bias.detach()])
        dist.all_reduce(average)
        average /= dist.get_world_size()
        with torch.no_grad():
            weight.copy_(average[:weight.numel()].view_as(weight))
            bias.copy_(average[weight.numel():])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
