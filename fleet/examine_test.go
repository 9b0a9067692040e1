package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestClient_ExamineAndPing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	client := fleet.New(memstore.NewWithClock(func() time.Time { return noon }))
	defer client.Close(ctx)
	if now, err := client.Ping(ctx); !now.Equal(noon) || err != nil {
		t.Errorf("%v, %v", now, err)
	}
	findings, err := client.Examine(ctx)
	if err != nil || len(findings) != 1 || findings[0].Check != "persistence" || findings[0].Level != fleet.LevelWarning {
		t.Errorf("%+v, %v", findings, err)
	}

	plain := fleet.New(struct{ fleet.Store }{memstore.New()})
	defer plain.Close(ctx)
	_, err = plain.Ping(ctx)
	wantErr(t, err, errors.ErrUnsupported)
	_, err = plain.Examine(ctx)
	wantErr(t, err, errors.ErrUnsupported)
}

func TestProblems_ReturnsTexts(t *testing.T) {
	t.Parallel()
	got := fleet.Problems("redis at a", []fleet.Finding{
		{Level: fleet.LevelOK, Seen: "fine"}, {Level: fleet.LevelWarning, Seen: "almost full", Advice: "clean up"},
		{Level: fleet.LevelProblem, Seen: "no persistence", Advice: "set it"}, {Level: fleet.LevelProblem, Seen: "disk full"},
	})
	if want := []string{"redis at a: no persistence; set it", "redis at a: disk full"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
