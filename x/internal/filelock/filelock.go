// Package filelock locks a file for one process. The system drops the lock when the process ends,
// however it ends. It is for a file of one owner; package host shares permits between processes.
package filelock
