package server

import (
	"io"
	"net/http"
)

// A stream sends parts of a response at once.
type stream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// send reports whether the client may still read.
func (s stream) send(texts ...string) bool {
	for _, text := range texts {
		if _, err := io.WriteString(s.w, text); err != nil {
			return false
		}
	}
	return s.flush.Flush() == nil
}
