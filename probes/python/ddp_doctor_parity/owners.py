# SPDX-License-Identifier: BSD-3-Clause
"""Which rank holds what one process holds: of modules that are dealt out to the ranks, as experts are, a rank has its own in a list, and one process
those of all ranks."""
import collections


def owners(names, one, ranks):
    """For each name in `one`, of one process: (position of the rank, or None if all ranks have it; its place among `names`, of a rank). None where lists of
    modules do not add up to those of all ranks, in their order."""
    here, there = _lists(names), _lists(one)
    places = {name: place for place, name in enumerate(names)}
    found = []
    for name in one:
        parts = name.split(".")
        owner, local = None, list(parts)
        for i, part in enumerate(parts):
            many = len(there[".".join(parts[:i])]) if part.isdigit() else 0
            few = len(here.get(".".join(local[:i]), ())) if part.isdigit() else 0
            if many == few:
                continue
            if owner is not None or many != few * ranks:
                return None
            owner, index = divmod(int(part), few)
            local[i] = str(index)
        place = places.get(".".join(local))
        if place is None:
            return None
        found.append((owner, place))
    complete = {place for _, place in found} == set(range(len(names))) and len(set(found)) == len(found)
    return found if complete else None


def _lists(names):
    """What lies in a list of modules, by its name: the numbers that it has."""
    lists = collections.defaultdict(set)
    for name in names:
        parts = name.split(".")
        for i, part in enumerate(parts):
            if part.isdigit():
                lists[".".join(parts[:i])].add(int(part))
    return lists
