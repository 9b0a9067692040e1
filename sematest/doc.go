// Package sematest helps to test programs that use semaphores.
//
//   - [Explore] runs a program under many schedules and finds deadlocks, lost wake-ups and
//     violated invariants that ordinary tests meet once in a million runs. It prints the
//     seed of the schedule that failed, and replays it.
//   - [Wrap] injects faults into a gate: delays, rejections, lost permits, starvation.
//   - [Check] is the conformance suite of gates: run it for a [sema.Gate] of your own.
//   - [NoneHeld] fails a test that ends while permits are held.
//
// Explore needs the program to use what the package wraps, and finds faults in the order
// of operations, not data races: use the race detector for these. To test how a program
// behaves under load, use a benchmark.
package sematest
