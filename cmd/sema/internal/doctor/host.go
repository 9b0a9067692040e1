package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/host"
)

// examineHost examines the directory of this machine's semaphores, which have no server.
func examineHost(ctx context.Context, r *report, u store.URL) {
	opts, err := u.HostOptions()
	if err != nil {
		r.misused = true
		r.add(fleet.Finding{Check: "store", Level: fleet.LevelProblem, Seen: err.Error(), Advice: cmp.Or(sema.Hint(err), "give each parameter once")})
		return
	}
	dir, err := host.Where(opts...)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		r.add(fleet.Finding{Check: "system", Level: fleet.LevelProblem, Seen: runtime.GOOS + " is not supported", Advice: "use another store, such as sqlite:"})
		return
	case err != nil:
		r.add(fleet.Finding{Check: "directory", Level: fleet.LevelProblem, Seen: err.Error(), Advice: "name a directory that this user may write to: host:/path"})
		return
	}
	r.Reached = true
	r.add(directoryFinding(dir), systemFinding(), containerFinding(u, dir), useHost(ctx, opts))
	found, err := host.List(opts...)
	if err != nil {
		r.add(fleet.Finding{Check: "stored", Level: fleet.LevelProblem, Seen: err.Error(), Advice: "let this user read the directory"})
		return
	}
	r.add(fleet.Finding{Check: "stored", Level: fleet.LevelOK, Seen: figure.Count(int64(len(found)), "semaphore")})
	files, err := host.BadFiles(opts...)
	if err != nil {
		r.add(fleet.Finding{Check: "files", Level: fleet.LevelProblem, Seen: err.Error(), Advice: "let this user read the directory"})
	}
	for _, f := range files {
		facts, hint := explain.Error(f.Err)
		r.add(fleet.Finding{Check: "files", Level: fleet.LevelWarning, Seen: facts, Advice: hint})
	}
}

func directoryFinding(dir string) fleet.Finding {
	info, err := os.Stat(dir)
	if err != nil {
		return fleet.Finding{Check: "directory", Level: fleet.LevelProblem, Seen: err.Error(), Advice: "create it, writable for this user"}
	}
	f := fleet.Finding{Check: "directory", Level: fleet.LevelOK, Seen: fmt.Sprintf("%s, %v", dir, info.Mode())}
	if info.Mode()&0o002 != 0 {
		f.Level, f.Advice = fleet.LevelWarning, fmt.Sprintf("any user may create files there, and remove them if the directory is not sticky; chmod o-w %s", dir)
	}
	return f
}

func systemFinding() fleet.Finding {
	if runtime.GOOS == "linux" {
		return fleet.Finding{Check: "system", Level: fleet.LevelOK, Seen: "linux: locks of open files, which can be inherited, and futexes"}
	}
	return fleet.Finding{Check: "system", Level: fleet.LevelWarning, Seen: runtime.GOOS + ": record locks, which are not inherited; a waiter polls every few milliseconds",
		Advice: "no action needed; on this system a command that outlives its wrapper has no permit"}
}

// containerFinding warns about containers, which have their own /run and /var/tmp.
func containerFinding(u store.URL, dir string) fleet.Finding {
	for _, sign := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(sign); err == nil && u.IsOwnDirectory() {
			return fleet.Finding{Check: "container", Level: fleet.LevelWarning, Seen: "this is a container: other containers do not see " + dir, Advice: "mount one directory into all containers that share semaphores, and name it: host:/path"}
		}
	}
	return fleet.Finding{Check: "container", Level: fleet.LevelOK, Seen: "processes that see " + dir + " share its semaphores"}
}

// useHost acquires and resizes in a scratch semaphore, which it removes.
func useHost(ctx context.Context, opts []host.Option) fleet.Finding {
	problem := func(step string, err error) fleet.Finding {
		return fleet.Finding{Check: "use", Level: fleet.LevelProblem, Seen: fmt.Sprintf("%s fails: %v", step, err), Advice: "the directory must be on a local file system with free space, and writable for this user"}
	}
	name := store.ScratchName("doctor")
	s, err := host.Open(name, 1, opts...)
	if err != nil {
		return problem("open", err)
	}
	defer host.Remove(name, opts...)
	defer s.Close()
	const pairs = 1000
	start := time.Now()
	for range pairs {
		permit, err := s.Acquire(ctx, 1)
		if err != nil {
			return problem("acquire", err)
		}
		permit.Release()
	}
	took := time.Since(start) / pairs
	if err := s.Resize(ctx, 2); err != nil {
		return problem("resize", err)
	}
	return fleet.Finding{Check: "use", Level: fleet.LevelOK, Seen: fmt.Sprintf("acquire, release, resize work, %v a pair, in a scratch semaphore, which was removed", took.Round(10*time.Nanosecond))}
}
