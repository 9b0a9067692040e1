package registry

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/sema-go/sema"
)

// Watch applies changes of a file until ctx ends, and returns the cause. It does not return
// because of a bad file: it logs that, keeps the limits as they are, and goes on. The page
// of [Registry.Handler] shows the error, and since when. Start Watch in a goroutine, after
// [Registry.Load].
//
// It reads the file every 5 s ([PollEvery]) and compares its content. So it recognises
// all ways to replace a file: writing to it, renaming another one over it, and the symbolic
// links of a Kubernetes ConfigMap.
//
// A file that is being written may be read half. So a bad or missing file is reported once
// it has been the same at two polls in a row. It is reported once, however long it stays. A
// change that failed, such as of a fleet whose store is away, is tried again at each poll.
//
// A registry has one file: watch the one that is loaded.
func (r *Registry) Watch(ctx context.Context, path string) error {
	if ctx == nil {
		return &sema.Error{Op: "watch", Err: sema.ErrInvalid, Detail: "nil context"}
	}
	every := r.options.pollEvery
	if every == 0 {
		every = defaultPoll
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	w := watcher{registry: r, path: path}
	for ctx.Err() == nil {
		w.poll()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return context.Cause(ctx)
}

// A watcher compares the content of a file with what was applied.
type watcher struct {
	registry *Registry
	path     string
	suspect  string // what was wrong at the last poll
	reported string // what was reported last
}

// poll reads the file once, and applies it if it changed.
func (w *watcher) poll() {
	r := w.registry
	r.loading.Lock()
	defer r.loading.Unlock()
	data, err := readFile(w.path)
	if err != nil {
		w.reject(unreadable(w.path, err), err.Error(), false)
		return
	}
	digest := sha256.Sum256(data)
	if r.inForce(w.path, digest) {
		if w.reported != "" {
			r.options.log().Info("registry: the file is again what was loaded", "file", w.path)
		}
		w.suspect, w.reported = "", ""
		r.retry()
		return
	}
	p, fault := r.prepare(w.path, data)
	if fault != nil {
		w.reject(fault, "bad "+string(digest[:]), false)
		return
	}
	changes, fault := r.apply(p)
	if fault != nil {
		w.reject(fault, "failed "+string(digest[:]), true)
		return
	}
	w.suspect, w.reported = "", ""
	r.options.log().Info("registry: file applied", "file", w.path, "changes", changes)
}

// reject reports a file unless it was reported before. identity is the same while the
// content is. A file that may be half written is reported at the second poll.
func (w *watcher) reject(fault *LoadError, identity string, now bool) {
	r := w.registry
	repeated := w.suspect == identity
	w.suspect = identity
	if w.reported == identity || !now && !repeated {
		return
	}
	w.reported = identity
	_ = r.reject(w.path, fault)
	r.options.log().Error("registry: file rejected, limits unchanged", "file", w.path, "error", fault, "hint", fault.Hint())
}

// inForce reports whether a file of this content is what was applied last. Then it clears
// the error of one that was rejected meanwhile.
func (r *Registry) inForce(path string, digest [sha256.Size]byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file.path != path || r.file.digest != digest {
		return false
	}
	if r.file.rejected == path {
		r.file.rejected, r.file.err = "", nil
	}
	return true
}
