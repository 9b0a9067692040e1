package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExitCodes_OfCommands checks exit codes, which scripts branch on, and messages, which
// monitoring reads.
func TestExitCodes_OfCommands(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("neither a program nor a script"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		code int
		want []string
		args []string
	}{
		"the command's own":               {7, nil, []string{"run", "x", "--", "sh", "-c", "exit 7"}},
		"the command's own 75":            {75, nil, []string{"run", "x", "--on-full", "3", "--", "sh", "-c", "exit 75"}},
		"success":                         {0, nil, []string{"run", "x", "-n", "2", "--", "true"}},
		"ended by a signal":               {128 + 9, nil, []string{"run", "x", "--", "sh", "-c", "kill -9 $$"}},
		"a command that does not exist":   {127, []string{"cannot run no-such-command"}, []string{"run", "x", "--", "no-such-command"}},
		"a file that does not exist":      {127, []string{"cannot run ./no/such"}, []string{"run", "x", "--", "./no/such"}},
		"a shell command line":            {127, []string{"no shell in between"}, []string{"run", "x", "--", "echo a | cat"}},
		"not executable":                  {126, []string{"permission denied"}, []string{"run", "x", "--", text}},
		"no name":                         {64, []string{"sema: missing NAME\nhint: write: sema run NAME -- COMMAND\n"}, []string{"run"}},
		"missing dashes":                  {64, []string{"sema: missing -- before the command\nhint: write: sema run x -- echo 'a b' c\n"}, []string{"run", "x", "echo", "a b", "c"}},
		"no command":                      {64, []string{"missing COMMAND after the --"}, []string{"run", "x", "--"}},
		"two names":                       {64, []string{"2 names before the --"}, []string{"run", "x", "y", "--", "true"}},
		"no such flag":                    {64, []string{"--frob"}, []string{"run", "x", "--frob", "--", "true"}},
		"flags without dashes":            {64, []string{"-j2", "put -- before the command"}, []string{"run", "x", "make", "-j2"}},
		"a flag of the command":           {64, []string{"unknown flag -j2", "hint: 'sema run --help' lists all flags"}, []string{"run", "x", "-j2", "--", "make"}},
		"a misspelt flag":                 {64, []string{"unknown flag --capcity", "hint: did you mean --capacity?"}, []string{"run", "x", "--capcity", "3", "--", "true"}},
		"a short flag with two dashes":    {64, []string{"unknown flag --n", "hint: did you mean -n?"}, []string{"run", "x", "--n", "3", "--", "true"}},
		"a flag of other programs":        {64, []string{"unknown flag --json", "hint: did you mean -o json?"}, []string{"ls", "--json"}},
		"a wait without a unit":           {64, []string{"--wait 30: want a duration with a unit, such as 30s"}, []string{"run", "x", "--wait", "30", "--", "true"}},
		"a time without a unit":           {64, []string{"--grace 5: want a duration with a unit"}, []string{"serve", "--grace", "5"}},
		"not a number":                    {64, []string{"--capacity many: want a whole number"}, []string{"run", "x", "-n", "many", "--", "true"}},
		"dashes instead of a number":      {64, []string{"--capacity --: want a whole number"}, []string{"run", "x", "-n", "--", "true"}},
		"a number that is too large":      {64, []string{"want a whole number"}, []string{"set", "x", "-n", "99999999999999999999"}},
		"neither true nor false":          {64, []string{"--no-wait maybe: want true or false"}, []string{"run", "x", "--no-wait=maybe", "--", "true"}},
		"a flag without value":            {64, []string{"--wait needs a value (DURATION): give up after"}, []string{"run", "x", "--wait"}},
		"no name to run":                  {64, []string{"missing NAME"}, []string{"run", "-n", "1", "--", "true"}},
		"a name alone":                    {64, []string{"missing COMMAND", "hint: write: sema run x -- COMMAND"}, []string{"run", "x"}},
		"no name to show":                 {64, []string{"missing NAME", "hint: write: sema show NAME"}, []string{"show"}},
		"two names to show":               {64, []string{`unexpected argument "b"`, "hint: write: sema show NAME"}, []string{"show", "a", "b"}},
		"a command to tune":               {0, []string{"1 at a time"}, []string{"tune", "--only", "1", "--each", "20ms", "--", "true"}},
		"no command to tune":              {64, []string{"want a command after --"}, []string{"tune"}},
		"no lease":                        {64, []string{"missing LEASE", "hint: write: sema renew NAME LEASE"}, []string{"renew", "x"}},
		"two prefixes":                    {64, []string{`unexpected argument "b"`, "hint: write: sema ls [PREFIX]"}, []string{"ls", "a", "b"}},
		"a number without a flag":         {64, []string{`unexpected argument "5"`, "hint: write: sema set NAME [--capacity N]"}, []string{"set", "x", "5"}},
		"nothing to remove":               {64, []string{"missing NAME", "hint: write: sema rm NAME…"}, []string{"rm"}},
		"an argument for token":           {64, []string{`unexpected argument "x"`, "hint: 'sema token' takes none"}, []string{"token", "x"}},
		"no shell":                        {64, []string{"missing SHELL", "sema completion bash"}, []string{"completion"}},
		"an unknown shell":                {64, []string{`unknown shell "tcsh"`, "hint: want bash"}, []string{"completion", "tcsh"}},
		"help of an unknown command":      {64, []string{`unknown command "frob"`}, []string{"help", "frob"}},
		"an unknown command of sema":      {64, []string{`unknown command "frob"`, "hint: 'sema --help'"}, []string{"frob"}},
		"a misspelt command of sema":      {64, []string{`unknown command "sho"`, "hint: did you mean 'show'"}, []string{"sho"}},
		"a capacity of 0":                 {64, []string{"-n 0: want 1 or more"}, []string{"run", "x", "-n", "0", "--", "true"}},
		"a weight of 0":                   {64, []string{"--weight 0"}, []string{"run", "x", "-w", "0", "--", "true"}},
		"a weight above the capacity":     {64, []string{"never be granted"}, []string{"run", "x", "-n", "2", "-w", "3", "--", "true"}},
		"a negative wait":                 {64, []string{"--wait -1s"}, []string{"run", "x", "--wait", "-1s", "--", "true"}},
		"both --wait and --no-wait":       {64, []string{"both --wait and --no-wait"}, []string{"run", "x", "--wait", "1s", "--no-wait", "--", "true"}},
		"an invalid exit code":            {64, []string{"--on-full 256"}, []string{"run", "x", "--on-full", "256", "--", "true"}},
		"kill after 0s":                   {64, []string{"--kill-after 0s"}, []string{"run", "x", "--kill-after", "0", "--", "true"}},
		"an invalid name":                 {64, []string{"name has ' '"}, []string{"run", "a b", "--", "true"}},
		"an unknown scheme":               {64, []string{"no store for", "frob"}, []string{"--store", "frob://x", "run", "x", "--", "true"}},
		"no scheme":                       {64, []string{"no scheme"}, []string{"--store", "/tmp/x", "run", "x", "--", "true"}},
		"memory":                          {64, []string{"use host:"}, []string{"--store", "mem:", "run", "x", "--", "true"}},
		"an unknown parameter of host:":   {64, []string{"frob"}, []string{"--store", "host:?frob=1", "ls"}},
		"an unknown format":               {64, []string{"--output yaml: want json, table or wide"}, []string{"ls", "-o", "yaml"}},
		"no such semaphore":               {1, []string{`no semaphore "unused"`, "sema ls"}, []string{"show", "unused"}},
		"Redis is unreachable":            {69, []string{"sema: cannot reach redis at 127.0.0.1:1: connection refused\nhint: check that it runs and can be reached; 'sema doctor' examines the store\n"}, []string{"--store", "redis://127.0.0.1:1", "run", "x", "--", "true"}},
		"PostgreSQL is unreachable":       {69, []string{"sema: cannot reach postgres at 127.0.0.1:1/x: connection refused\nhint: check that it runs and can be reached; 'sema doctor' examines the store\n"}, []string{"--store", "postgres://127.0.0.1:1/x", "ls"}},
		"a server is unreachable":         {69, []string{"cannot reach the sema service at 127.0.0.1:1: connection refused", "hint: ", "'sema doctor' examines the store"}, []string{"--store", "sema://127.0.0.1:1", "run", "x", "--", "true"}},
		"a server without store":          {69, []string{"cannot reach redis at 127.0.0.1:1"}, []string{"serve", "--store", "redis://127.0.0.1:1"}},
		"a server without tokens":         {64, []string{"--insecure"}, []string{"serve", "--store", "mem:", "--listen", ":0"}},
		"etcd is unreachable":             {69, []string{"cannot reach etcd at 127.0.0.1:1", "hint: ", "'sema doctor' examines the store"}, []string{"--store", "etcd://127.0.0.1:1", "acquire", "x"}},
		"a missing directory":             {1, []string{"/no/such/directory"}, []string{"--store", "host:/no/such/directory", "ls"}},
		"no table to migrate":             {64, []string{"no tables to migrate"}, []string{"migrate"}},
		"a lease on host:":                {64, []string{"ends with the process", "hint: use 'sema run"}, []string{"acquire", "x"}},
		"a drain of a missing semaphore":  {1, []string{`no semaphore "x"`}, []string{"drain", "x"}},
		"a resume of a missing semaphore": {1, []string{`no semaphore "x"`}, []string{"resume", "x"}},
		"a ramp on host:":                 {64, []string{"have no ramp"}, []string{"set", "x", "--ramp", "1"}},
		"revoke on host:":                 {64, []string{`revoke a permit of "x": `, "is released when the process", "hint: 'sema show x'"}, []string{"revoke", "x", "1"}},
		"nothing to change":               {64, []string{"nothing to change", "hint: give --capacity N"}, []string{"set", "x"}},
		"an invalid bound":                {64, []string{"--max-waiters -1: want a whole number, 0 or more, or none"}, []string{"set", "x", "--max-waiters", "-1"}},
		"a limit of 0":                    {64, []string{"--limit 0: want 1 or more"}, []string{"ls", "--limit", "0"}},
		"a lease on host: to show":        {64, []string{"have no lease"}, []string{"show", "x", "--after", "1"}},
		"a negative capacity":             {64, []string{"--capacity -1"}, []string{"set", "x", "--capacity", "-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onHost(t).expect(c.code, c.want, c.args...)
		})
	}
}

