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

// A token authenticates this program to the service. It is an interceptor that adds the
// Authorization header to every call, and sends it only to the configured servers.
type token struct {
	file  string                 // "": the token is not from a file
	value atomic.Pointer[string] // value of the header; "": no token
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

// read reads the file again, and reports whether the token has changed.
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
		return false, invalid("token_file: no token in %s", t.file)
	}
	return t.set(string(text))
}

func (t *token) set(secret string) (changed bool, err error) {
	for i := range len(secret) {
		if secret[i] <= ' ' || secret[i] > '~' {
			return false, invalid("the token contains a character that a header cannot contain; want printable ASCII without spaces")
		}
	}
	header := ""
	if secret != "" {
		header = "Bearer " + secret
	}
	old := t.value.Swap(&header)
	return old == nil || *old != header, nil
}

// addTo adds the token to the header of a request.
func (t *token) addTo(to http.Header) {
	if header := *t.value.Load(); header != "" {
		to.Set("Authorization", header)
	}
}

// String returns the source of the token, so that the token is never printed by mistake.
func (t *token) String() string { return fmt.Sprintf("token (source: %s)", t.source()) }

// source returns the source of the token, for messages.
func (t *token) source() string {
	switch {
	case t.file != "":
		return "token_file=" + t.file
	case t.isMissing():
		return "none"
	}
	return "token=… or " + TokenVariable
}

// isMissing reports whether there is no token.
func (t *token) isMissing() bool { return t.file == "" && *t.value.Load() == "" }

// hint returns what to do if the service does not accept the token.
func (t *token) hint() string {
	const created = "the operator of the service creates tokens with 'sema token'"
	switch {
	case t.isMissing():
		return "set " + TokenVariable + ", or token_file= in the URL, to a token of this service; " + created
	case t.file != "":
		return "check that " + t.file + " contains a whole token of this service, and no old one; " + created
	}
	return "check that " + TokenVariable + ", or token= in the URL, is a whole token of this service, and no old one; " + created
}

// rightsHint states what to do if the token lacks a right.
const rightsHint = "ask the operator of the service for a token that allows this (sema token --verbs, --prefix)"

// WrapUnary implements [connect.Interceptor].
func (t *token) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		t.addTo(r.Header())
		return next(ctx, r)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (t *token) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := next(ctx, spec)
		t.addTo(c.RequestHeader())
		return c
	}
}

// WrapStreamingHandler implements [connect.Interceptor].
func (t *token) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
