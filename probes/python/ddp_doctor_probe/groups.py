# SPDX-License-Identifier: BSD-3-Clause
"""Process groups: their ranks, and their names in the call log."""


def group_key(torch, group):
    """A process group in the call log: empty for the default group; otherwise its ranks and its name, since groups may have the same ranks."""
    c10d = torch.distributed.distributed_c10d
    if group is None or group is c10d.group.WORLD:
        return ""
    names = c10d._world.pg_names if hasattr(c10d, "_world") else c10d._pg_names
    return f"{','.join(map(str, ranks_of(torch, group)))}#{names.get(group, '')}"


def ranks_of(torch, group):
    """The global ranks of a process group."""
    c10d = torch.distributed.distributed_c10d
    if group is None or group is getattr(c10d.group, "WORLD", None):
        return list(range(torch.distributed.get_world_size()))
    table = c10d._world.pg_group_ranks if hasattr(c10d, "_world") else c10d._pg_group_ranks
    return sorted(table[group]) if group in table else list(range(torch.distributed.get_world_size()))
