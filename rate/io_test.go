package rate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

func TestReader_KeepsTheRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1000, time.Second, rate.Burst(100))
		data := bytes.Repeat([]byte("x"), 5000)
		start := time.Now()
		got, err := io.ReadAll(rate.Reader(t.Context(), bytes.NewReader(data), g))
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if d := time.Since(start); d < 4900*time.Millisecond || d > 5100*time.Millisecond {
			t.Errorf("5000 bytes at 1000/s took %v", d)
		}
	})
}

func TestWriter_KeepsTheRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1000, time.Second, rate.Burst(100))
		var out bytes.Buffer
		start := time.Now()
		n, err := rate.Writer(t.Context(), &out, g).Write(make([]byte, 5000))
		if n != 5000 || err != nil || out.Len() != 5000 || time.Since(start) != 4900*time.Millisecond {
			t.Errorf("%d bytes, %v after %v", n, err, time.Since(start))
		}
	})
}

// shortWriter writes a few bytes of each piece.
type shortWriter struct{ err error }

func (s shortWriter) Write(p []byte) (int, error) { return min(3, len(p)), s.err }

func TestWriter_RefundsWhatWasNotWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, failure := range []error{nil, broken} {
			g := rate.New(1, time.Hour, rate.Burst(10))
			n, err := rate.Writer(t.Context(), shortWriter{failure}, g).Write(make([]byte, 10))
			want := failure
			if want == nil {
				want = io.ErrShortWrite
			}
			if n != 3 || err != want || g.Stats().Free != 7 {
				t.Errorf("%d bytes, %v, %v", n, err, g)
			}
		}
	})
}

// TestWriter_RateIsLowered lowers the burst below the size of a piece that waits.
func TestWriter_RateIsLowered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(100, time.Second)
		time.AfterFunc(500*time.Millisecond, func() { g.Set(10, time.Second) })
		if n, err := rate.Writer(t.Context(), io.Discard, g).Write(make([]byte, 250)); n != 250 || err != nil {
			t.Errorf("wrote %d of 250: %v", n, err)
		}
		g.Set(100, time.Second)
		must(t, g, g.Stats().Free)
		time.AfterFunc(500*time.Millisecond, func() { g.Set(10, time.Second) })
		if n, err := rate.Reader(t.Context(), bytes.NewReader(make([]byte, 100)), g).Read(make([]byte, 100)); n != 10 || err != nil {
			t.Errorf("read %d bytes, want 10: %v", n, err)
		}
	})
}

func TestReader_EndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(1, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n, err := rate.Reader(ctx, bytes.NewReader(make([]byte, 10)), g).Read(make([]byte, 10))
		if n != 1 || err != nil {
			t.Fatalf("%d, %v, want the burst", n, err)
		}
		if _, err = rate.Reader(ctx, bytes.NewReader(make([]byte, 10)), g).Read(make([]byte, 10)); err != context.DeadlineExceeded {
			t.Errorf("%v, want the end of the context", err)
		}
		if _, err := rate.Writer(ctx, io.Discard, g).Write(make([]byte, 1)); err != context.DeadlineExceeded {
			t.Errorf("%v, want the end of the context", err)
		}
		g.Close()
		if _, err := rate.Reader(t.Context(), bytes.NewReader(make([]byte, 10)), g).Read(make([]byte, 10)); !errors.Is(err, sema.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}
