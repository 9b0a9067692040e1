package redisstore

import (
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"
)

// A place is where a semaphore is: its server, and the keys that a script is
// given. All other keys of a semaphore begin with the first.
type place struct {
	server *server
	name   string
	keys   []string
	met    *atomic.Int64 // the run of the server that was last seen there, 0 for none
}

// place finds a semaphore.
func (s *Store) place(name string) place {
	tag, server := s.options.Prefix+name, s.serverOf(name)
	at := place{server: server, name: name, keys: []string{"{" + tag + "}", s.options.Prefix + "server"}, met: &server.met[0]}
	if s.options.Cluster {
		slot := slot(tag)
		at.keys[1] += "{" + tagOf(slot) + "}"
		at.met = &server.met[slot]
	}
	return at
}

// serverOf is the one of several servers on which a semaphore is, by rendezvous:
// a server more or less moves only the semaphores that come to it or were on it.
func (s *Store) serverOf(name string) *server {
	best, most := s.servers[0], uint64(0)
	for _, server := range s.servers {
		if len(s.servers) == 1 {
			break
		}
		h := fnv.New64a()
		h.Write([]byte(server.address + "\x00" + name))
		if score := mix(h.Sum64()); score > most {
			best, most = server, score
		}
	}
	return best
}

// mix scatters a hash (the end of murmur3), of which FNV leaves the high bits much
// alike.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (s *Store) promotion() int64 { return s.options.Promotion.Microseconds() }

// slots is how many there are in a cluster.
const slots = 16384

// slot is that of a hash tag in a cluster.
func slot(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % slots)
}

// tags has one for each slot, so that what is known of a server can be in the
// slot of each semaphore.
var tags = sync.OnceValue(func() *[slots]string {
	var all [slots]string
	for found, n := 0, 0; found < slots; n++ {
		tag := strconv.Itoa(n)
		if at := slot(tag); all[at] == "" {
			all[at] = tag
			found++
		}
	}
	return &all
})

func tagOf(slot int) string { return tags()[slot] }
