"""The limits that a measurement is held against: how fast memory and network would allow the operation to be.

eta_mem = P x V x S / M / time   P ranks, S bytes, V the least traffic of a rank as a part of S (operations.py), M the
                                 memory traffic that the machine sustains. Only where the buffers do not fit into the
                                 last cache: below it M is no limit.
eta_net = W x S / (0.956 B) / time   W the least part of S that must pass through a node's network interface in one
                                 direction (operations.py), B its rate; 0.956 = what Ethernet, IP and TCP headers leave
                                 of it at an MTU of 1500.

Both are 1 where nothing could be faster.
"""

import glob

PAYLOAD_OF_WIRE = 0.956


def eta_mem(operation, size, ranks, memory_bytes_per_second, seconds, cache_bytes):
    if not memory_bytes_per_second or seconds <= 0 or not operation.memory_part(ranks) or ranks * size < cache_bytes:
        return None
    return ranks * operation.memory_part(ranks) * size / memory_bytes_per_second / seconds


def eta_net(operation, size, ranks, nodes, bits_per_second, seconds):
    part = operation.network_part(nodes, ranks / nodes)
    if not bits_per_second or seconds <= 0 or not part:
        return None
    return part * 8 * size / (PAYLOAD_OF_WIRE * bits_per_second) / seconds


def last_cache_bytes(folder="/sys/devices/system/cpu/cpu0/cache", otherwise=32 << 20):
    """Of the first CPU's largest cache."""
    sizes = []
    for path in glob.glob(f"{folder}/index*/size"):
        with open(path) as file:
            text = file.read().strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes, default=otherwise)
