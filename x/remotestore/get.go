package remotestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Get requests a path of the service's JSON API, such as /v1/semaphores/db/advice, and decodes the
// response. It is for what the service measures, which no other store knows. It fails with
// [errors.ErrUnsupported] for every other status than 200.
func (s *Store) Get(ctx context.Context, path string, into any) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	to, _ := s.servers.current()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+to.address+path, nil)
	if err != nil {
		return invalid("path %q: %v", path, err)
	}
	s.token.addTo(request.Header)
	client := &http.Client{Transport: s.transport, CheckRedirect: rejectRedirects}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	if response.StatusCode == http.StatusOK {
		return json.Unmarshal(raw, into)
	}
	var problem struct{ Detail string }
	_ = json.Unmarshal(raw, &problem)
	return fmt.Errorf("%s: %s: %w (status %d, %s)", s, path, errors.ErrUnsupported, response.StatusCode, problem.Detail)
}
