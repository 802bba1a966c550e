#pragma once

namespace taco {

// How long a flag takes from one core to another: nanoseconds from a store on one to the load on
// the other that sees it, the median of many round trips, halved. Two threads, one bound to each
// CPU, hand a number to and fro. A kSystem error where a thread cannot be bound there.
double flagLatencyNs(int firstCpu, int secondCpu);

}  // namespace taco
