package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// completeName is the name of the complete program.
const completeName = "sema-full"

// complete replaces this process by the complete program, with the same arguments. It returns
// only if that fails.
func complete() error {
	path, err := find()
	if err != nil {
		return err
	}
	if err := replace(path, os.Args[1:]); err != nil {
		return exit.Errorf(exit.Failed, "cannot run %s: %w", path, err)
	}
	return nil
}

// find returns the path of the complete program: beside this one, or in PATH. Links are followed
// first, so that a link to this program in another directory works.
func find() (string, error) {
	file := completeName
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	directory := "its directory"
	if own, err := os.Executable(); err == nil {
		if target, err := filepath.EvalSymlinks(own); err == nil {
			own = target
		}
		directory = filepath.Dir(own)
		if beside := filepath.Join(directory, file); isFile(beside) {
			return beside, nil
		}
	}
	if path, err := exec.LookPath(completeName); err == nil {
		return path, nil
	}
	return "", exit.Errorf(exit.Failed, "this program only runs commands under semaphores of this machine, and there is no %s in %s or in PATH", completeName, directory).
		With("install both programs in one directory: make install")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
