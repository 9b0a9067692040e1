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
		"all": {
			loss: true, duplicate: true, delay: true, pause: true, crash: true, steps: true, resize: true, cancel: true, revoke: true,
			pool: true, split: true, ramp: true, ticks: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants, rejected, stale := 0, 0, 0
			for seed := range uint64(*seeds) {
				w := newWorld(seed, f)
				if err := w.run(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				grants += w.grants
				rejected += w.rejected
				stale += w.resource.stale
			}
			t.Logf("%d grants, %d rejections, %d stale writes", grants, rejected, stale)
			if grants < 10**seeds {
				t.Errorf("only %d grants in %d worlds", grants, *seeds)
			}
		})
	}
}
