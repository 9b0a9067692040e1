package sema_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestTicket_IsReadyInASelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(1)
		held := mustAcquire(t, s, 1)
		ticket := s.Request(1)
		_, err := ticket.Permit()
		wantErr(t, err, sema.ErrFull)
		select {
		case <-ticket.Ready():
			t.Fatal("ready while the permit is held")
		case <-time.After(time.Second):
		}
		held.Release()
		<-ticket.Ready()
		p, err := ticket.Permit()
		wantErr(t, err, nil)
		if again, _ := ticket.Permit(); again != p {
			t.Error("a second call of Permit returned another permit")
		}
		p.Release()
		wantStats(t, s, 0, 0)
	})
}

func TestTicket_CancelAfterReadyReleasesThePermit(t *testing.T) {
	s := sema.New(1)
	ticket := s.Request(1)
	<-ticket.Ready()
	wantStats(t, s, 1, 0)
	ticket.Cancel()
	wantStats(t, s, 0, 0)
	_, err := ticket.Permit()
	wantErr(t, err, context.Canceled)
	ticket.Cancel()
}

func TestTicket_CancelWhileQueuedUnblocksOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sema.New(2)
		held := mustAcquire(t, s, 1)
		ticket := s.Request(2)
		next := acquiring(t.Context(), s, 1)
		synctest.Wait()
		ticket.Cancel()
		<-ticket.Ready()
		_, err := ticket.Permit()
		wantErr(t, err, context.Canceled)
		synctest.Wait()
		(<-next).permit.Release()
		held.Release()
		wantStats(t, s, 0, 0)
	})
}

func TestTicket_CancelAfterPermitHasNoEffect(t *testing.T) {
	s := sema.New(1)
	ticket := s.Request(1)
	p, err := ticket.Permit()
	wantErr(t, err, nil)
	ticket.Cancel()
	if !p.Held() {
		t.Error("Cancel released a permit that is in use")
	}
	p.Release()
}

func TestTicket_CancelThatRacesAGrantLosesNoPermit(t *testing.T) {
	for _, order := range []sema.Option{sema.Fair, sema.Unfair, sema.LIFO} {
		s := sema.New(1, order)
		for range 2000 {
			held := mustAcquire(t, s, 1)
			ticket := s.Request(1)
			var racing sync.WaitGroup
			racing.Go(held.Release)
			racing.Go(ticket.Cancel)
			racing.Wait()
			wantStats(t, s, 0, 0)
		}
	}
}

func TestTicket_WeightZeroIsReady(t *testing.T) {
	s := sema.New(1)
	ticket := s.Request(0)
	<-ticket.Ready()
	p, err := ticket.Permit()
	wantErr(t, err, nil)
	p.Release()
	_, err = s.Request(2).Permit()
	wantErr(t, err, sema.ErrTooLarge)
}
