package protocol_test

import "testing"

func TestState_SimulatedWorldsKeepInvariants(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]faults{
		"none":    {},
		"network": {loss: true, duplicate: true, delay: true, cancel: true},
		"pauses":  {pause: true, crash: true, delay: true},
		"steps":   {steps: true, pause: true, loss: true},
		"ticks":   {ticks: true, steps: true, pause: true, crash: true, loss: true, cancel: true},
		"admin":   {resize: true, revoke: true, cancel: true, loss: true},
		"pools":   {pool: true, split: true, loss: true, duplicate: true, pause: true, cancel: true},
		"ramp":    {ramp: true, resize: true, loss: true, crash: true},
		"rate":    {rate: true, loss: true, crash: true, cancel: true, steps: true},
		"settle":  {rate: true, settle: true, loss: true, duplicate: true, delay: true, crash: true, pause: true, cancel: true},
		"all": {
			loss: true, duplicate: true, delay: true, pause: true, crash: true, steps: true, resize: true, cancel: true, revoke: true,
			pool: true, split: true, ramp: true, ticks: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants, rejected, stale, settled, charges := 0, 0, 0, 0, 0
			for seed := range uint64(*seeds) {
				w := newWorld(seed, f)
				if err := w.run(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				grants += w.grants
				rejected += w.rejected
				stale += w.resource.stale
				settled += w.ledger.settled
				charges += w.ledger.charges
			}
			t.Logf("%d grants, %d rejections, %d stale writes, %d settlements, %d late charges", grants, rejected, stale, settled, charges)
			if grants < 10**seeds {
				t.Errorf("only %d grants in %d worlds", grants, *seeds)
			}
			if f.settle && (settled < 10**seeds || charges < *seeds) {
				t.Errorf("only %d settlements and %d late charges in %d worlds", settled, charges, *seeds)
			}
		})
	}
}
