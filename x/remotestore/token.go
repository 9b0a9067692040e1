package remotestore

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"

	"connectrpc.com/connect"
)

// A token is what the service knows this program by. It is shown with every call
// and to nobody else.
type token struct {
	file  string
	value atomic.Pointer[string] // of the header; "": none
}

func newToken(o Options) (*token, error) {
	t := &token{file: o.TokenFile}
	if o.Token != "" && o.TokenFile != "" {
		return nil, invalid("token and token_file: want one of them")
	}
	if t.file != "" {
		_, err := t.read()
		return t, err
	}
	_, err := t.set(o.Token)
	return t, err
}

// read reads the file, and reports whether there is another token in it than
// before.
func (t *token) read() (changed bool, err error) {
	if t.file == "" {
		return false, nil
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return false, invalid("token_file: %v", err)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return false, invalid("token_file: there is no token in %s", t.file)
	}
	return t.set(string(text))
}

func (t *token) set(secret string) (changed bool, err error) {
	for i := range len(secret) {
		if secret[i] <= ' ' || secret[i] > '~' {
			return false, invalid("the token has a character that a header cannot have; want printable ASCII without spaces")
		}
	}
	header := ""
	if secret != "" {
		header = "Bearer " + secret
	}
	old := t.value.Swap(&header)
	return old == nil || *old != header, nil
}

func (t *token) show(to http.Header) {
	if header := *t.value.Load(); header != "" {
		to.Set("Authorization", header)
	}
}

// String is for who prints it by mistake.
func (t *token) String() string { return fmt.Sprintf("token of %s", t.source()) }

// source is where the token is from, for people.
func (t *token) source() string {
	switch {
	case t.file != "":
		return "token_file=" + t.file
	case *t.value.Load() != "":
		return "token=… or " + TokenVariable
	}
	return "nowhere"
}

// WrapUnary is for [connect.Interceptor].
func (t *token) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		t.show(r.Header())
		return next(ctx, r)
	}
}

// WrapStreamingClient is for [connect.Interceptor].
func (t *token) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := next(ctx, spec)
		t.show(c.RequestHeader())
		return c
	}
}

// WrapStreamingHandler is for [connect.Interceptor].
func (t *token) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