// TestErrors_ContainNoSecrets checks that no error contains the password of a URL.
func TestErrors_ContainNoSecrets(t *testing.T) {
	t.Parallel()
	for _, store := range []string{
		"redis://me:swordfish@127.0.0.1:1", "postgres://me:swordfish@127.0.0.1:1/x",
		"redis://me:swordfish@127.0.0.1:port", "frob://me:swordfish@host", "me:swordfish@host", "//me:swordfish@host",
		"host://me:swordfish@host", "postgres://me:swordfish@127.0.0.1:1/x?sema_frob=1",
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for _, args := range [][]string{{"run", "x", "--", "true"}, {"migrate"}, {"acquire", "x"}} {
				s := onHost(t)
				s.store = store
				r := s.run(args...)
				if output := r.out + r.err; r.code == 0 || strings.Contains(output, "swordfish") {
					t.Errorf("%v at %s: exit code %d, output %s", args, store, r.code, output)
				}
			}
		})
	}
}

func TestRun_CommandHasInputOutputAndName(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	s.env = []string{"SEMA_LEASE=1", "SEMA_FENCE=2", "SEMA_FENCE_FLOOR=3", "SEMA_NAME=outer"} // of an outer wrapper
	r := s.feed("in\n", "run", "x", "--", "sh", "-c", `cat; echo "$SEMA_NAME/$SEMA_LEASE/$SEMA_FENCE$SEMA_FENCE_FLOOR"; echo err >&2; printf '%s\n' "$@"`, "sh", "a b", "$HOME", "--flag")
	if want := "in\nx//\na b\n$HOME\n--flag\n"; r.out != want || r.err != "err\n" || r.code != 0 {
		t.Errorf("exit code %d, out %q, want %q, err %q", r.code, r.out, want, r.err)
	}
}

