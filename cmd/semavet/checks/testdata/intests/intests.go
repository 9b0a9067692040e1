// Package intests has a test file.
package intests
