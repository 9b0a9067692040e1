// Package intests has a test.
package intests