// holding starts a command that holds a permit until the test, or its input, ends.
func holding(s shell, args ...string) *process {
	s.t.Helper()
	p := s.start(append(append([]string{"run"}, args...), "--", "sh", "-c", "echo held; cat")...)
	if got := p.line(); got != "held" {
		s.t.Fatalf("output %q", got)
	}
	return p
}

func TestRun_NoPermitIsFree(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		holder := holding(s, "x", "-n", "2", "-w", "2")
		want := []string{`no permit of "x"`, "2 of 2 in use", "hint: 'sema show x'"}
		s.expect(75, want, "run", "x", "--no-wait", "--", "true")
		s.expect(75, want, "run", "x", "--wait", "0", "--", "true")
		s.expect(75, append(want, "within 200ms"), "run", "x", "--wait", "200ms", "--", "true")
		s.expect(0, want, "run", "x", "--no-wait", "--on-full", "0", "--", "false")
		s.expect(64, []string{"capacity of 2", "3 permits can never be granted", "hint: acquire fewer with --weight"}, "run", "x", "-w", "3", "--", "true")
		s.expect(75, []string{"warning", "2, not 5", "sema set x --capacity 5"}, "run", "x", "-n", "5", "--no-wait", "--", "true")
		holder.in.Close()
		if code := holder.wait(); code != 0 {
			t.Errorf("the holder ended with %d", code)
		}
		s.expect(0, nil, "run", "x", "--no-wait", "-w", "2", "--", "true")
	})
}

// TestRun_BoundsConcurrency checks that at most N commands run at a time.
func TestRun_BoundsConcurrency(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		inside := t.TempDir()
		// Each command creates a file, and counts the files.
		const script = `touch "$1/$$"; ls "$1" | wc -l; sleep 0.05; rm "$1/$$"`
		var all []*process
		for range 8 {
			all = append(all, s.start("run", "x", "-n", "2", "--", "sh", "-c", script, "sh", inside))
		}
		for _, p := range all {
			if n := strings.TrimSpace(p.line()); n != "1" && n != "2" {
				t.Errorf("%s run at the same time", n)
			}
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d\n%s", code, p.err.text())
			}
		}
	})
}

// TestRun_PrintsTheHoldersWhileWaiting checks the notice after two seconds.
func TestRun_PrintsTheHoldersWhileWaiting(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		holder := holding(s, "x", "-n", "1")
		waiter := s.start("run", "x", "--", "echo", "mine")
		eventually(t, "the holders are printed", func() bool { return strings.Contains(waiter.err.text(), "process ") })
		for _, want := range []string{`waiting for "x" for 2s, position 1 `, "of 1 in the queue; 1 of 1 permits are held by\n", "process " + pidText(holder)} {
			if !strings.Contains(waiter.err.text(), want) {
				t.Errorf("no %q in stderr:\n%s", want, waiter.err.text())
			}
		}
		holder.in.Close()
		if got := waiter.line(); got != "mine" || waiter.wait() != 0 {
			t.Errorf("output %q, exit code %d", got, waiter.code)
		}
	})
}
