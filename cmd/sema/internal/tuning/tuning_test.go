package tuning

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/tune"
)

func TestMain(m *testing.M) {
	commandtest.Main(m, func(func() (store.URL, error)) *cobra.Command { return Command() })
}

// TestTune_ProposesANumber runs a real command. Which number it proposes depends on the machine.
func TestTune_ProposesANumber(t *testing.T) {
	t.Parallel()
	result := commandtest.Run(t, "tune", "--only", "2,1", "--each", "20ms", "-o", "json", "--", "true")
	var d document
	if err := json.Unmarshal([]byte(result.Out), &d); err != nil || result.Code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", result.Code, err, result.Out, result.Err)
	}
	if len(d.Steps) != 2 || d.Steps[0].Capacity != 1 || d.Steps[1].Capacity != 2 || d.Needed == 0 || d.Proposed <= d.Needed {
		t.Errorf("%+v", d)
	}
	for _, s := range d.Steps {
		if s.Calls < 20 || s.Failed != 0 || s.Throughput <= 0 || s.P99 < s.P50 {
			t.Errorf("%+v", s)
		}
	}
	if !strings.Contains(result.Err, "1 at a time: ") {
		t.Errorf("no progress in %q", result.Err)
	}
}

func TestTune_CommandsThatFail(t *testing.T) {
	t.Parallel()
	result := commandtest.Run(t, "tune", "--only", "1", "--each", "10ms", "--", "sh", "-c", "echo one >&2; echo connection lost >&2; exit 3")
	if result.Code != 1 || !strings.Contains(result.Out, "no number can be proposed") || !strings.Contains(result.Out, "exit status 3: connection lost") {
		t.Errorf("exit code %d\n%s%s", result.Code, result.Out, result.Err)
	}
}

func TestTune_CommandsThatHang(t *testing.T) {
	t.Parallel()
	result := commandtest.Run(t, "tune", "--only", "2", "--each", "10ms", "--", "sleep", "3600")
	if result.Code != 1 || !strings.Contains(result.Out, "did not end within 100ms") {
		t.Errorf("exit code %d\n%s%s", result.Code, result.Out, result.Err)
	}
}

func TestTune_Misuse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"tune"}, 64, "--"},
		{[]string{"tune", "true"}, 64, "--"},
		{[]string{"tune", "--"}, 64, "--"},
		{[]string{"tune", "-o", "xml", "--", "true"}, 64, "json"},
		{[]string{"tune", "--min", "9", "--max", "3", "--", "true"}, 64, "Min"},
		{[]string{"tune", "--only", "0", "--", "true"}, 64, "capacities"},
		{[]string{"tune", "--max-failed", "200", "--", "true"}, 64, "MaxFailed"},
		{[]string{"tune", "--", "no-such-command"}, 127, "no-such-command"},
	} {
		if result := commandtest.Run(t, test.args...); result.Code != test.code || !strings.Contains(result.Err, test.want) || result.Out != "" {
			t.Errorf("%v: exit code %d, want %d\n%s%s", test.args, result.Code, test.code, result.Out, result.Err)
		}
	}
}

// TestTune_InterruptPrintsWhatWasMeasured interrupts the command during a run that takes long.
func TestTune_InterruptPrintsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	storetest.Need(t, "sh", "dash")
	began := filepath.Join(t.TempDir(), "began")
	cmd := commandtest.Command(t, "tune", "--each", "1h", "-o", "json", "--", "sh", "-c", "touch "+began+"; exec sleep 3600")
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(began); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the command was not started")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	var d document
	if err := json.Unmarshal([]byte(out.String()), &d); err != nil || !d.Interrupted || cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("exit code %d, %v, %s", cmd.ProcessState.ExitCode(), err, out.String())
	}
}

// TestReport_SummaryIsRoundedLikeTheRows checks that the sentence of package tune shows the same
// numbers as the row.
func TestReport_SummaryIsRoundedLikeTheRows(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{77_777, 1_234_567, 403_885_712, 12_345_678_901} {
		synctest.Test(t, func(t *testing.T) {
			r, err := tune.Run(t.Context(), tune.Config{Only: []int64{1}, Work: func(context.Context) error {
				time.Sleep(took)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			shown := strings.Fields(strings.Split(report{Result: r}.text(), "\n")[2]) // capacity, bar, throughput, bar, p99, mark
			if want := shown[2] + " a second, with a p99 of " + shown[4]; !strings.HasSuffix(r.Why, want) {
				t.Errorf("%q, want %q", r.Why, want)
			}
		})
	}
}

func TestReport_Text(t *testing.T) {
	t.Parallel()
	r := report{Result: tune.Result{Needed: 2, Proposed: 3, Why: "2 at a time yield 97 % of the best throughput", Steps: []tune.Step{
		{Capacity: 1, Throughput: 100, P99: 10 * time.Millisecond},
		{Capacity: 2, Throughput: 194, P99: 11 * time.Millisecond},
		{Capacity: 4, Throughput: 200, P99: 20 * time.Millisecond, Failed: 9, Err: errors.New("rejected"), Excluded: "9 % of the calls fail (rejected)"},
	}}}
	const want = `
at a time  runs a second                   p99                           
        1  ██████████                 100  ██████████                10ms 
        2  ███████████████████▍       194  ███████████               11ms ◀
        4  ████████████████████       200  ████████████████████      20ms ✗

proposed: 3
2 at a time yield 97 % of the best throughput
`
	if got := r.text(); got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}
