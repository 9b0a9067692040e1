package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Stop sends SIGSTOP and waits until all threads of the child are stopped.
func (p *Process) Stop() {
	p.t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(receiveTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if p.stopped() {
			return
		}
	}
	p.t.Fatalf("process %d was not stopped within %v", p.Pid, receiveTimeout)
}

// Continue sends SIGCONT.
func (p *Process) Continue() {
	p.t.Helper()
	if err := p.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Process) stopped() bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err == nil && !strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " T") {
			return false
		}
	}
	return len(tasks) > 0
}
