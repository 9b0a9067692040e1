package examples_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/proctest"
)

func TestShare_RunsACommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("package host is for Unix")
	}
	t.Parallel()
	program, name := build(t, "share"), "sema-examples-test"
	out, err := exec.Command(program, name, "2", "sh", "-c", "echo shared; exit 3").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "shared\n" {
		t.Errorf("%q, %v; want the command's output and exit code 3", out, err)
	}
	if err := exec.Command(program, name, "0", "true").Run(); !errors.As(err, &exit) || exit.ExitCode() != 64 {
		t.Errorf("0 shares: %v, want exit code 64", err)
	}
}

// TestSeats_FreesTheSeatOfAKilledUser: no two users have a seat in common, a fourth finds
// none, and gets that of a user that was killed.
func TestSeats_FreesTheSeatOfAKilledUser(t *testing.T) {
	needUnix(t)
	t.Parallel()
	p := run(t, 0, build(t, "seats"))
	want := "user 1: seat 1\nuser 2: seat 2\nuser 3: seat 3\nuser 4: no seat\nuser 2: killed\nuser 4: seat 2\n"
	if p.out != want {
		t.Errorf("printed %q, want %q", p.out, want)
	}
	if !regexp.MustCompile(`^seats: all 3 seats are taken: seat 1 by process \d+ since .*, seat 2 by .*, seat 3 by .*\n$`).MatchString(p.err) {
		t.Errorf("error of the fourth user: %q", p.err)
	}
}

// TestGPURun_AssignsDevices: commands that run at the same time have different GPUs, and
// one that finds too few waits for them.
func TestGPURun_AssignsDevices(t *testing.T) {
	needUnix(t)
	t.Parallel()
	program, dir := build(t, "gpurun"), t.TempDir()
	start := func(n string) *job {
		return startJob(t, program, "-dir", dir, "-gpus", "4", "-n", n, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; cat; exit 3")
	}
	pair, single := start("2"), start("1")
	used := append(strings.Split(pair.line(), ","), single.line())
	waiting := start("3")
	if distinct := slices.Compact(slices.Sorted(slices.Values(used))); len(distinct) != 3 {
		t.Errorf("three GPUs in use: %v", used)
	}
	if code := pair.end(); code != 3 {
		t.Errorf("exit code %d, want that of the command", code)
	}
	// Three are free now, all but that of single.
	if devices := strings.Split(waiting.line(), ","); len(devices) != 3 || slices.Contains(devices, used[2]) {
		t.Errorf("GPUs %v while %s is in use", devices, used[2])
	}
	waiting.end()
	single.end()
	if p := run(t, 0, program, "-dir", t.TempDir()); p.out != "runs on GPU 0\n" {
		t.Errorf("without a command: %q", p.out)
	}
}

// TestCBuffer_PassesItemsBothWays: items of C and Go are taken once each, by both.
func TestCBuffer_PassesItemsBothWays(t *testing.T) {
	if runtime.GOOS != "linux" || !slices.Contains([]string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"}, runtime.GOARCH) {
		t.Skip("package host/posix is for 64-bit Linux")
	}
	proctest.Need(t, "gcc", "gcc libc6-dev")
	t.Parallel()
	program := build(t, "cbuffer")
	for _, items := range []int{32, 1000} {
		p := run(t, 0, program, "-items", fmt.Sprint(items))
		byGo := p.numbers(t, `Go took (\d+) items: (\d+) of Go, (\d+) of C`)
		byC := p.numbers(t, `C took (\d+) items: (\d+) of Go, (\d+) of C`)
		if byGo[0] != items/2 || byC[0] != items/2 || byGo[2] == 0 || byC[1] == 0 {
			t.Errorf("%q: want half of the items each, and some of the other language", p.out)
		}
		if all := p.numbers(t, `(\d+) items, each taken once`); all[0] != items {
			t.Errorf("%d of %d items taken", all[0], items)
		}
	}
}

func needUnix(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("package host is for Unix")
	}
}

// A job is a program that runs until its input is closed.
type job struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.Closer
	lines *bufio.Scanner
}

func startJob(t *testing.T, program string, args ...string) *job {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := time.AfterFunc(runTimeout, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		ended.Stop()
		input.Close()
		cmd.Wait()
	})
	return &job{t, cmd, input, bufio.NewScanner(output)}
}

// line waits for the next line.
func (j *job) line() string {
	j.t.Helper()
	if !j.lines.Scan() {
		j.t.Fatalf("%s ended: %v", filepath.Base(j.cmd.Path), j.lines.Err())
	}
	return j.lines.Text()
}

// end closes the input, and returns the exit code.
func (j *job) end() int {
	j.t.Helper()
	j.input.Close()
	var exit *exec.ExitError
	if err := j.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		j.t.Fatal(err)
	}
	return j.cmd.ProcessState.ExitCode()
}
