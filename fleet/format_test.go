package fleet_test

import (
	"fmt"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/internal/storetest"
)

func TestClient_PrintsNoInternals(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	storetest.Prints(t, store, "memory store of 0 semaphores")
	c := fleet.New(store)
	defer c.Close(t.Context())
	storetest.Prints(t, c, "fleet client "+c.Instance()+" of memory store of 0 semaphores")
	s := semaphore(t, c, of(3))
	defer mustAcquire(t, s, 1).Release()
	storetest.Prints(t, s, fmt.Sprintf("fleet semaphore %q: 1 of 3 in use, 0 waiting", s.Name()))
	local := memstore.New()
	r := fleet.NewRegion(local, c, 0)
	defer r.Close()
	storetest.Prints(t, r, fmt.Sprintf("region with memory store of 0 semaphores, leasing by %v", c))
	storetest.Prints(t, new(fleet.Guard), "guard: fences from 0 on, 0 ranges revoked")
}
