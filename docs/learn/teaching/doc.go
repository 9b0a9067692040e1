// Package teaching contains four small semaphores that show how semaphores work: with a mutex
// and a condition variable, with a channel, by spinning, and with a queue whose waiters can be
// cancelled. docs/learn/implementations.md explains them, and what each of them lacks.
//
// They are for reading. Programs use package sema.
package teaching
