package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sema-go/sema/x/internal/filelock"
)

// lock locks a directory until the file is closed or the process ends: two servers would
// overwrite each other's files. Some systems have no such lock.
func lock(directory string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(directory, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	ours, err := filelock.Try(f)
	if errors.Is(err, errors.ErrUnsupported) {
		return f, nil
	}
	if err == nil && ours {
		if err = f.Truncate(0); err == nil {
			_, err = fmt.Fprintln(f, os.Getpid())
		}
		if err == nil {
			return f, nil
		}
		filelock.Unlock(f)
	}
	defer f.Close()
	if err != nil {
		return nil, fmt.Errorf("open the history: lock %s: %w", directory, err)
	}
	process := "another process"
	if text, _ := os.ReadFile(f.Name()); len(text) > 0 && len(text) < 20 {
		process = "process " + strings.TrimSpace(string(text))
	}
	return nil, fmt.Errorf("open the history: %s uses %s; stop that server, or set another directory for this one (history: DIR)", process, directory)
}
