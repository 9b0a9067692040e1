package history

// CloseFiles closes the files, as after a failed write.
func CloseFiles(h *History) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range []*log{h.fine.file, h.coarse.file, h.events.file} {
		_ = f.close()
	}
}
