package redisstore

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/rueidis"
)

// A nodeStub is a node of a cluster that replies with an error, or successfully if it is nil.
type nodeStub struct {
	rueidis.Client
	err error
}

func (n nodeStub) B() rueidis.Builder { return rueidis.Builder{} }

func (n nodeStub) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	if n.err != nil {
		return rueidis.NewErrorResult(n.err)
	}
	return rueidis.RedisResult{}
}

// A clusterStub is a client of a cluster.
type clusterStub struct {
	rueidis.Client
	nodes map[string]rueidis.Client
}

func (c clusterStub) Nodes() map[string]rueidis.Client { return c.nodes }

func TestProgram_IsInstalledAlthoughANodeIsDown(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	p := &program{}
	up := clusterStub{nodes: map[string]rueidis.Client{"a": nodeStub{}, "b": nodeStub{err: down}}}
	for range 20 { // the order of the nodes is random
		if err := p.install(t.Context(), up); err != nil {
			t.Fatal(err)
		}
	}
	none := clusterStub{nodes: map[string]rueidis.Client{"a": nodeStub{err: down}, "b": nodeStub{err: down}}}
	if err := p.install(t.Context(), none); !errors.Is(err, down) {
		t.Errorf("error %v", err)
	}
}
