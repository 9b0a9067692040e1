package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// A user is a process that runs this program until its input is closed.
type user struct {
	cmd   *exec.Cmd
	input io.Closer
	seat  string // the first line that it printed; "": it got no seat
}

// demonstrate starts users, kills one, and prints the seats.
func demonstrate() error {
	dir, err := os.MkdirTemp("", "seats")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var users []*user
	defer func() {
		for _, u := range users {
			u.input.Close()
			u.cmd.Wait()
		}
	}()
	start := func(n int) error {
		u, err := startUser(dir)
		if err != nil {
			return err
		}
		users = append(users, u)
		if u.seat == "" {
			fmt.Printf("user %d: no seat\n", n)
		} else {
			fmt.Printf("user %d: %s\n", n, u.seat)
		}
		return nil
	}
	for n := range 4 {
		if err := start(n + 1); err != nil {
			return err
		}
	}
	second := users[1]
	if err := second.cmd.Process.Kill(); err != nil {
		return err
	}
	second.cmd.Wait()
	fmt.Println("user 2: killed")
	return start(4)
}

// startUser starts a user, and waits until it has a seat or has ended.
func startUser(dir string) (*user, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-dir", dir, "-n", "3", "use")
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(output)
	lines.Scan()
	return &user{cmd, input, lines.Text()}, nil
}
