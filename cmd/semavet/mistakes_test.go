package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mistakes is a program with the mistakes that the documents name. A comment
// marks the line of each.
const mistakes = `package user

import (
	"context"
	"net/http"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

type service struct {
	requests *sema.Semaphore
	memory   *sema.Weighted
	conns    *pool.Pool[int]
	changed  *sema.Counter
}

func newService() *service { return &service{memory: sema.NewWeighted(10)} }

func (s *service) ignoredError(ctx context.Context) {
	permit, _ := s.requests.Acquire(ctx, 1) // mistake: ignored acquire error
	defer permit.Release()
	work(ctx)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	permit, err := s.requests.Acquire(r.Context(), 1)
	if err != nil {
		return
	}
	work(r.Context())
	permit.Release() // mistake: Release without defer
}

func (s *service) overReleased(ctx context.Context) error {
	if err := s.memory.Acquire(ctx, 1); err != nil {
		return err
	}
	defer s.memory.Release(1)
	if err := work(ctx); err != nil {
		s.memory.Release(1) // mistake: Weighted over-release
		return err
	}
	return nil
}

func (s *service) mismatched(ctx context.Context) error {
	if err := s.memory.Acquire(ctx, 3); err != nil { // mistake: Weighted mismatch
		return err
	}
	defer s.memory.Release(1)
	return work(ctx)
}

func (s *service) forgotten(ctx context.Context) error {
	if err := s.memory.Acquire(ctx, 2); err != nil { // mistake: Weighted forgotten release
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	s.memory.Release(2)
	return nil
}

func (s *service) ignoredWait(ctx context.Context) error {
	s.changed.Wait(ctx, 1) // mistake: ignored Counter.Wait
	return work(ctx)
}

func (s *service) handle(w http.ResponseWriter, r *http.Request) {
	permit, err := s.requests.Acquire(context.Background(), 1) // mistake: context.Background() on a request path
	if err != nil {
		return
	}
	defer permit.Release()
	work(r.Context())
}

func (s *service) droppedItem(ctx context.Context) (int, error) {
	item, err := s.conns.Get(ctx) // mistake: pool.Item dropped
	if err != nil {
		return 0, err
	}
	return item.Value(), nil
}

func work(context.Context) error { return nil }
`

// TestCommand_FindsTheMistakesOfTheDocuments requires one report for each
// mistake, and none elsewhere.
func TestCommand_FindsTheMistakesOfTheDocuments(t *testing.T) {
	t.Parallel()
	var want []string
	for i, text := range strings.Split(mistakes, "\n") {
		if _, name, ok := strings.Cut(text, "// mistake: "); ok {
			want = append(want, fmt.Sprintf("user.go:%d %s", i+1, name))
		}
	}
	if len(want) != 8 {
		t.Fatalf("the program has %d mistakes, want 8", len(want))
	}
	dir := userModule(t, mistakes)
	out, code := run(t, dir, binary, "-background.where=requests", "./...")
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^.*user\.go:(\d+):\d+: \S`).FindAllStringSubmatch(out, -1) {
		at := "user.go:" + m[1] + " "
		i := slices.IndexFunc(want, func(w string) bool { return strings.HasPrefix(w, at) })
		if i < 0 {
			t.Errorf("%s has no mistake", at)
			continue
		}
		got = append(got, want[i])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("reports:\n%s\nwant:\n%s\noutput:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), out)
	}

	out, _ = run(t, dir, binary, "./...")
	if strings.Contains(out, "context.Background()") {
		t.Errorf("the check of contexts is opt-in, but reports:\n%s", out)
	}
}

// xsyncUsers are packages of modules that this repository requires. They use
// golang.org/x/sync.
var xsyncUsers = []string{
	"github.com/jackc/puddle/v2",
	"google.golang.org/grpc/credentials/alts/internal/handshaker",
	"golang.org/x/sync/semaphore",
	"golang.org/x/sync/errgroup",
	"golang.org/x/sync/singleflight",
	"golang.org/x/tools/go/analysis/unitchecker",
	"golang.org/x/tools/go/packages",
	"golang.org/x/tools/internal/imports",
	"github.com/charmbracelet/ultraviolet",
	"github.com/prometheus/procfs/sysfs",
}

// TestCommand_ReportsNothingInUsersOfXSync runs semavet on real programs.
func TestCommand_ReportsNothingInUsersOfXSync(t *testing.T) {
	t.Parallel()
	workspace, err := filepath.Abs("../../go.work") // its modules require those of the users
	if err != nil {
		t.Fatal(err)
	}
	// go vet also reads the tests of the users, which may import modules that this
	// repository does not require. They are downloaded if the test must run.
	env := []string{"GOWORK=" + workspace, "GOFLAGS="}
	if os.Getenv("SEMA_TEST_REQUIRE") != "1" {
		env = append(env, "GOPROXY=off")
	}
	inWorkspace := func(name string, args ...string) (string, int) {
		out, code := runWith(t, env, "../..", name, args...)
		return regexp.MustCompile(`(?m)^go: downloading .*\n`).ReplaceAllString(out, ""), code
	}
	if out, code := inWorkspace("go", append([]string{"list"}, xsyncUsers...)...); code != 0 {
		if os.Getenv("SEMA_TEST_REQUIRE") == "1" {
			t.Fatalf("the modules are not in the module cache:\n%s", out)
		}
		t.Skipf("the modules are not in the module cache:\n%s", out)
	}
	if out, code := inWorkspace("go", append([]string{"vet", "-vettool=" + binary}, xsyncUsers...)...); code != 0 || out != "" {
		t.Errorf("exit code %d, want 0 and no report:\n%s", code, out)
	}

	// The tests of the semaphore ignore errors on purpose: they acquire more
	// than there is, and cancel.
	out, _ := inWorkspace("go", "vet", "-vettool="+binary, "-include-tests", "golang.org/x/sync/semaphore")
	reports := regexp.MustCompile(`(?m)^.*\.go:\d+:\d+: \S.*$`).FindAllString(out, -1)
	if len(reports) != 2 || slices.ContainsFunc(reports, func(r string) bool { return !strings.Contains(r, "the error of sem.Acquire is ignored") }) {
		t.Errorf("want two ignored errors, got:\n%s", out)
	}
}
