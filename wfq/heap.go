package wfq

// A classHeap orders classes by key, the smallest first. Its entries contain the keys, and each
// has four children: a comparison of siblings then stays within one or two cache lines,
// which matters with thousands of classes.
type classHeap struct{ entries []heapEntry }

type heapEntry struct {
	key   float64
	class *class
}

const children = 4

// leastLocked returns the class with the least key, or nil. A key was right at the last
// event of its class. That of a class that holds permits has grown since, so those at the
// top are computed again: a few of them, whatever their number.
func (h *classHeap) leastLocked() *class {
	if len(h.entries) == 0 {
		return nil
	}
	for range 16 {
		top := h.entries[0]
		if top.class.inUse.Load() == 0 {
			return top.class
		}
		key := top.class.keyLocked()
		if key <= top.key {
			return top.class
		}
		h.put(top.class, key)
	}
	return h.entries[0].class
}

// put adds c, or changes its key.
func (h *classHeap) put(c *class, key float64) {
	if c.heap != h {
		c.heap, c.index = h, len(h.entries)
		h.entries = append(h.entries, heapEntry{key, c})
		h.up(c.index)
		return
	}
	old := h.entries[c.index].key
	h.entries[c.index].key = key
	if key < old {
		h.up(c.index)
	} else {
		h.down(c.index)
	}
}

// remove removes c, which must be in h.
func (h *classHeap) remove(c *class) {
	i, last := c.index, len(h.entries)-1
	moved := h.entries[last]
	h.entries[last] = heapEntry{}
	h.entries = h.entries[:last]
	c.heap = nil
	if i < last {
		h.entries[i] = moved
		moved.class.index = i
		h.up(i)
		h.down(moved.class.index)
	}
	if cap(h.entries) > 64 && last < cap(h.entries)/4 {
		h.entries = append(make([]heapEntry, 0, cap(h.entries)/2), h.entries...)
	}
}

func (h *classHeap) up(i int) {
	e := h.entries[i]
	for i > 0 {
		parent := (i - 1) / children
		if h.entries[parent].key <= e.key {
			break
		}
		h.set(i, h.entries[parent])
		i = parent
	}
	h.set(i, e)
}

func (h *classHeap) down(i int) {
	e := h.entries[i]
	for {
		first := i*children + 1
		if first >= len(h.entries) {
			break
		}
		least := first
		for k := first + 1; k < min(first+children, len(h.entries)); k++ {
			if h.entries[k].key < h.entries[least].key {
				least = k
			}
		}
		if h.entries[least].key >= e.key {
			break
		}
		h.set(i, h.entries[least])
		i = least
	}
	h.set(i, e)
}

func (h *classHeap) set(i int, e heapEntry) {
	h.entries[i] = e
	e.class.index = i
}
